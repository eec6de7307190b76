"""Jobs that share a fabric, and the heat of links, as facts and as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, Fabric, build
from tokenwire.fabric.fabric import Ints
from tokenwire.flows.heat import curve_text, heat
from tokenwire.flows.jobs import Jobs, jobs, placed
from tokenwire.flows.reading import Table
from tokenwire.flows.traffic import traffic
from tokenwire.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.plan import Plan

MOST_JOBS = 16


def together(
    names: Sequence[str], steps: Sequence[tuple[pl.DataFrame, Plan]], cluster: ClusterConfig, placement: str, **options: Any
) -> Jobs:
    """Return the jobs on one fabric: the first job's cluster, with as many nodes as all of them need.

    ``options`` go to ``traffic``. Raises ``InputError`` for more than 16 jobs.
    """
    if len(names) > MOST_JOBS:
        raise InputError(f"{len(names)} jobs", rule=f"at most {MOST_JOBS} share a fabric")
    g = cluster.facts.gpus_per_node
    places = placed([plan.world for _, plan in steps], g, placement)
    nodes = max(cluster.facts.nodes, 1 + max(int(place.max()) for place in places) // g)
    fabric = build(ClusterConfig.model_construct(**{**dict(cluster), "nodes": nodes, "gpus": None}))
    found = [traffic(said, plan, fabric, place=place, **options) for (said, plan), place in zip(steps, places, strict=True)]
    return jobs([f"{i} {PurePath(name).stem}" for i, name in enumerate(names)], found)


def jobs_facts(shared: Jobs, *, links: bool) -> dict[str, Any]:
    """Return who they are, the load by tier, and with ``links`` that of every link. In bytes, one step of each job."""
    out: dict[str, Any] = {
        "jobs": [{"name": name, "gpus": one.plan.world, "nodes": np.unique(one.gpus(np.arange(one.plan.world)) // shared.fabric.gpus_per_node).tolist(),
                  "sent_bytes": one.totals["sent_bytes"], "network_bytes": one.totals["network_bytes"]}
                 for name, one in zip(shared.names, shared.traffics, strict=True)],
        "per_tier": shared.tiers(), "notes": list(shared.fabric.notes),
    }  # fmt: skip
    if links:
        out["links"] = shared.links.to_dicts()
    return out


def jobs_tables(shared: Jobs, top: int) -> Iterator[Table]:
    """Yield the load of each job by tier, and the links that several jobs use."""
    if top < 1:
        raise InputError(f"--top {top}", rule="must be at least 1", nearest="--top 20")
    rows = []
    for row in shared.tiers():
        for i, name in enumerate(shared.names):
            rows.append((row["tier"] if i == 0 else "", name, format_bytes(row["bytes"][i]), f"{row['shared_links']:,}" if i == 0 else "",
                         (row["busiest_shared"] or "none") if i == 0 else "", format_bytes(row["busiest_shared_bytes"][i])))  # fmt: skip
    columns = ["tier", "job", "on links", "shared links", "busiest shared", "carries"]
    yield f"{len(shared.names)} jobs on {shared.fabric.name}, one step of each", columns, ["on links", "shared links", "carries"], rows
    busy = shared.links.filter(shared.links["jobs"] > 1).sort(["seconds", "link"], descending=[True, False]).head(top)
    lines = [(row["src"], row["dst"], row["tier"], format_bytes(row["bytes"]), format_seconds(row["seconds"]),
              " + ".join(format_bytes(row[f"bytes_{i}"]) for i in range(len(shared.names)))) for row in busy.iter_rows(named=True)]  # fmt: skip
    if lines:
        yield "Links that several jobs use", ["from", "to", "tier", "bytes", "bytes/rate", "job by job"], ["bytes", "bytes/rate"], lines


def heat_table(fabric: Fabric, load: Ints) -> Table:
    """Return the heat of links by tier: in how long each link would carry its bytes at full rate."""
    found = heat(fabric, load)
    rows = []
    for row in found:
        share = f"{row['idle'] / row['links'] * 100:.0f} %"
        rows.append((f"{row['tier']} {row['direction']}", f"{row['links']:,}", share,
                     format_seconds(row["most_seconds"]), f"{row['imbalance']:.2f}", row["busiest"] or "none",
                     curve_text(row["curve"], row["most_seconds"])))  # fmt: skip
    columns = ["tier", "links", "idle", "busiest", "× mean", "link", "links by load"]
    return "Heat by tier: bytes over rate (× mean: of links in use)", columns, columns[1:5], rows
