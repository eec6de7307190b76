"""How much of the wire is payload: by transport, MTU and size of the message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import unknown
from tokenwire.wire.config import WireConfig
from tokenwire.wire.framing import framings
from tokenwire.wire.transports import TRANSPORTS

if TYPE_CHECKING:
    import polars as pl

SIZES = (64, 1024, 4096, 65_536, 2**20, 2**30)
"""Sizes of messages, in bytes, where nothing else is asked for: from a barrier's word to a bucket of gradients."""


@dataclass(frozen=True)
class Efficiency:
    """One cell of the table. ``efficiency`` is payload by wire bytes, ``packets`` and bytes are of one message."""

    transport: str
    ip_version: int | None
    mtu: int
    message_bytes: int
    packets: int
    wire_bytes: int
    efficiency: float

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return dict(vars(self))


def usual_mtus(transport: str) -> tuple[int, ...]:
    """Return the MTUs of a transport that the table shows: all that there are, or the common ones of TCP.

    Raises ``InputError`` for an unknown transport.

    >>> usual_mtus("tcp"), usual_mtus("rocev2")
    ((1500, 4096, 9000), (256, 512, 1024, 2048, 4096))
    """
    if transport not in TRANSPORTS:
        raise unknown("transport", transport, TRANSPORTS)
    known = TRANSPORTS[transport].mtus
    return (1500, 4096, 9000) if isinstance(known, range) else known


def efficiencies(configs: Sequence[WireConfig], sizes: Sequence[int] = SIZES) -> list[Efficiency]:
    """Return the efficiency of every size of message under every configuration, in that order.

    >>> [round(row.efficiency, 4) for row in efficiencies([WireConfig()], [64, 4096, 2**30])]
    [0.3951, 0.9766, 0.9804]
    """
    out = []
    for config in configs:
        rows = framings(np.array(sizes, dtype=np.int64), config)
        version = None if config.transport == "infiniband" else config.ip_version
        for size, row in zip(sizes, rows, strict=True):
            wire = int(row["wire_bytes"])
            share = size / wire if wire else 0.0
            out.append(
                Efficiency(config.transport, version, config.mtu, size, int(row["packets"]), wire, share)
            )
    return out


def efficiency_table(rows: Sequence[Efficiency]) -> pl.DataFrame:
    """Return the efficiencies as a table, a row each."""
    import polars as pl

    return pl.DataFrame([row.as_dict() for row in rows])


def common_configs(
    transports: Sequence[str] | None = None, mtus: Sequence[int] | None = None
) -> list[WireConfig]:
    """Return configurations to compare: the transports (all, where none is named) with their usual or the given MTUs."""
    names = list(transports) if transports else list(TRANSPORTS)
    return [
        WireConfig(transport=name, mtu=mtu, ip_version=version)
        for name in names
        for version in ((4, 6) if name == "tcp" and not transports else (4,))
        for mtu in (mtus or usual_mtus(name))
    ]
