"""Barrier by dissemination: ceil(log2 n) rounds of empty messages, in round k to the member 2^k places on.

Source: Hensgen, Finkel and Manber 1988, "Two algorithms for barrier synchronization".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.tables import Table, joined, table


def barrier_transfers(n: int, S: int) -> Table:
    """Return the empty messages."""
    i = np.arange(n, dtype=np.int64)
    rounds = (n - 1).bit_length()
    return joined([table(np.full(n, k), i, (i + (1 << k)) % n, 0, 0, k) for k in range(rounds)])


def barrier_edges(n: int, S: int) -> Edges:
    """Return the pairs that talk; no bytes of payload."""
    part = barrier_transfers(n, S)
    pair = np.unique(part["src"].astype(np.int64) * n + part["dst"])
    return Edges(pair // n, pair % n, np.zeros(pair.size, dtype=np.int64))


def _rounds(n: int, S: int) -> Iterator[Round]:
    for k in range((n - 1).bit_length()):
        yield Round(1, 0.0, ((1 << k) % n,))


register(
    Algorithm(
        "barrier", "dissemination", barrier_transfers, barrier_edges, _rounds, lambda n: n * n.bit_length(),
        "Hensgen, Finkel and Manber 1988",
    )
)  # fmt: skip
