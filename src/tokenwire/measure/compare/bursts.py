"""When frames crossed in one step, by pair of ranks and by the group that both are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.measure.compare.measured import owners
from tokenwire.measure.counting.streams import Stream

if TYPE_CHECKING:
    from tokenwire.plan import Plan

_BINS = 60


def bursts(
    found: Sequence[Stream], runs: Sequence[dict[str, Any]], mark: int, plan: Plan, groups: Iterable[str]
) -> tuple[dict[str, Any], ...]:  # fmt: skip
    """Return frame bytes of the step before a mark by pair over time: ``src``, ``dst``, ``group``, ``bins`` of ``width_s`` from its start.

    ``groups`` are those that speak in a step: a pair belongs to the smallest that has both.
    """
    owner, names = owners(runs, mark), list(dict.fromkeys(groups))
    first = min(run["marks"][mark]["began_ns"] for run in runs)
    last = max(run["marks"][mark]["ended_ns"] for run in runs)
    edges = np.linspace(first, max(last, first + 1), _BINS + 1)
    out: dict[tuple[int, int], Any] = {}
    for stream in found:
        pair = (owner.get((stream.source, stream.target), -1), owner.get((stream.target, stream.source), -1))
        if -1 not in pair:
            out[pair] = out.get(pair, 0) + np.histogram(stream.time, edges, weights=stream.frame)[0]
    width = float((edges[1] - edges[0]) / 1e9)
    return tuple({"src": src, "dst": dst, "group": _group(src, dst, plan, names), "width_s": width, "bins": [int(x) for x in bins]}
                 for (src, dst), bins in sorted(out.items()) if bins.sum())  # fmt: skip


def by_group(found: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the bins of bursts summed over the pairs of each group.

    >>> by_group([{"group": "tp", "bins": [1, 2]}, {"group": "dp", "bins": [5, 0]}, {"group": "tp", "bins": [3, 3]}])
    {'tp': [4, 5], 'dp': [5, 0]}
    """
    out: dict[str, list[int]] = {}
    for burst in found:
        so_far = out.get(burst["group"], [0] * len(burst["bins"]))
        out[burst["group"]] = [a + b for a, b in zip(so_far, burst["bins"], strict=True)]
    return out


def _group(src: int, dst: int, plan: Plan, names: list[str]) -> str:
    both = [(len(members), name) for name in names if dst in (members := [int(one) for one in plan.members(name, src)])]
    return min(both, default=(0, "world"))[1]
