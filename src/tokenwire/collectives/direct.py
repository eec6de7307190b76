"""Send and receive: one message from member 0 to member 1. A receive is the other end of a send and sends nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, register
from tokenwire.collectives.tables import Table, table


def send_transfers(n: int, S: int) -> Table:
    """Return the one message."""
    return table([0], 0, 1, 0, S, 0)


def send_edges(n: int, S: int) -> Edges:
    """Return the one message."""
    return Edges(*(np.array([value], dtype=np.int64) for value in (0, 1, S)))


def recv_transfers(n: int, S: int) -> Table:
    """Return no transfer: the bytes are those of the send."""
    return send_transfers(n, S)[:0]


def recv_edges(n: int, S: int) -> Edges:
    """Return no edge: the bytes are those of the send."""
    return Edges(*(column[:0] for column in send_edges(n, S)))


def _rounds(n: int, S: int) -> Iterator[Round]:
    e = send_edges(n, S)
    yield Round(1, float(S), src=e.src, dst=e.dst)


register(Algorithm("send", "direct", send_transfers, send_edges, _rounds, lambda n: 1))
register(Algorithm("recv", "direct", recv_transfers, recv_edges, _rounds, lambda n: 0))
