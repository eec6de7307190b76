"""TCP: a message is a stretch of a byte stream, cut into segments that fit the IP MTU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.wire import headers
from tokenwire.wire.transports import ethernet
from tokenwire.wire.transports.transport import Layer, Transport, register

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig
    from tokenwire.wire.connection import Connection
    from tokenwire.wire.packet import Packet, Place


def before(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers before the payload."""
    options = (Layer(headers.TCP_TIMESTAMPS),) if config.timestamps else ()
    return (*ethernet.below(config), Layer(headers.TCP), *options)


def after(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers after the payload."""
    return ethernet.end()


def answer(config: WireConfig) -> tuple[Layer, ...]:
    """Return the layers of an acknowledgement: a segment without payload."""
    return (*before(config), *after(config))


def payload(config: WireConfig) -> int:
    """Return the maximum segment: the MTU less IP, TCP and its options.

    >>> from tokenwire.wire.config import WireConfig
    >>> payload(WireConfig(transport="tcp", mtu=1500))          # 1500 - 20 - 20 - 12
    1448
    """
    ip = headers.IPV4.size if config.ip_version == 4 else headers.IPV6.size
    return config.mtu - ip - headers.TCP.size - (headers.TCP_TIMESTAMPS.size if config.timestamps else 0)


def packet(config: WireConfig, connection: Connection, place: Place, payload: bytes) -> Packet:
    """Return one segment of a message."""
    from tokenwire.wire.build import over_ethernet, tcp_layers

    return over_ethernet(config, connection, place, tcp_layers(config, connection, place, payload))


TCP = register(
    Transport(
        name="tcp", title="TCP", usual_mtu=1500, mtus=range(576, 65_536), before=before, after=after, payload=payload,
        packet=packet, minimum_frame=ethernet.MINIMUM_FRAME, empty_packets=0, mtu_is="bytes of the IP packet", mtu_name="MTU",
        answer=answer, answer_every=2, source="RFC 9293, RFC 7323; acknowledgements RFC 5681, section 4.2",
    )
)  # fmt: skip
