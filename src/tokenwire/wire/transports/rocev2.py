"""RoCEv2: InfiniBand's transport over UDP/IP (InfiniBand Architecture Specification, annex A17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.wire import headers
from tokenwire.wire.transports import ethernet, rdma
from tokenwire.wire.transports.transport import Layer, Transport, register

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig
    from tokenwire.wire.connection import Connection
    from tokenwire.wire.packet import Packet, Place

UDP_PORT = 4791
"""Destination port of RoCEv2 (IANA)."""

LINUX_RESERVES = 96
"""Bytes that Linux takes off a port's MTU before it looks for the path MTU: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.

Source: Linux, include/rdma/ib_addr.h (iboe_get_mtu) and ib_pack.h.
"""
TRAFFIC_CLASS = 26 << 2 | 2
"""DSCP 26 and ECN 10 (ECT(0), switches may mark): the lossless class of RoCE as NVIDIA's switches and NICs are set up.

Source: NVIDIA, Cumulus Linux, RoCE (DSCP 26 in traffic class 3; congestion notifications in DSCP 48).
"""


def before(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers before the payload."""
    return (*ethernet.below(config), Layer(headers.UDP), Layer(headers.BTH), *rdma.extended(config))


def after(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers after the payload."""
    return (Layer(headers.ICRC), *ethernet.end())


def answer(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers of an acknowledgement."""
    return (
        *ethernet.below(config),
        Layer(headers.UDP),
        Layer(headers.BTH),
        Layer(headers.AETH),
        *after(config),
    )


def packet(config: WireConfig, connection: Connection, place: Place, payload: bytes) -> Packet:
    """Return one packet of a message.

    Over IPv4 the UDP checksum is 0 (not computed): the ICRC covers all that it would, and to fill in a sum that stands
    before the payload a NIC would need the whole packet before it could send the first byte. IPv6 has no checksum of
    its own and asks for UDP's (RFC 8200, section 8.1), so there it is computed; the ICRC masks it.
    """
    from tokenwire.wire.build import over_ethernet, rocev2_layers

    return over_ethernet(config, connection, place, rocev2_layers(config, connection, place, payload))


ROCEV2 = register(
    Transport(
        name="rocev2", title="RoCEv2", usual_mtu=4096, mtus=rdma.PATH_MTUS, before=before, after=after,
        payload=lambda config: config.mtu, packet=packet, align=4, minimum_frame=ethernet.MINIMUM_FRAME,
        answer=answer, port_reserve=LINUX_RESERVES, usual_traffic_class=TRAFFIC_CLASS,
        source="InfiniBand Architecture Specification, volume 1, annex A17 (RoCEv2)",
    )
)  # fmt: skip
