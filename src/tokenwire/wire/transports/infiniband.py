"""InfiniBand: local (and global) routes below the same transport headers as RoCEv2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.wire import headers
from tokenwire.wire.transports import rdma
from tokenwire.wire.transports.transport import Layer, Transport, register

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig
    from tokenwire.wire.connection import Connection
    from tokenwire.wire.packet import Packet, Place


def before(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers before the payload; the GRH only where packets are routed between subnets."""
    route = (Layer(headers.GRH),) if config.grh else ()
    start = Layer(headers.START, inside=False)
    return (start, Layer(headers.LRH), *route, Layer(headers.BTH), *rdma.extended(config))


def after(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers after the payload."""
    return (Layer(headers.ICRC), Layer(headers.VCRC), Layer(headers.END, inside=False))


def answer(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers of an acknowledgement."""
    route = tuple(
        layer
        for layer in before(config)
        if layer.header in (headers.START, headers.LRH, headers.GRH, headers.BTH)
    )
    return (*route, Layer(headers.AETH), *after(config))


def packet(config: WireConfig, connection: Connection, place: Place, payload: bytes) -> Packet:
    """Return one packet of a message."""
    from tokenwire.wire.build import infiniband_packet

    return infiniband_packet(config, connection, place, payload)


INFINIBAND = register(
    Transport(
        name="infiniband", title="InfiniBand", usual_mtu=4096, mtus=rdma.PATH_MTUS, before=before, after=after,
        payload=lambda config: config.mtu, packet=packet, align=4, answer=answer,
        source="InfiniBand Architecture Specification, volume 1, chapters 7 to 9",
    )
)  # fmt: skip
