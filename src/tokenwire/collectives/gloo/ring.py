"""Gloo's rings: all_reduce, reduce and all_gather.

Symbols: n members, S bytes, e bytes an element, M = 1 MiB the largest segment (a multiple of e), N segments of B bytes, k = N/n
segments a chunk; chunk c is bytes c·k·B to (c+1)·k·B of the tensor, so that the last chunks may be short or empty. Empty
segments are not sent. Source: pytorch/gloo, gloo/allreduce.cc (ring), gloo/reduce.cc, gloo/allgather.cc.
"""

from __future__ import annotations

import numpy as np

from tokenwire.collectives.gloo.pairs import pairs
from tokenwire.collectives.tables import Ints, Table

SEGMENT_BYTES = 1 << 20
"""gloo/allreduce.h and gloo/reduce.h, kMaxSegmentSize."""


def segments(n: int, size_bytes: int, item: int = 4) -> tuple[int, int]:
    """Return into how many segments an all_reduce is cut, and the bytes of one: N and B.

    N = max(ceil(S/M), 2n) rounded up to a multiple of n; B = ceil(S/N) rounded up to a multiple of e.

    >>> segments(4, 4_000_000), segments(4, 100 * 2**20)
    ((8, 500000), (100, 1048576))
    """
    largest = item * max(1, SEGMENT_BYTES // item)
    count = _up(max(-(-size_bytes // largest), 2 * n), n)
    return count, _up(-(-size_bytes // count), item)


def all_reduce(n: int, S: int, item: int) -> Table:
    """Return who sends what: to the member before, first all chunks but the own, then all but the one before."""
    if S == 0:
        return pairs([], [], [], [])
    count, B = segments(n, S, item)
    size, parts = _chunks(n, S, count // n, B)
    r = np.arange(n, dtype=np.int64)
    before = (r - 1) % n
    payload = 2 * S - size - size[before]
    return pairs(r, before, payload, 2 * parts.sum() - parts - parts[before])


def reduce(n: int, S: int, item: int, root: int) -> Table:
    """Return who sends what: round the ring all but the last two segments of the own chunk, then each chunk to the root.

    With more than two segments a chunk the first of the own ones go round too: that is what gloo does.
    """
    if S == 0:
        return pairs([], [], [], [])
    largest = item * (SEGMENT_BYTES // item)
    B = _up(min(-(-S // (2 * n)), largest), item)
    count = _up(max(-(-S // B), 2 * n), n)
    k = count // n
    size, parts = _chunks(n, S, k, B)
    r = np.arange(n, dtype=np.int64)
    kept = [np.clip(S - ((r + 1) * k - last) * B, 0, B) for last in (1, 2)]
    around = pairs(r, (r - 1) % n, S - kept[0] - kept[1], parts.sum() - (kept[0] > 0) - (kept[1] > 0))
    other = r[r != root]
    return np.concatenate([around, pairs(other, root, size[other], size[other] > 0)])


def all_gather(n: int, S: int) -> Table:
    """Return who sends what: to the member after, n-1 shards in two halves each, also where a half is empty."""
    if S == 0:
        return pairs([], [], [], [])
    r = np.arange(n, dtype=np.int64)
    return pairs(r, (r + 1) % n, (n - 1) * (S // n), 2 * (n - 1))


def _chunks(n: int, S: int, k: int, B: int) -> tuple[Ints, Ints]:
    """Return the bytes of each chunk and how many segments of it are not empty."""
    size = np.clip(S - np.arange(n, dtype=np.int64) * k * B, 0, k * B)
    return size, -(-size // B)


def _up(value: int, to: int) -> int:
    return -(-value // to) * to
