"""Who exchanges how much with whom in a step, by kind of operation, before anything is written out pair by pair.

All groups of a name do the same, so a kind of operation is the edges of one group, weighted, times the pairs of ranks that
those edges are in every group of the stage. A row of the step is of one rank of its stage: of a group that spans stages it
accounts for what the members in its own stage send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenwire.collectives import edges
from tokenwire.collectives.tables import Ints
from tokenwire.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.plan import Plan

MOST_PAIRS = 1 << 28
"""Pairs of ranks of one group and stage that are written out: 4 GB."""


class Pairs(NamedTuple):
    """Pairs of ranks ``src``, ``dst`` and, for each, which edge of its group it is (``edge``)."""

    src: Ints
    dst: Ints
    edge: Ints


@dataclass(frozen=True)
class Pattern:
    """One kind of operation of a stage: ``weights[pairs.edge]`` bytes a step from ``pairs.src`` to ``pairs.dst``."""

    stage: int
    op: str
    group: str
    phase: str
    parallelism: str
    pairs: Pairs
    weights: Ints

    @property
    def bytes(self) -> Ints:
        """Return the bytes of each pair."""
        return self.weights[self.pairs.edge]


def patterns(operations: pl.DataFrame, plan: Plan, algorithms: Mapping[str, str]) -> list[Pattern]:
    """Return the patterns of a step, rows of one (stage, op, group, phase, parallelism) added up.

    ``algorithms`` names the algorithm of an operation where it is not the usual one. What is said once before the first
    step (phase ``setup``), receives and barriers carry no bytes of a step.
    """
    known: dict[tuple[int, str, bytes], Pairs] = {}
    out = []
    for stage, op, group, phase, parallelism, rows in _kinds(operations):
        found: list[Pattern] = []
        for n, peer, size, count in rows:
            src, dst, weight = _edges(op, group, n, stage, peer, size, algorithms.get(op), plan)
            pairs = _pairs(known, plan, stage, group, n, src, dst)
            weight = weight * count
            same = next((p for p in found if p.pairs is pairs), None)
            if same is not None:
                found.remove(same)
                weight = weight + same.weights
            found.append(Pattern(stage, op, group, phase, parallelism, pairs, weight))
        out += found
    return out


def _kinds(
    operations: pl.DataFrame,
) -> Iterator[tuple[int, str, str, str, str, list[tuple[int, int | None, int, int]]]]:
    kinds: dict[tuple[int, str, str, str, str], list[tuple[int, int | None, int, int]]] = {}
    columns = ("stage", "op", "group", "phase", "parallelism", "group_size", "peer", "bytes", "count")
    for *kind, n, peer, size, count in operations.select(columns).iter_rows():
        if kind[3] != "setup" and kind[1] not in ("recv", "barrier") and n > 1:
            kinds.setdefault(tuple(kind), []).append((n, peer, size, count))
    for (stage, op, group, phase, parallelism), rows in kinds.items():
        yield stage, op, group, phase, parallelism, rows


def _edges(
    op: str, group: str, n: int, stage: int, peer: int | None, size: int, algorithm: str | None, plan: Plan
) -> tuple[Ints, Ints, Ints]:
    if op == "send":
        if peer is not None and plan.pp > 1 and group == "pp":
            return np.array([stage]), np.array([peer]), np.array([size], dtype=np.int64)
        # Round the group, as ring attention does.
        i = np.arange(n, dtype=np.int64)
        return i, (i + 1) % n, np.full(n, size, dtype=np.int64)
    found = edges(op, algorithm, n, size)
    if found.src.size and int(max(found.src.max(), found.dst.max())) >= n:
        raise InputError(f"{op} by {algorithm}", rule="switches add in it, so it is not traffic between GPUs",
                         nearest="ring")  # fmt: skip
    return found.src, found.dst, found.bytes


def _pairs(
    known: dict[tuple[int, str, bytes], Pairs], plan: Plan, stage: int, group: str, n: int, src: Ints, dst: Ints
) -> Pairs:
    key = (stage, f"{group}/{n}", src.tobytes() + b"/" + dst.tobytes())
    if key in known:
        return known[key]
    groups = plan.groups(group, stage)
    if groups.shape[1] != n:
        raise InputError(f"{group} of {n} ranks", rule=f"the plan's has {groups.shape[1]}", where=f"stage {stage}")
    if groups.shape[0] * src.size > MOST_PAIRS:
        raise InputError(f"{group} of {n:,} ranks", rule=f"is more than {MOST_PAIRS:,} pairs of ranks",
                         nearest="a smaller group")  # fmt: skip
    every = np.tile(np.arange(src.size, dtype=np.int64), groups.shape[0])
    first, second = groups[:, src].reshape(-1), groups[:, dst].reshape(-1)
    per_stage = plan.world // plan.pp
    own = first // per_stage == stage
    if not own.all():
        first, second, every = first[own], second[own], every[own]
    known[key] = Pairs(first, second, every)
    return known[key]
