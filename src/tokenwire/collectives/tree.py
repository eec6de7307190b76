"""Trees: few steps. The double binary tree for all_reduce, the binomial tree for broadcast and reduce.

Double binary tree: two trees over all members, each for half of the tensor, such that who is inside one is a leaf of the
other; the half goes up, added on the way, and down again. A member sends at most 2·S and, over both trees, 2(n-1)/n·S on
average. In one tree a member's place follows from the lowest bit set in its number; the other tree is the mirror image
(n even) or the same one member on (n odd).

Source: Sanders, Speck and Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"; NVIDIA/nccl,
src/graph/trees.cc, ncclGetBtree and ncclGetDtree (same trees). Binomial: Thakur, Rabenseifner and Gropp 2005, section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.tables import Ints, Table, joined, starts, table

_SOURCE = "Sanders, Speck and Träff 2009; NVIDIA/nccl, src/graph/trees.cc, ncclGetDtree"


def parents(n: int) -> tuple[Ints, Ints]:
    """Return each member's parent in the first and in the second tree, -1 at the root.

    >>> [tree.tolist() for tree in parents(4)]
    [[-1, 2, 0, 2], [1, 3, 1, -1]]
    """
    i = np.arange(n, dtype=np.int64)
    low = i & -i  # the lowest bit set
    up = (i ^ low) | (low << 1)
    first = np.where(i == 0, -1, np.where(up < n, up, i ^ low))
    if n % 2:
        second = np.where(np.roll(first, 1) < 0, -1, (np.roll(first, 1) + 1) % n)
    else:
        second = np.where(first[::-1] < 0, -1, n - 1 - first[::-1])
    return first, second


def depths(parent: Ints) -> Ints:
    """Return how far each member is from its root.

    >>> depths(parents(4)[0]).tolist()
    [0, 2, 1, 2]
    """
    depth, at = np.zeros(parent.size, dtype=np.int64), parent.copy()
    while np.any(at >= 0):
        depth += at >= 0
        at = np.where(at >= 0, parent[np.maximum(at, 0)], -1)
    return depth


def all_reduce_transfers(n: int, S: int) -> Table:
    """Return the way up and the way down of both trees; each level is a step."""
    trees = [(parent, depths(parent)) for parent in parents(n)]
    deepest = max(int(depth.max()) for _, depth in trees)
    at, parts = starts(S, 2), []
    for half, (parent, depth) in enumerate(trees):
        child = np.flatnonzero(parent >= 0)
        size = at[half + 1] - at[half]
        parts.append(table(deepest - depth[child], child, parent[child], at[half], size, half, True))
        parts.append(table(deepest + depth[child] - 1, parent[child], child, at[half], size, half))
    return joined(parts)


def all_reduce_edges(n: int, S: int) -> Edges:
    """Return half of the tensor along every edge of both trees, up and down."""
    at, src, dst, size = starts(S, 2), [], [], []
    for half, parent in enumerate(parents(n)):
        child = np.flatnonzero(parent >= 0)
        src += [child, parent[child]]
        dst += [parent[child], child]
        size += [np.full(2 * child.size, at[half + 1] - at[half])]
    pair = np.concatenate(src) * n + np.concatenate(dst)
    unique, place = np.unique(pair, return_inverse=True)
    total = np.zeros(unique.size, dtype=np.int64)
    np.add.at(total, place, np.concatenate(size))
    return Edges(unique // n, unique % n, total)


def rounds(n: int, S: int) -> Iterator[Round]:
    """Return the levels of both trees, up and down."""
    trees = [(parent, depths(parent)) for parent in parents(n)]
    deepest = max(int(depth.max()) for _, depth in trees)
    ways = [(np.flatnonzero(parent >= 0), parent, depth) for parent, depth in trees]
    for level in range(deepest, 0, -1):
        child = [(at[depth[at] == level], parent) for at, parent, depth in ways]
        src, dst = (np.concatenate(part) for part in ([c for c, _ in child], [p[c] for c, p in child]))
        yield Round(1, S / 2, src=src, dst=dst)
    for level in range(1, deepest + 1):
        child = [(at[depth[at] == level], parent) for at, parent, depth in ways]
        dst, src = (np.concatenate(part) for part in ([c for c, _ in child], [p[c] for c, p in child]))
        yield Round(1, S / 2, src=src, dst=dst)


def _binomial(n: int) -> list[tuple[Ints, Ints]]:
    """Return who hands on to whom, round by round: the largest distance first."""
    out, d = [], 1 << (n - 1).bit_length() - 1
    while d:
        src = np.arange(0, n - d, 2 * d, dtype=np.int64)
        out.append((src, src + d))
        d //= 2
    return out


def binomial_broadcast(n: int, S: int) -> Table:
    """Return the whole tensor handed on along the binomial tree of member 0."""
    return joined([table(np.full_like(src, s), src, dst, 0, S, 0) for s, (src, dst) in enumerate(_binomial(n))])


def binomial_reduce(n: int, S: int) -> Table:
    """Return the broadcast backwards, adding."""
    levels = _binomial(n)[::-1]
    return joined([table(np.full_like(src, s), dst, src, 0, S, 0, True) for s, (src, dst) in enumerate(levels)])


def _binomial_edges(n: int, S: int, back: bool) -> Edges:
    pairs = _binomial(n)
    src, dst = (np.concatenate([pair[end] for pair in pairs]) for end in (0, 1))
    order = np.argsort(dst if back else src, kind="stable")
    size = np.full(src.size, S, dtype=np.int64)
    return Edges(dst[order], src[order], size) if back else Edges(src[order], dst[order], size)


def _binomial_rounds(n: int, S: int) -> Iterator[Round]:
    for src, dst in _binomial(n):
        yield Round(1, float(S), src=src, dst=dst)


register(Algorithm("all_reduce", "tree", all_reduce_transfers, all_reduce_edges, rounds, lambda n: 4 * n, _SOURCE))
_THAKUR = "Thakur, Rabenseifner and Gropp 2005, section 4.3"
register(
    Algorithm(
        "broadcast", "binomial", binomial_broadcast, lambda n, S: _binomial_edges(n, S, False), _binomial_rounds,
        lambda n: n, _THAKUR,
    )
)  # fmt: skip
register(
    Algorithm(
        "reduce", "binomial", binomial_reduce, lambda n, S: _binomial_edges(n, S, True), _binomial_rounds, lambda n: n,
        _THAKUR,
    )
)  # fmt: skip
