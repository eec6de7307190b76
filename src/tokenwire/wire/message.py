"""From a message to its packets, and from a byte of a message to the packet that carries it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenwire.errors import InputError
from tokenwire.wire.config import WireConfig
from tokenwire.wire.connection import Connection, Nic
from tokenwire.wire.framing import packet_count
from tokenwire.wire.packet import Packet, Place
from tokenwire.wire.transports.transport import transport_of

MAX_WRITE = 2**31
"""Bytes of the largest message of one RDMA operation (InfiniBand Architecture Specification, volume 1, chapter 9.4)."""


def place_of(message_bytes: int, config: WireConfig, index: int) -> Place:
    """Return the place of packet ``index`` of a message. Raises ``InputError`` for a packet that is not there."""
    M, P = transport_of(config).payload(config), packet_count(message_bytes, config)
    if not 0 <= index < P:
        raise InputError(
            f"packet {index}", rule=f"the message has {P:,} packets, from 0", nearest=str(max(P - 1, 0))
        )
    offset = index * M
    return Place(index, P, offset, min(M, message_bytes - offset), message_bytes)


def packets(
    payload: bytes | bytearray | memoryview,
    config: WireConfig,
    *,
    src: Nic = (0, 0),
    dst: Nic = (1, 0),
    qp: int = 0x100,
    psn: int = 0,
    va: int = 0x7F00_0000_0000,
    rkey: int = 0x1000,
    source_qp: int = 0x100,
    immediate: int = 0,
) -> Iterator[Packet]:
    """Yield the packets of one message, in order.

    ``src`` and ``dst`` are NICs as (node, NIC); ``psn`` is the sequence number of the first packet, ``va`` and ``rkey``
    where in the receiver's memory the message goes.

    >>> both = list(packets(bytes(5000), WireConfig(), psn=7))
    >>> [(p.place.length, p.value("BTH", "packet_sequence_number")) for p in both]
    [(4096, 7), (904, 8)]
    """
    connection = Connection(
        source=src,
        destination=dst,
        qp=qp,
        psn=psn,
        va=va,
        rkey=rkey,
        source_qp=source_qp,
        immediate=immediate,
    )
    view = memoryview(payload).cast("B")
    for index in range(packet_count(len(view), config)):
        place = place_of(len(view), config, index)
        yield packet(bytes(view[place.offset : place.offset + place.length]), place, config, connection)


def packet(payload: bytes, place: Place, config: WireConfig, connection: Connection) -> Packet:
    """Return the one packet at ``place`` of a message, which carries ``payload``.

    This way a packet of a message of any size can be made without its other packets.
    Raises ``InputError`` where the payload is not as long as its place says, or the message is too long for one
    operation.
    """
    if len(payload) != place.length:
        raise InputError(
            f"payload of {len(payload)} bytes", rule=f"packet {place.index} carries {place.length} bytes"
        )
    if place.message_bytes > MAX_WRITE and config.transport != "tcp":
        raise InputError(
            f"message of {place.message_bytes:,} bytes",
            rule="one RDMA operation carries at most 2 GiB",
            nearest="2 GiB",
        )
    return transport_of(config).packet(config, connection, place, payload)


@dataclass(frozen=True)
class Found:
    """Where a byte of a message is: packet ``place.index``, byte ``in_payload`` of its payload, ``in_frame`` of its frame.

    ``in_frame`` counts from the first byte after the preamble, as ``Packet.data`` does.
    """

    place: Place
    in_payload: int
    in_frame: int


def find(offset: int, message_bytes: int, config: WireConfig) -> Found:
    """Return which packet of a message carries the byte at ``offset``, and where in it.

    Raises ``InputError`` for an offset outside the message.

    >>> found = find(5000, 131072, WireConfig())                # 5000 = 4096 + 904; 14 + 20 + 8 + 12 bytes before
    >>> found.place.index, found.in_payload, found.in_frame
    (1, 904, 958)
    """
    if not 0 <= offset < message_bytes:
        raise InputError(
            f"offset {offset}", rule=f"the message has bytes 0 to {message_bytes - 1:,}",
            nearest=str(min(max(offset, 0), max(message_bytes - 1, 0))),
        )  # fmt: skip
    transport = transport_of(config)
    place = place_of(message_bytes, config, offset // transport.payload(config))
    on = {"every", *(["first"] if place.first else []), *(["last"] if place.last else [])}
    before = sum(layer.size for layer in transport.before(config) if layer.inside and layer.on in on)
    return Found(place, offset - place.offset, before + offset - place.offset)
