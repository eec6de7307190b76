"""PAT, parallel aggregated trees: all_gather and reduce_scatter in ceil(log2 n) steps, the farthest first, for any n.

Every member is the root of a binomial tree for its own piece. Seen from the root the members are 0 to n-1; with distance
d = 2^k, the largest first, each r that is a multiple of 2d hands the piece on to r + d, where there is one. All trees are the
same but turned, so in a step every member sends to the one d places on, all its pieces of that step together. The farthest
step carries one piece, the nearest about n/2: few bytes go far (Bruck's order sends most of them farthest). reduce_scatter is
the same backwards, adding. NCCL cuts a step that does not fit its buffers into several: the same bytes on the same edges.

Source: Jeaugey 2025, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale" (arXiv 2506.20252);
NVIDIA/nccl 2.30.7, src/include/collectives.h, PatAGAlgorithm and PatRSAlgorithm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.tables import Ints, Table, joined, sizes, starts, table


def distances(n: int) -> list[int]:
    """Return how far each step reaches, the farthest first.

    >>> distances(8), distances(5), distances(2)
    ([4, 2, 1], [4, 2, 1], [1])
    """
    return [1 << k for k in range((n - 1).bit_length() - 1, -1, -1)]


def pieces(n: int, d: int) -> int:
    """Return how many pieces a member sends in the step of distance d: the multiples r of 2d with r + d < n.

    >>> [pieces(8, d) for d in distances(8)], [pieces(5, d) for d in distances(5)]
    ([1, 2, 4], [1, 1, 2])
    """
    return (n - d + 2 * d - 1) // (2 * d)


def _step(n: int, d: int) -> tuple[Ints, Ints, Ints]:
    # Who hands on which piece to whom.
    at = np.repeat(2 * d * np.arange(pieces(n, d), dtype=np.int64), n)
    i = np.tile(np.arange(n, dtype=np.int64), pieces(n, d))
    return i, (i + d) % n, (i - at) % n


def all_gather_transfers(n: int, S: int) -> Table:
    """Return every piece handed down its tree."""
    at, size, parts = starts(S, n), sizes(S, n), []
    for step, d in enumerate(distances(n)):
        i, j, piece = _step(n, d)
        parts.append(table(np.full(i.size, step), i, j, at[piece], size[piece], piece))
    return joined(parts)


def reduce_scatter_transfers(n: int, S: int) -> Table:
    """Return every piece's sums handed up its tree."""
    at, size, parts = starts(S, n), sizes(S, n), []
    for step, d in enumerate(distances(n)[::-1]):
        i, j, piece = _step(n, d)
        parts.append(table(np.full(i.size, step), j, i, at[piece], size[piece], piece, True))
    return joined(parts)


def _multiples(low: Ints, high: Ints, step: int, most: int) -> Ints:
    """Return how many of 0, step, 2·step ... most lie in [low, high]."""
    last: Ints = np.minimum(high, most) // step
    first: Ints = -(-np.maximum(low, 0) // step)
    many: Ints = np.maximum(last - first + 1, 0)
    return many


def _sent(n: int, S: int, d: int) -> Ints:
    """Return what each member sends forward in the step of distance d: pieces (i - r) mod n, of which those below S mod n are larger."""
    i, larger, many = np.arange(n, dtype=np.int64), S % n, pieces(n, d)
    last = 2 * d * (many - 1)
    # r <= i takes piece i - r, below `larger` where r > i - larger; r > i takes i - r + n.
    more = _multiples(i - larger + 1, i, 2 * d, last)
    more += _multiples(np.maximum(i + n - larger, i) + 1, i + n, 2 * d, last)
    return many * (S // n) + more


def all_gather_edges(n: int, S: int) -> Edges:
    """Return the bytes to the member d places on, for every distance d."""
    i = np.arange(n, dtype=np.int64)
    ways = distances(n)
    return Edges(
        np.tile(i, len(ways)), np.concatenate([(i + d) % n for d in ways]), np.concatenate([_sent(n, S, d) for d in ways])
    )


def reduce_scatter_edges(n: int, S: int) -> Edges:
    """Return the edges of the all_gather, turned round."""
    src, dst, size = all_gather_edges(n, S)
    return Edges(dst, src, size)


def _gather_rounds(n: int, S: int) -> Iterator[Round]:
    for d in distances(n):
        yield Round(1, pieces(n, d) * S / n, (d,))


def _scatter_rounds(n: int, S: int) -> Iterator[Round]:
    for d in distances(n)[::-1]:
        yield Round(1, pieces(n, d) * S / n, (-d,))


_SOURCE = "Jeaugey 2025, arXiv 2506.20252"
register(
    Algorithm("all_gather", "pat", all_gather_transfers, all_gather_edges, _gather_rounds, lambda n: n * (n - 1), _SOURCE)
)
register(
    Algorithm(
        "reduce_scatter", "pat", reduce_scatter_transfers, reduce_scatter_edges, _scatter_rounds, lambda n: n * (n - 1), _SOURCE
    )
)
