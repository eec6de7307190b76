"""Writing captures: pcap with nanosecond times, streamed, whole or not at all."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenwire.files import whole_or_nothing
from tokenwire.wire.capture.layout import ERF, ERF_INFINIBAND, ETHERNET, NANOSECONDS
from tokenwire.wire.packet import Packet

SNAPLEN = 262_144
"""Snap length written in the file's header: libpcap's largest for Ethernet."""


def link_type(transport: str) -> int:
    """Return the link type of captures of a transport: InfiniBand is kept in ERF records, which analysers know best."""
    return ERF if transport == "infiniband" else ETHERNET


def file_header(link: int = ETHERNET) -> bytes:
    """Return the 24 bytes that a pcap file begins with (version 2.4, nanoseconds, little-endian).

    >>> file_header().hex(" ", 4)
    '4d3cb2a1 02000400 00000000 00000000 00000400 01000000'
    """
    return struct.pack("<IHHiIII", NANOSECONDS, 2, 4, 0, 0, SNAPLEN, link)


def record(time_ns: int, data: bytes, length: int | None = None) -> bytes:
    """Return a packet's record: time, bytes kept, bytes there were, and the bytes."""
    seconds, nanoseconds = divmod(time_ns, 10**9)
    return (
        struct.pack("<IIII", seconds, nanoseconds, len(data), len(data) if length is None else length) + data
    )


def erf_header(time_ns: int, size: int) -> bytes:
    """Return the 16 bytes before an InfiniBand packet of ``size`` bytes in an Extensible Record Format record.

    Source: Endace, ERF types (time as seconds·2^32, little-endian; type, flags, record length, losses, wire length).
    """
    seconds, nanoseconds = divmod(time_ns, 10**9)
    time = seconds << 32 | (nanoseconds << 32) // 10**9
    return struct.pack("<Q", time) + struct.pack(">BBHHH", ERF_INFINIBAND, 4, size + 16, 0, size)


def records(
    packets: Iterable[tuple[int, Packet]], snap_length: int = SNAPLEN, link: int = ETHERNET
) -> Iterator[bytes]:
    """Yield the records of (time in ns, packet), without Ethernet's check sequence, cut to ``snap_length`` bytes."""
    for time_ns, packet in packets:
        data = packet.captured
        before = erf_header(time_ns, len(data)) if link == ERF else b""
        yield record(time_ns, before + data[:snap_length], len(before) + len(data))


def write_capture(path: str | Path, chunks: Iterable[bytes | memoryview], link: int = ETHERNET) -> int:
    """Write a capture of ready records to ``path`` (``-`` is standard output); return the bytes written.

    The file appears when all is written. Raises ``InputError`` where it cannot be.
    """
    if str(path) == "-":
        sys.stdout.flush()
        return _stream(sys.stdout.buffer.write, chunks, link)
    with whole_or_nothing(path) as file:
        return _stream(file.write, chunks, link)


def _stream(write: object, chunks: Iterable[bytes | memoryview], link: int) -> int:
    assert callable(write)
    write(file_header(link))
    total = 24
    for chunk in chunks:
        write(chunk)
        total += len(chunk)
    return total
