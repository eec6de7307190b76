"""all_to_all: every member gives each other one its piece of the tensor. Piece j of member i becomes piece i of member j.

``pairwise``: n-1 steps, in step t member i sends to i+t. ``linear``: everything at once.
With sizes that n does not divide, member j gets n pieces of its own size: what it has afterwards is n·sizes(S, n)[j] long.

Source: Thakur, Rabenseifner and Gropp 2005, section 4.4 (pairwise exchange); NVIDIA/nccl, grouped ncclSend and ncclRecv (linear).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.tables import Table, sizes, starts, table


def pairwise_transfers(n: int, S: int) -> Table:
    """Return n-1 steps of n transfers."""
    t = np.repeat(np.arange(1, n, dtype=np.int64), n)
    i = np.tile(np.arange(n, dtype=np.int64), n - 1)
    j = (i + t) % n
    at, size = starts(S, n), sizes(S, n)
    return table(t - 1, i, j, at[j], size[j], j, to=i * size[j])


def linear_transfers(n: int, S: int) -> Table:
    """Return all transfers in one step."""
    out = pairwise_transfers(n, S)
    out["step"] = 0
    return out


def all_to_all_edges(n: int, S: int) -> Edges:
    """Return every pair of members, with the receiver's piece."""
    i = np.repeat(np.arange(n, dtype=np.int64), n - 1)
    j = np.tile(np.arange(n - 1, dtype=np.int64), n)
    j += j >= i
    return Edges(i, j, sizes(S, n)[j])


def _pairwise_rounds(n: int, S: int) -> Iterator[Round]:
    for t in range(1, n):
        yield Round(1, S / n, (t,))


def _linear_rounds(n: int, S: int) -> Iterator[Round]:
    yield Round(1, S / n, range(1, n))


register(
    Algorithm(
        "all_to_all", "pairwise", pairwise_transfers, all_to_all_edges, _pairwise_rounds, lambda n: n * (n - 1),
        "Thakur, Rabenseifner and Gropp 2005, section 4.4",
    )
)  # fmt: skip
register(
    Algorithm(
        "all_to_all", "linear", linear_transfers, all_to_all_edges, _linear_rounds, lambda n: n * (n - 1),
        "NVIDIA/nccl, grouped ncclSend and ncclRecv",
    )
)  # fmt: skip
