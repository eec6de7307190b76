"""Each kind of communication of a step on its own, all its transfers at once: how long, where the bottleneck is.

Every transfer of a kind (operation, group, phase) is one flow of all its bytes of the step, begun at the same time; links are
shared max-min fairly. That is what the fabric allows, not when a framework would send: the order of a step is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import InputError, closest
from tokenwire.fabric import TIERS, Fabric, Ways, ways, without
from tokenwire.fabric.fabric import Floats, Ints
from tokenwire.flows.maxmin import Sharing, simulate
from tokenwire.flows.patterns import Pattern

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.flows.traffic import Traffic

MOST_FLOWS = 1 << 22
"""Flows of one kind that are simulated."""


@dataclass(frozen=True)
class Flows:
    """The flows of one kind of communication before anything is simulated: who, how much (``bytes``), and over which links."""

    op: str
    group: str
    phase: str
    parallelism: str
    src: Ints
    dst: Ints
    bytes: Ints
    ways: Ways


@dataclass(frozen=True)
class Kind(Flows):
    """One kind of communication: its flows and what became of them."""

    shared: Sharing
    fabric: Fabric

    @cached_property
    def ended(self) -> Floats:
        """Return when each flow ends, in seconds: the last of its queue pairs."""
        out = np.zeros(self.bytes.size)
        np.maximum.at(out, self.ways.pair, self.shared.ended)
        return out

    @cached_property
    def link_bytes(self) -> Ints:
        """Return the bytes on each link."""
        return self.ways.link_bytes

    @property
    def links(self) -> Ints:
        """Return the links of each flow's way (those it is sprayed over; of several queue pairs the most)."""
        width = np.ones(0) if self.ways.trunks is None else self.ways.trunks.width
        many = np.ones(self.ways.entries.size) if self.ways.trunks is None else width[self.ways.entries]
        strand = np.repeat(np.arange(self.ways.size.size), self.ways.hops)
        out = np.zeros(self.bytes.size, dtype=np.int64)
        np.maximum.at(out, self.ways.pair, np.bincount(strand, weights=many, minlength=self.ways.size.size).astype(np.int64))
        return out

    @property
    def bound(self) -> float:
        """Return the seconds that the busiest link needs: no schedule is faster over these routes."""
        return float((self.link_bytes / self.fabric.rate).max(initial=0.0))

    @property
    def worst(self) -> int:
        """Return the link that needs longest."""
        return int((self.link_bytes / self.fabric.rate).argmax())

    @property
    def imbalance(self) -> float:
        """Return the busiest link's seconds over the mean of the links in use of its tier."""
        seconds, tier = self.link_bytes / self.fabric.rate, self.fabric.tier[self.worst]
        used = seconds[(self.fabric.tier == tier) & (seconds > 0)]
        return float(used.max() / used.mean()) if used.size else 1.0

    @property
    def sharers(self) -> int:
        """Return how many flows take the worst link (queue pairs count each)."""
        trunks, worst = self.ways.trunks, self.worst
        if trunks is not None:
            worst = int(np.flatnonzero((trunks.first <= worst) & (worst < trunks.first + trunks.width))[0])
        return int((self.ways.entries == worst).sum())


def kinds(traffic: Traffic, fabric: Fabric, only: Sequence[str] = (), record: bool = False) -> Iterator[Kind]:
    """Yield each kind of communication of ``traffic`` on ``fabric`` (which may have failures), by itself.

    ``only`` names parallelisms, groups or phases; with ``record`` the rates over time are kept. Raises ``InputError`` for a name
    that the step does not have.
    """
    for flows in routed(traffic, fabric, only):
        found = flows.ways
        shared = simulate((found.offsets, found.entries), found.size, found.rate, latency=found.latency, use=found.use,
                          record=record)  # fmt: skip
        yield Kind(**vars(flows), shared=shared, fabric=fabric)


