"""all_to_allv: every member gives each other one as many bytes as a matrix says (row = sender, column = receiver).

The diagonal stays at its member: it has a place in the tensor, and is not sent. No schedule is faster than the member that
sends or receives most over all its links (the worst *outcast* and *incast*). algbw = mean of a row / t and busbw = mean of what
is sent / t, so that a matrix whose pieces are alike has the figures of all_to_all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenwire.collectives.algorithm import MOST_BYTES, MOST_TRANSFERS, UNEVEN, Edges, algorithm
from tokenwire.collectives.cost import Cost, cost_of_rounds
from tokenwire.collectives.exchange import EXCHANGES, Exchange
from tokenwire.collectives.tables import Ints, Table
from tokenwire.collectives.topology import added
from tokenwire.errors import InputError


@dataclass(frozen=True)
class Extreme:
    """The member ``rank`` that sends (or receives) most: ``bytes``, and ``imbalance``: that over the mean of all."""

    rank: int
    bytes: int
    imbalance: float


def check_matrix(matrix: Ints) -> None:
    """Raise ``InputError`` for what no exchange can be: not square, negative, more than 2^60 B or more transfers than are written out."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"a matrix of {' x '.join(map(str, matrix.shape))}", rule="must be square: a row and a column for each rank")
    if 2 * matrix.size > MOST_TRANSFERS:
        raise InputError(f"a matrix of {matrix.shape[0]:,} ranks", rule=f"is more than {MOST_TRANSFERS:,} transfers", nearest="fewer ranks")
    if matrix.min() < 0:
        i, j = np.unravel_index(int(matrix.argmin()), matrix.shape)
        raise InputError(f"{matrix.min():,} B from rank {i} to {j}", rule="must be zero or more")
    if matrix.sum(dtype=np.float64) > MOST_BYTES:
        raise InputError(f"{matrix.sum(dtype=np.float64):.3g} B in all", rule="an exchange has 0 to 2^60 B")


def exchange_named(name: str | None) -> Exchange:
    """Return an exchange by name (None: the usual one). Raises ``InputError`` with the known names."""
    return EXCHANGES[algorithm(UNEVEN, name).name]


def transfers_of(name: str | None, matrix: Ints) -> Table:
    """Return every transfer of one exchange (``tables.TRANSFER``), steps in order; those of no bytes are left out.

    >>> import numpy as np
    >>> transfers_of("pairwise", np.array([[9, 2], [0, 9]]))[["step", "src", "dst", "offset", "bytes", "to"]].tolist()
    [(0, 0, 1, 9, 2, 0)]
    """
    check_matrix(matrix)
    out = exchange_named(name).transfers(matrix)
    return out[out["bytes"] > 0]


def edges_of(name: str | None, matrix: Ints) -> Edges:
    """Return what each pair of members exchanges; pairs without bytes may be in it."""
    check_matrix(matrix)
    return exchange_named(name).edges(matrix)


def extremes(matrix: Ints) -> tuple[Extreme, Extreme]:
    """Return the member that sends most and the one that receives most.

    >>> import numpy as np
    >>> extremes(np.array([[0, 4], [0, 7]]))
    (Extreme(rank=0, bytes=4, imbalance=2.0), Extreme(rank=1, bytes=4, imbalance=2.0))
    """
    sends, takes = (matrix.sum(axis=axis) - matrix.diagonal() for axis in (1, 0))
    return _extreme(sends), _extreme(takes)


def _extreme(sums: Ints) -> Extreme:
    return Extreme(int(sums.argmax()), int(sums.max()), float(sums.max() / sums.mean()) if sums.any() else 1.0)


def cost_of(
    name: str | None, matrix: Ints, *, rate: float, latency: float = 0.0, chunks: int = 1, topology: str = "switch"
) -> Cost:  # fmt: skip
    """Return the time of one exchange on links of ``rate`` bytes/s and ``latency`` s; its ``size_bytes`` are the mean of a row.

    >>> import numpy as np
    >>> cost_of("pairwise", np.array([[0, 100, 0], [0, 0, 0], [0, 300, 0]]), rate=100.0).seconds    # 2>1 in step 1, 0>1 in step 0
    4.0
    """
    check_matrix(matrix)
    entry, n = exchange_named(name), matrix.shape[0]
    e = entry.edges(matrix)
    sends = matrix.sum(axis=1) - matrix.diagonal()
    return cost_of_rounds(
        algorithm(UNEVEN, entry.name), entry.rounds(matrix), n, round(int(matrix.sum()) / n), sent=int(added(e.src, e.bytes).max(initial=0)),
        must=float(max(one.bytes for one in extremes(matrix))), counted=float(sends.mean()), rate=rate, latency=latency,
        chunks=chunks, topology=topology,
    )  # fmt: skip
