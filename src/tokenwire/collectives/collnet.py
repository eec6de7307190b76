"""CollNet with SHARP: the switches of the network add. Inside a node the GPUs add for themselves.

n members stand in N = n/g nodes of g = gcd(n, 8) consecutive ones. The j-th member of every node is the head of part j; the j-th
members of all nodes are under a tree of switches (their rail's), each of which adds what at most RADIX below it send, sends one
sum up and copies what comes down. Switches are members from n on: rail by rail, from the leaves to the root.

``collnet_direct``: everyone gives each head its part at once, and takes the result from it at once.
``collnet_chain`` (all_reduce): part j is added along the chain j+g-1, ... j+1, j, and handed back along it.

all_reduce: a head sends S/g up and takes S/g down, whatever the number of nodes, where a ring moves 2(N-1)/N · S/g on a rail.
reduce_scatter: S/g up, S/n down; all_gather: S/n up, S/g down. In a node (g-1)/g · S (all_reduce: twice).

Source: Graham et al. 2016, "Scalable Hierarchical Aggregation Protocol (SHArP)"; NVIDIA/nccl 2.30.7, src/device/all_reduce.h,
RunWorkColl for NCCL_ALGO_COLLNET_DIRECT and NCCL_ALGO_COLLNET_CHAIN; all_gather.h and reduce_scatter.h there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, Rounds, register
from tokenwire.collectives.hierarchical import domains_of
from tokenwire.collectives.tables import Ints, Table, joined, sizes, starts, table

RADIX = 32
"""What one switch adds: the nodes of a unit, whose NICs of a rail share a leaf. Source: NVIDIA, DGX SuperPOD Reference Architecture."""


class Way(NamedTuple):
    """One step: ``src`` sends to ``dst`` what it has of part ``rail``; of pieces ``owner`` alone where there are owners.

    All have one shape; ``owner`` is the member whose piece goes.
    """

    src: Ints
    dst: Ints
    rail: Ints
    adds: bool
    owner: Ints | None = None


def levels(N: int) -> list[int]:
    """Return the number of switches on each level of a rail's tree, leaves first, one at the end.

    >>> levels(4), levels(33), levels(2000)
    ([1], [2, 1], [63, 2, 1])
    """
    out = [-(-N // RADIX)]
    while out[-1] > 1:
        out.append(-(-out[-1] // RADIX))
    return out


def climbs(n: int) -> list[tuple[Ints, Ints]]:
    """Return who is below whom, level by level, shape (nodes or switches, rails) each: heads below leaves, leaves below the next."""
    g, N = domains_of(n)
    tall = levels(N)
    rail = n + sum(tall) * np.arange(g, dtype=np.int64)
    below, out, first = np.arange(n, dtype=np.int64).reshape(N, g), [], 0
    for many in tall:
        above = rail + first + np.arange(many, dtype=np.int64)[:, None]
        out.append((below, above[np.arange(below.shape[0]) // RADIX]))
        below, first = above, first + many
    return out if N > 1 else []


def _network(n: int, op: str) -> Iterator[Way]:
    """Yield the steps to the root and back: of reduce_scatter each comes down, of all_gather each goes up, only to its owner."""
    g, N = domains_of(n)
    ends = climbs(n)
    for level, up in [*((k, True) for k in range(len(ends))), *((k, False) for k in range(len(ends) - 1, -1, -1))]:
        below, above = ends[level]
        owner = None
        if op == ("all_gather" if up else "reduce_scatter"):
            owner = np.arange(n, dtype=np.int64).reshape(N, g)
            at = np.arange(N) // RADIX**level
            below, above = below[at], above[at]
        rail = np.broadcast_to(np.arange(g, dtype=np.int64), below.shape)
        src, dst = (below, above) if up else (above, below)
        yield Way(src, dst, rail, up and op != "all_gather", owner)


def _direct(n: int, out: bool) -> Iterator[Way]:
    """Yield the step from every member to the other heads of its node, or back."""
    g, _ = domains_of(n)
    if g > 1:
        member = np.repeat(np.arange(n, dtype=np.int64), g)
        head = member // g * g + np.tile(np.arange(g, dtype=np.int64), n)
        member, head = member[member != head], head[member != head]
        yield Way(head, member, head % g, False) if out else Way(member, head, head % g, True)


def _chain(n: int, out: bool) -> Iterator[Way]:
    """Yield the steps along every node's g chains, towards the heads or back."""
    g, _ = domains_of(n)
    node, rail = np.divmod(np.arange(n, dtype=np.int64), g)
    for k in range(g - 1) if out else range(g - 2, -1, -1):
        near, far = node * g + (rail + k) % g, node * g + (rail + k + 1) % g
        yield Way(near, far, rail, False) if out else Way(far, near, rail, True)


