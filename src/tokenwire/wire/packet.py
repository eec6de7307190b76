"""One packet: its bytes as they are on the wire, and the name, place and meaning of every bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tokenwire.wire import headers
from tokenwire.wire.headers import Header

PAYLOAD = Header("payload", "Payload", (), "")
PAD = Header("pad", "Padding", (), "")


@dataclass(frozen=True)
class Field:
    """A field of a packet: ``bit_offset`` counts from the first bit of ``Packet.data``; ``value`` is unsigned.

    Payload and padding are fields too; their value is that of their bytes read as one big-endian number, and
    ``bit_length`` may be 0.
    """

    layer: str
    name: str
    bit_offset: int
    bit_length: int
    value: int
    meaning: str


@dataclass(frozen=True)
class Place:
    """A packet's place in its message: packet ``index`` of ``packets``, payload bytes ``offset`` to ``offset + length``."""

    index: int
    packets: int
    offset: int
    length: int
    message_bytes: int

    @property
    def first(self) -> bool:
        """Return whether it is the first packet of the message."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """Return whether it is the last packet of the message."""
        return self.index == self.packets - 1


@dataclass(frozen=True)
class Packet:
    """A packet from its first address to its last check; preamble, gap and delimiters are apart.

    ``layout`` names the parts of ``data`` in order: (header, first byte, bytes).
    """

    data: bytes
    place: Place
    layout: tuple[tuple[Header, int, int], ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Return every field in order, without gaps: together they are all bits of ``data``."""
        out = []
        for header, start, size in self.layout:
            part = self.data[start : start + size]
            if not header.fields:
                meaning = (
                    "bytes of the message" if header is PAYLOAD else "zeros, to end where a packet may end"
                )
                out.append(
                    Field(header.name, header.name, start * 8, size * 8, int.from_bytes(part, "big"), meaning)
                )
                continue
            values = header.unpack(part)
            for field in header.fields:
                at, bits = header.offsets[field.name]
                out.append(
                    Field(header.name, field.name, start * 8 + at, bits, values[field.name], field.meaning)
                )
        return tuple(out)

    @property
    def payload_offset(self) -> int:
        """Return where in ``data`` the payload begins, in bytes."""
        return next(start for header, start, _ in self.layout if header is PAYLOAD)

    @property
    def payload(self) -> bytes:
        """Return the bytes of the message that the packet carries."""
        return self.data[self.payload_offset :][: self.place.length]

    def value(self, layer: str, name: str) -> int:
        """Return the value of one field, by the names in ``headers``. Raises ``KeyError`` where it is not there."""
        for field in self.fields:
            if field.layer == layer and field.name == name:
                return field.value
        raise KeyError(f"{layer} {name}")

    @property
    def captured(self) -> bytes:
        """Return the bytes as captures usually hold them: without the FCS, which Ethernet NICs strip."""
        header, start, _ = self.layout[-1]
        return self.data[:start] if header is headers.FCS else self.data

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON: bytes in hexadecimal, fields in order (of the payload only place and length)."""
        fields = [asdict(field) for field in self.fields]
        for field in fields:
            if field["layer"] == "payload":
                del field["value"]
        return {"data": self.data.hex(), "place": asdict(self.place), "fields": fields}


def assemble(place: Place, parts: Sequence[tuple[Header, bytes]]) -> Packet:
    """Return the packet made of parts in order; empty padding is left out."""
    layout, at = [], 0
    for header, part in parts:
        if header is not PAD or part:
            layout.append((header, at, len(part)))
        at += len(part)
    return Packet(b"".join(part for _, part in parts), place, tuple(layout))
