"""Recursive halving and doubling: log2 n steps, with partners ever nearer (halving) or ever farther (doubling).

Of n members the largest power of two, q, take part; the n-q others first give all they have to a neighbour and get their
part back at the end. Halving: in each step a member gives its partner the half of its range that the partner is in.
Doubling: the same backwards, without adding. all_reduce is halving, then doubling: 2(q-1)/q·S sent by each.

Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH", section 4.5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, Rounds, register, summed
from tokenwire.collectives.tables import Ints, Table, joined, starts, table

_SOURCE = "Thakur, Rabenseifner and Gropp 2005, section 4.5"


def _core(n: int) -> tuple[int, Ints, Ints, Ints]:
    """Return log2 of the core, the core's members, and the pairs (outsider, neighbour) that fold into it."""
    k = n.bit_length() - 1
    rest = n - (1 << k)
    v = np.arange(1 << k, dtype=np.int64)
    members = np.where(v < rest, 2 * v, v + rest)
    folded = np.arange(rest, dtype=np.int64)
    return k, members, 2 * folded + 1, 2 * folded


def _halving(k: int, members: Ints, bounds: Ints, step: int) -> Table:
    v, parts = np.arange(1 << k, dtype=np.int64), []
    for s in range(k):
        d = 1 << (k - 1 - s)
        low = ((v ^ d) // d) * d  # the pieces of the partner's half
        parts.append(table(step + s, members, members[v ^ d], bounds[low], bounds[low + d] - bounds[low], low, True))
    return joined(parts)


def _doubling(k: int, members: Ints, bounds: Ints, step: int) -> Table:
    v, parts = np.arange(1 << k, dtype=np.int64), []
    for s in range(k):
        d = 1 << s
        low = (v // d) * d  # what the member has by now
        parts.append(table(step + s, members, members[v ^ d], bounds[low], bounds[low + d] - bounds[low], low))
    return joined(parts)


def all_reduce_transfers(n: int, S: int) -> Table:
    """Return fold, halving, doubling, and the result for those outside the core."""
    k, members, outside, inside = _core(n)
    bounds, lead = starts(S, 1 << k), int(outside.size > 0)
    return joined([
        table(np.zeros_like(outside), outside, inside, 0, S, 0, True),
        _halving(k, members, bounds, lead),
        _doubling(k, members, bounds, lead + k),
        table(np.full_like(outside, lead + 2 * k), inside, outside, 0, S, 0),
    ])  # fmt: skip


def _core_bounds(n: int, S: int) -> Ints:
    # The pieces of a core member and of the one folded into it lie side by side.
    _k, members, _, _ = _core(n)
    return np.concatenate([starts(S, n)[members], np.array([S], dtype=np.int64)])


def reduce_scatter_transfers(n: int, S: int) -> Table:
    """Return fold, halving, and the piece of each member outside the core."""
    k, members, outside, inside = _core(n)
    at, lead = starts(S, n), int(outside.size > 0)
    return joined([
        table(np.zeros_like(outside), outside, inside, 0, S, 0, True),
        _halving(k, members, _core_bounds(n, S), lead),
        table(np.full_like(outside, lead + k), inside, outside, at[outside], at[outside + 1] - at[outside], outside),
    ])  # fmt: skip


def all_gather_transfers(n: int, S: int) -> Table:
    """Return the pieces of those outside the core, doubling, and the result for them."""
    k, members, outside, inside = _core(n)
    at, lead = starts(S, n), int(outside.size > 0)
    return joined([
        table(np.zeros_like(outside), outside, inside, at[outside], at[outside + 1] - at[outside], outside),
        _doubling(k, members, _core_bounds(n, S), lead),
        table(np.full_like(outside, lead + k), inside, outside, 0, S, 0),
    ])  # fmt: skip


def _edges(make: object) -> object:
    return lambda n, S: summed(make(n, S))  # type: ignore[operator]


def _rounds(op: str) -> Rounds:
    def rounds(n: int, S: int) -> Iterator[Round]:
        k, members, outside, inside = _core(n)
        v, whole = np.arange(1 << k, dtype=np.int64), float(S)
        if outside.size:
            yield Round(1, whole / n if op == "all_gather" else whole, src=outside, dst=inside)
        if op != "all_gather":
            for s in range(k):
                yield Round(1, whole / (2 << s), src=members, dst=members[v ^ (1 << (k - 1 - s))])
        if op != "reduce_scatter":
            for s in range(k):
                yield Round(1, whole / (1 << (k - s)), src=members, dst=members[v ^ (1 << s)])
        if outside.size:
            yield Round(1, whole / n if op == "reduce_scatter" else whole, src=inside, dst=outside)

    return rounds


for _op, _make in (
    ("all_reduce", all_reduce_transfers), ("reduce_scatter", reduce_scatter_transfers),
    ("all_gather", all_gather_transfers),
):  # fmt: skip

    def _pairs(n: int, S: int, make: object = _make) -> Edges:
        return summed(make(n, S))  # type: ignore[operator]

    register(
        Algorithm(_op, "halving_doubling", _make, _pairs, _rounds(_op), lambda n: 3 * n * n.bit_length(), _SOURCE)
    )
