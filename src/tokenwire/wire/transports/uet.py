"""Ultra Ethernet Transport: packet delivery (PDS) and semantics (SES) over UDP, reliable unordered delivery.

Every packet carries the whole standard semantic header, so that it can be placed in memory whatever its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.wire import headers
from tokenwire.wire.transports import ethernet
from tokenwire.wire.transports.transport import Layer, Transport, register

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig
    from tokenwire.wire.connection import Connection
    from tokenwire.wire.packet import Packet, Place

UDP_PORT = 4793
"""Destination port of UET over UDP (IANA)."""


def before(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers before the payload."""
    return (*ethernet.below(config), Layer(headers.UDP), Layer(headers.UET_PDS), Layer(headers.UET_SES))


def after(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers after the payload."""
    return ethernet.end()


def packet(config: WireConfig, connection: Connection, place: Place, payload: bytes) -> Packet:
    """Return one packet of a message."""
    from tokenwire.wire.build import over_ethernet, uet_layers

    return over_ethernet(config, connection, place, uet_layers(config, connection, place, payload))


UET = register(
    Transport(
        name="uet", title="Ultra Ethernet", usual_mtu=4096, mtus=(1024, 2048, 4096, 8192), before=before, after=after,
        payload=lambda config: config.mtu, packet=packet, minimum_frame=ethernet.MINIMUM_FRAME,
        source="Ultra Ethernet Specification 1.0, chapters 3.4 (SES) and 3.5 (PDS)",
    )
)  # fmt: skip
