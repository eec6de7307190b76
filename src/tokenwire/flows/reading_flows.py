"""Flows as facts for a program and as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.flows.contention import Kind, compared, flow_table, spread
from tokenwire.flows.reading import Table
from tokenwire.flows.traffic import Traffic
from tokenwire.units import format_seconds

if TYPE_CHECKING:
    import polars as pl

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Asked:
    """The kinds of flows that were asked for, and the facts of them."""

    kinds: list[Kind]
    facts: dict[str, Any]

    @property
    def table(self) -> pl.DataFrame:
        """Return every flow; see ``contention.flow_table``."""
        return flow_table(self.kinds)


def flows(traffic: Traffic, failed: Sequence[str], only: Sequence[str], seeds: int = 0) -> Asked:
    """Return the flows of a step by kind. Raises ``InputError`` for devices, names or seeds that are none."""
    if not 0 <= seeds <= MOST_SEEDS:
        raise InputError(f"--seeds {seeds}", rule=f"must be 0 to {MOST_SEEDS:,}", nearest="--seeds 20")
    found, rows = compared(traffic, failed, only)
    facts = {
        "cluster": traffic.fabric.name, "gpus": traffic.plan.world, "failed": list(failed), "kinds": rows,
        "spread": spread(traffic, seeds, only) if seeds else [],
    }  # fmt: skip
    return Asked(found, facts)


def tables(asked: Asked) -> Iterator[Table]:
    """Yield what is printed."""
    facts = asked.facts
    failed = ", ".join(facts["failed"])
    title = f"Each kind of a step on its own, {facts['cluster']}" + (f" without {failed}" if failed else "")
    rows = []
    for row in facts["kinds"]:
        end = f"× {row['slowdown']:.2f}" if failed else format_seconds(row["bound_seconds"])
        rows.append((
            f"{row['op']} {row['group']}", row["phase"], f"{row['flows']:,}", format_seconds(row["seconds"]), end, row["worst_link"], f"{row['worst_link_flows']:,}",
        ))  # fmt: skip
    columns = ["kind", "phase", "flows", "time", "failure" if failed else "bound", "worst link", "on it"]
    yield title, columns, ["flows", "time", columns[4], "on it"], rows
    if facts["spread"]:
        lines = [
            (f"{row['op']} {row['group']}", row["phase"], format_seconds(row["least_seconds"]),
             format_seconds(row["median_seconds"]), format_seconds(row["p95_seconds"]), format_seconds(row["most_seconds"]),
             f"{row['median_imbalance']:.2f}")
            for row in facts["spread"]
        ]  # fmt: skip
        title = f"Time over {facts['spread'][0]['seeds']:,} seeds of the hash; × mean: busiest link over its tier, median"
        yield title, ["kind", "phase", "least", "median", "95 %", "most", "× mean"], ["least", "median", "95 %", "most", "× mean"], lines