def routed(traffic: Traffic, fabric: Fabric, only: Sequence[str] = ()) -> Iterator[Flows]:
    """Yield the flows of each kind of communication with their ways; see ``kinds``."""
    groups: dict[tuple[str, str, str, str], list[Pattern]] = {}
    for pattern in traffic.kinds:
        groups.setdefault((pattern.op, pattern.group, pattern.phase, pattern.parallelism), []).append(pattern)
    known = sorted({name for _, *names in groups for name in names})
    for name in only:
        if name not in known:
            raise InputError(f"--only {name}"[:80], rule=f"the step has {', '.join(known) or 'nothing to send'}",
                             nearest=closest(name, known))  # fmt: skip
    for (op, group, phase, parallelism), parts in groups.items():
        if only and not set(only) & {group, phase, parallelism}:
            continue
        src, dst = (np.concatenate([getattr(p.pairs, end) for p in parts]) for end in ("src", "dst"))
        size = np.concatenate([p.bytes for p in parts])
        sends = size > 0
        src, dst, size = src[sends], dst[sends], size[sends]
        if not size.size:
            continue
        if size.size > MOST_FLOWS:
            raise InputError(f"{op} on {group}: {size.size:,} flows", rule=f"at most {MOST_FLOWS:,} are simulated",
                             nearest="--only another group")  # fmt: skip
        found = ways(fabric, traffic.gpus(src), traffic.gpus(dst), size, seed=traffic.seed, pxn=traffic.pxn)
        yield Flows(op, group, phase, parallelism, src, dst, size, found)


def flow_table(found: Sequence[Kind]) -> pl.DataFrame:
    """Return every flow: src, dst (GPUs), bytes, op, group, phase, parallelism, links, seconds, rate (mean, bytes/s)."""
    import polars as pl

    schema = {"src": pl.Int64, "dst": pl.Int64, "bytes": pl.Int64, "links": pl.Int64, "seconds": pl.Float64,
              "rate": pl.Float64, **dict.fromkeys(("op", "group", "phase", "parallelism"), pl.String)}  # fmt: skip
    parts = [
        pl.DataFrame({
            "src": kind.src, "dst": kind.dst, "bytes": kind.bytes, "links": kind.links,
            "seconds": kind.ended, "rate": kind.bytes / kind.ended,
        }).with_columns(pl.lit(getattr(kind, name)).alias(name) for name in ("op", "group", "phase", "parallelism"))
        for kind in found
    ]  # fmt: skip
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def kind_facts(kind: Kind) -> dict[str, Any]:
    """Return what one kind took: seconds of the first, middle and last flow, the bound, the worst link and its flows."""
    first, middle, last = (float(x) for x in np.quantile(kind.ended, [0, 0.5, 1]))
    worst, fabric = kind.worst, kind.fabric
    name = f"{fabric.device_name(int(fabric.src[worst]))}-{fabric.device_name(int(fabric.dst[worst]))}"
    return {
        "op": kind.op, "group": kind.group, "phase": kind.phase, "parallelism": kind.parallelism, "flows": int(kind.bytes.size),
        "bytes": int(kind.bytes.sum()), "first_seconds": first, "median_seconds": middle, "seconds": last,
        "bound_seconds": kind.bound, "worst_link": name, "worst_tier": TIERS[fabric.tier[worst]],
        "worst_link_flows": kind.sharers, "events": kind.shared.events,
    }  # fmt: skip


def compared(traffic: Traffic, failed: Sequence[str], only: Sequence[str] = ()) -> tuple[list[Kind], list[dict[str, Any]]]:
    """Return the kinds on the fabric as it is (with failures where named), and their facts.

    With failures each fact also has ``healthy_seconds`` and ``slowdown``: what the kind took before, and the ratio.
    """
    fabric = without(traffic.fabric, failed) if failed else traffic.fabric
    found = list(kinds(traffic, fabric, only))
    facts = [kind_facts(kind) for kind in found]
    if failed:
        for fact, before in zip(facts, kinds(traffic, traffic.fabric, only), strict=True):
            fact["healthy_seconds"] = before.shared.makespan
            fact["slowdown"] = fact["seconds"] / before.shared.makespan if before.shared.makespan else 1.0
    return found, facts


def spread(traffic: Traffic, seeds: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return for each kind over ``seeds`` draws of the hash: its seconds (least, median, 95 %, most) and its imbalance.

    Imbalance is how long the busiest link needs over the mean of the links in use of its tier: 1 is even.
    """
    runs = [
        [(kind.shared.makespan, kind.imbalance) for kind in kinds(replace(traffic, seed=s), traffic.fabric, only)]
        for s in range(seeds)
    ]
    out = []
    for i, kind in enumerate(kinds(traffic, traffic.fabric, only)):
        low, middle, late, high = (float(x) for x in np.quantile([run[i][0] for run in runs], [0, 0.5, 0.95, 1]))
        even, uneven = (float(x) for x in np.quantile([run[i][1] for run in runs], [0.5, 1]))
        out.append({"op": kind.op, "group": kind.group, "phase": kind.phase, "parallelism": kind.parallelism,
                    "least_seconds": low, "median_seconds": middle, "p95_seconds": late, "most_seconds": high,
                    "median_imbalance": even, "most_imbalance": uneven, "seeds": seeds})  # fmt: skip
    return out
