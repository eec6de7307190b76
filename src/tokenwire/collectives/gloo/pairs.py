"""Messages by pair of members, and what they come to on a connection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.collectives.tables import Table

PAIRS = np.dtype([("src", np.int32), ("dst", np.int32), ("payload", np.int64), ("messages", np.int64)])
"""Member ``src`` sends ``payload`` bytes of tensors in ``messages`` messages to member ``dst``."""

HEADER_BYTES = 48
"""gloo/transport/tcp/pair.h, Op: six words of eight bytes before the data, to announce a message, and to grant it."""
MESSAGE_BYTES = 3 * HEADER_BYTES
"""Bytes of gloo's own for one message, both ways together."""


def pairs(src: npt.ArrayLike, dst: npt.ArrayLike, payload: npt.ArrayLike, messages: npt.ArrayLike) -> Table:
    """Return the columns as one ``PAIRS`` array, pairs without a message left out; scalars are repeated."""
    columns = np.broadcast_arrays(src, dst, payload, messages)
    out = np.zeros(columns[0].size, dtype=PAIRS)
    for name, column in zip(PAIRS.names or (), columns, strict=True):
        out[name] = column.reshape(-1)
    return out[out["messages"] > 0]


def summed(table: Table) -> Table:
    """Return the table with one row a pair, ordered by sender and receiver."""
    if not table.size:
        return table
    members = int(max(table["src"].max(), table["dst"].max())) + 1
    pair, place = np.unique(table["src"].astype(np.int64) * members + table["dst"], return_inverse=True)
    out = np.zeros(pair.size, dtype=PAIRS)
    out["src"], out["dst"] = pair // members, pair % members
    for name in ("payload", "messages"):
        np.add.at(out[name], place, table[name])
    return out


def on_connections(table: Table) -> dict[tuple[int, int], int]:
    """Return the bytes that TCP carries from each member to each other: payload, headers, announcements and grants.

    >>> on_connections(pairs([0], [1], [1000], [2]))            # 1000 + 2·2·48 one way, 2·48 back
    {(0, 1): 1192, (1, 0): 96}
    """
    out: dict[tuple[int, int], int] = {}
    rows: list[Any] = table.tolist()
    for src, dst, payload, count in rows:
        out[src, dst] = out.get((src, dst), 0) + payload + 2 * HEADER_BYTES * count
        out[dst, src] = out.get((dst, src), 0) + HEADER_BYTES * count
    return out
