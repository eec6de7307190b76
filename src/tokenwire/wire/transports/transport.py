"""What a transport is: layers around a payload, and the payload that a packet takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.wire.headers import FCS, IPV4, IPV6, Header

if TYPE_CHECKING:
    from tokenwire.wire.config import WireConfig
    from tokenwire.wire.connection import Connection
    from tokenwire.wire.packet import Packet, Place


@dataclass(frozen=True)
class Layer:
    """A header or trailer with its place: on ``every`` packet of a message, on its ``first``, or on its ``last``.

    ``inside`` says whether it belongs to what is captured (preamble and gap do not).
    """

    header: Header
    on: str = "every"
    inside: bool = True

    @property
    def name(self) -> str:
        """Return the name of the header."""
        return self.header.name

    @property
    def size(self) -> int:
        """Return its bytes."""
        return self.header.size


PAYLOAD = "payload"
"""The place of the payload among the layers."""


@dataclass(frozen=True)
class Transport:
    """One way to carry messages.

    ``before`` and ``after`` return the layers around the payload, in the order of the wire. ``payload`` returns the
    payload bytes of a full packet. The payload is padded to a multiple of ``align``, the frame to ``minimum_frame``. A
    message without bytes takes ``empty_packets`` packets. ``packet`` makes one packet. ``answer`` returns the layers of an
    acknowledgement (none: not modelled), ``port_reserve`` the bytes above the MTU that hosts ask of a port's (0: just what
    packets need), ``usual_traffic_class`` the default of DSCP and ECN. Of acknowledgements there is one for every ``answer_every`` packets of a message, begun
    ones counted whole; 0: one a message.
    """

    name: str
    title: str
    usual_mtu: int
    mtus: tuple[int, ...] | range
    before: Callable[[WireConfig], tuple[Layer, ...]]
    after: Callable[[WireConfig], tuple[Layer, ...]]
    payload: Callable[[WireConfig], int]
    packet: Callable[[WireConfig, Connection, Place, bytes], Packet]
    align: int = 1
    minimum_frame: int = 0
    empty_packets: int = 1
    mtu_is: str = "bytes of payload a packet"
    mtu_name: str = "path MTU"
    port_reserve: int = 0
    usual_traffic_class: int = 0
    source: str = ""
    answer: Callable[[WireConfig], tuple[Layer, ...]] = lambda config: ()
    answer_every: int = 0

    def check_mtu(self, mtu: int) -> None:
        """Raise ``InputError`` for an MTU that the transport does not know."""
        if mtu in self.mtus:
            return
        if isinstance(self.mtus, range):
            rule = f"must be from {self.mtus.start} to {self.mtus.stop - 1} for {self.name} ({self.mtu_is})"
        else:
            rule = f"must be one of {', '.join(map(str, self.mtus))} for {self.name} ({self.mtu_is})"
        raise InputError(
            f"mtu {mtu}", rule=rule, nearest=str(min(self.mtus, key=lambda known: abs(known - mtu)))
        )

    def layers(self, config: WireConfig) -> tuple[Layer, ...]:
        """Return all layers, without the payload."""
        return (*self.before(config), *self.after(config))

    def largest_ip_packet(self, config: WireConfig) -> tuple[int, tuple[Layer, ...]]:
        """Return the bytes of the largest IP packet, of a message that fills one packet, and its layers; 0 where there is no IP.

        The MTU of a port counts this. It is the transport's own MTU for TCP; that of RDMA (the path MTU) counts the payload.
        """
        before = self.before(config)
        at = next((k for k, layer in enumerate(before) if layer.header in (IPV4, IPV6)), None)
        if at is None:
            return 0, ()
        layers = (*before[at:], *(layer for layer in self.after(config) if layer.inside and layer.header is not FCS))
        return self.payload(config) + sum(layer.size for layer in layers), layers


TRANSPORTS: dict[str, Transport] = {}
"""Transports by name."""


def register(transport: Transport) -> Transport:
    """Add a transport to those that ``[wire] transport`` knows."""
    TRANSPORTS[transport.name] = transport
    return transport


def transport_of(config: WireConfig) -> Transport:
    """Return the transport that a configuration names."""
    return TRANSPORTS[config.transport]


def bytes_of(layers: Iterable[Layer], on: str, *, inside: bool | None = None) -> int:
    """Return the bytes of the layers that stand on the packets ``on``; ``inside`` True leaves out preamble and gap."""
    return sum(
        layer.size for layer in layers if layer.on == on and (inside is None or layer.inside == inside)
    )