def _ways(op: str, inside: Callable[[int, bool], Iterator[Way]]) -> Callable[[int], Iterator[Way]]:
    def ways(n: int) -> Iterator[Way]:
        if op != "all_gather":
            yield from inside(n, False)
        yield from _network(n, op)
        if op != "reduce_scatter":
            yield from inside(n, True)

    return ways


def _pieces(op: str, n: int) -> Ints:
    """Return the pieces of each part, shape (g, pieces): one of all_reduce, else those of the rail's members."""
    g, _ = domains_of(n)
    return np.arange(g if op == "all_reduce" else n, dtype=np.int64).reshape(-1, g).T


def _transfers(op: str, ways: Callable[[int], Iterator[Way]]) -> Callable[[int, int], Table]:
    def transfers(n: int, S: int) -> Table:
        pieces = _pieces(op, n)
        at, size, parts = starts(S, pieces.size), sizes(S, pieces.size), []
        for step, way in enumerate(ways(n)):
            own = pieces[way.rail.reshape(-1)] if way.owner is None else way.owner.reshape(-1, 1)
            src, dst = (np.repeat(end.reshape(-1), own.shape[1]) for end in (way.src, way.dst))
            piece = own.reshape(-1)
            parts.append(table(np.full(src.size, step), src, dst, at[piece], size[piece], piece, way.adds))
        return joined(parts)

    return transfers


def _edges(op: str, ways: Callable[[int], Iterator[Way]]) -> Callable[[int, int], Edges]:
    def edges(n: int, S: int) -> Edges:
        pieces = _pieces(op, n)
        size = sizes(S, pieces.size)
        part, found = size[pieces].sum(axis=1), []
        for way in ways(n):
            carried = part[way.rail] if way.owner is None else size[way.owner]
            found.append([column.reshape(-1) for column in (way.src, way.dst, carried)])
        return Edges(*(np.concatenate([columns[k] for columns in found]) for k in range(3)))

    return edges


def _rounds(ways: Callable[[int], Iterator[Way]]) -> Rounds:
    def rounds(n: int, S: int) -> Iterator[Round]:
        g, N = domains_of(n)
        climbed = False
        for way in ways(n):
            if int(max(way.src.max(), way.dst.max())) < n:
                yield Round(1, S / g, src=way.src, dst=way.dst)
            elif not climbed:
                # Up and down at once, since a switch sends on what it has added; each level above the leaves costs its latency.
                yield Round(1, 0.0, switch_bytes=S / g)
                if len(levels(N)) > 1:
                    yield Round(len(levels(N)) - 1, 0.0)
                climbed = True

    return rounds


for _op, _name, _inside in (
    ("all_reduce", "collnet_direct", _direct), ("reduce_scatter", "collnet_direct", _direct),
    ("all_gather", "collnet_direct", _direct), ("all_reduce", "collnet_chain", _chain),
):  # fmt: skip
    _all = _ways(_op, _inside)
    register(
        Algorithm(
            _op, _name, _transfers(_op, _all), _edges(_op, _all), _rounds(_all),
            (lambda n: 24 * n) if _op == "all_reduce" else (lambda n: n * (n + 8)),
            "Graham et al. 2016 (SHArP); NVIDIA/nccl, src/device/all_reduce.h", in_network=True,
        )
    )  # fmt: skip
