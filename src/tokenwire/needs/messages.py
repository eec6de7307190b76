"""The messages of a step: of one call by one rank, how many, how large, in how many packets.

Symbols: S bytes of the full tensor of one call, n ranks of the group. A ring passes pieces of S/n: 2(n-1) of them for
all_reduce, n-1 for all_gather and reduce_scatter; a pairwise all_to_all sends n-1 pieces of S/n; a broadcast hands on the
whole tensor; a send is one message. Each hop is taken as one message, which a library may cut further into its chunks.

Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, which derives the same volumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenwire.wire import WireConfig, framings

if TYPE_CHECKING:
    import polars as pl

KEY = ("op", "group", "phase", "parallelism")
"""Columns by which a transfer is told to belong to a row of the step."""


def message_size(op: str, n: int, S: int) -> int:
    """Return the bytes of the largest message of one call.

    >>> message_size("all_reduce", 4, 1000), message_size("send", 2, 1000), message_size("barrier", 8, 0)
    (250, 1000, 0)
    """
    if op in ("send", "recv", "broadcast", "reduce"):
        return S
    return -(-S // n) if n else 0


def messages_sent(op: str, n: int) -> int:
    """Return how many messages a rank sends in one call, if it is one that sends (``sending_share``).

    >>> messages_sent("all_reduce", 4), messages_sent("all_gather", 4), messages_sent("recv", 2)
    (6, 3, 0)
    """
    return {"all_reduce": 2 * (n - 1), "send": 1, "recv": 0, "broadcast": 1, "reduce": 1}.get(op, n - 1)


def sending_share(op: str, n: int) -> float:
    """Return which share of the ranks sends: the last one of a broadcast's or reduce's chain has nobody to send to.

    >>> sending_share("broadcast", 4), sending_share("all_reduce", 4)
    (0.75, 1.0)
    """
    return (n - 1) / n if op in ("broadcast", "reduce") and n else 1.0


def messages(operations: pl.DataFrame, wire: WireConfig) -> pl.DataFrame:
    """Return the rows of the step that send something, with ``message`` (B), ``messages``, ``packets``, ``wire_bytes``.

    These are of one sending rank in one step, as if all went over the network; ``senders`` is the share of ranks that
    send. Calls of the phase ``setup`` are left out: they are not of a step.
    """
    import polars as pl

    sending = operations.filter((pl.col("op") != "recv") & (pl.col("phase") != "setup"))
    calls = list(zip(sending["op"], sending["group_size"], sending["bytes"], strict=True))
    size = np.array([message_size(op, n, S) for op, n, S in calls], dtype=np.int64)
    count = np.array([messages_sent(op, n) for op, n, _ in calls], dtype=np.int64) * sending["count"].to_numpy()
    framed = framings(size, wire)
    return sending.with_columns(
        message=pl.Series(size, dtype=pl.Int64),
        messages=pl.Series(count, dtype=pl.Int64),
        packets=pl.Series(count * framed["packets"], dtype=pl.Int64),
        wire_bytes=pl.Series(count * framed["wire_bytes"], dtype=pl.Int64),
        senders=pl.Series([sending_share(op, n) for op, n, _ in calls], dtype=pl.Float64),
    )


def framing_by_key(sent: pl.DataFrame) -> pl.DataFrame:
    """Return ``packets`` and ``wire_bytes`` per payload byte for each kind of transfer (``KEY``), over all stages."""
    import polars as pl

    payload = pl.col("message") * pl.col("messages")
    return (
        sent.group_by(KEY)
        .agg(payload.sum().alias("payload"), pl.col("packets").sum(), pl.col("wire_bytes").sum())
        .filter(pl.col("payload") > 0)
        .select(
            *KEY, (pl.col("packets") / pl.col("payload")).alias("packets_per_byte"),
            (pl.col("wire_bytes") / pl.col("payload")).alias("wire_per_byte"),
        )
    )  # fmt: skip
