"""Gloo's calls in which each piece goes straight to its receiver: all_to_all, gather, scatter, send, barrier.

Pieces without bytes are messages too. Source: pytorch/gloo, gloo/alltoall.cc, alltoallv.cc, gather.cc, scatter.cc, barrier.cc.
"""

from __future__ import annotations

import numpy as np

from tokenwire.collectives.gloo.pairs import pairs
from tokenwire.collectives.tables import Ints, Table


def all_to_all(n: int, sizes: Ints) -> Table:
    """Return who sends what; ``sizes[i, j]`` are the bytes from i to j."""
    src, dst = np.nonzero(~np.eye(n, dtype=bool))
    return pairs(src, dst, sizes[src, dst], 1)


def gather(n: int, S: int, root: int) -> Table:
    """Return who sends what: all but the root their n-th of S to the root."""
    other = _others(n, root)
    return pairs(other, root, S // n, 1)


def scatter(n: int, S: int, root: int) -> Table:
    """Return who sends what: the root to all others their n-th of S."""
    other = _others(n, root)
    return pairs(root, other, S // n, 1)


def send(S: int) -> Table:
    """Return the one message from member 0 to member 1."""
    return pairs([0], [1], [S], [1])


def barrier(n: int) -> Table:
    """Return who sends what: an empty message to the member 1, 2, 4 ... places on, in ceil(log2 n) rounds."""
    d = 1 << np.arange((n - 1).bit_length(), dtype=np.int64)
    src = np.repeat(np.arange(n, dtype=np.int64), d.size)
    return pairs(src, (src + np.tile(d, n)) % n, 0, 1)


def _others(n: int, root: int) -> Ints:
    members = np.arange(n, dtype=np.int64)
    rest: Ints = members[members != root]
    return rest
