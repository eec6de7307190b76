"""Reading captures of others: pcap and pcapng, in pieces, so that memory stays bounded whatever the size of the file.

What cannot be read is counted and said, never raised: only a file that is no capture at all is an error.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tokenwire.errors import InputError
from tokenwire.files import open_to_read
from tokenwire.wire.capture.layout import (
    GZIP,
    MAX_RECORD,
    MICROSECONDS,
    MODIFIED,
    NANOSECONDS,
    PACKETS,
    PCAPNG,
)

PIECE = 2**23
"""Bytes read at a time."""
BATCH = 2**16
"""Packets decoded at a time."""
MAX_INTERFACES = 4096
"""Interfaces of a pcapng section that are believed."""


@dataclass
class Notes:
    """What was seen of a capture file while it was read, and what could not be read."""

    format: str = ""
    packets: int = 0
    file_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def say(self, problem: str) -> None:
        """Note a problem, once."""
        if problem not in self.problems and len(self.problems) < 20:
            self.problems.append(problem)


class Readable(Protocol):
    """What a capture is read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""


class _Source:
    """A window on a file that moves forward: ``data[at:end]`` is what was read and not yet used."""

    def __init__(self, file: Readable, notes: Notes) -> None:
        self.file, self.notes = file, notes
        self.data = np.zeros(2 * PIECE, np.uint8)
        self.at = self.end = 0
        self.offset = 0
        self.finished = False

    def more(self) -> bool:
        """Read a piece more; return False at the end of the file."""
        left = self.end - self.at
        if left + PIECE > len(self.data):
            grown = np.zeros(left + 2 * PIECE, np.uint8)
            grown[:left] = self.data[self.at : self.end]
            self.data = grown
        else:
            self.data[:left] = self.data[self.at : self.end].copy()
        self.offset += self.at
        self.at, self.end = 0, left
        try:
            piece = self.file.read(PIECE)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.notes.say(f"the compressed file is broken after {self.offset + left:,} bytes ({error})")
            piece = b""
        except OSError as error:
            self.notes.say(
                f"the file cannot be read beyond {self.offset + left:,} bytes ({error.strerror or error})"
            )
            piece = b""
        self.data[left : left + len(piece)] = np.frombuffer(piece, np.uint8)
        self.end += len(piece)
        self.notes.file_bytes += len(piece)
        self.finished = not piece
        return bool(piece)

    def take(self, size: int) -> bytes | None:
        """Return the next ``size`` bytes and move on, or None where the file ends before."""
        while self.end - self.at < size:
            if not self.more():
                return None
        self.at += size
        return self.data[self.at - size : self.at].tobytes()

    def peek(self, size: int) -> bytes:
        """Return up to ``size`` of the next bytes without moving on."""
        while self.end - self.at < size and self.more():
            pass
        return self.data[self.at : min(self.at + size, self.end)].tobytes()


class _Tables:
    """Where records are, as ``finding`` fills it in."""

    def __init__(self, batch: int) -> None:
        self.starts = np.zeros(batch, np.int64)
        self.kept = np.zeros(batch, np.int64)
        self.sent = np.zeros(batch, np.int64)
        self.times = np.zeros(batch, np.int64)
        self.interfaces = np.zeros(batch, np.int64)
        self.rows = np.zeros(batch, PACKETS)

    @property
    def columns(self) -> tuple[Any, ...]:
        return (self.starts, self.kept, self.sent, self.times)


def read_capture(
    path: str | Path, notes: Notes, *, batch: int = BATCH, limit: int | None = None
) -> Iterator[Any]:
    """Yield the packets of a capture in batches of columns ``layout.PACKETS``; each batch is valid until the next.

    ``path`` may be ``-``, gzip is undone. ``notes`` is filled in on the way. ``limit`` stops after so many packets.
    Raises ``InputError`` where the file cannot be opened, or is no capture.
    """
    if limit is not None and limit < 0:
        raise InputError(f"--max-packets {limit}", rule="must be at least 0", nearest="0")
    with open_to_read(path, what="capture") as file:
        source = _Source(file, notes)
        if source.peek(2) == GZIP:
            source = _unzipped(source, notes)
        yield from _packets(source, str(path), notes, batch, limit)


class _Rest(io.RawIOBase):
    """What was already read of a file, and then the rest of it."""

    def __init__(self, head: bytes, file: Readable) -> None:
        self.head, self.file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.head[: len(buffer)] if self.head else self.file.read(len(buffer))
        self.head = self.head[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


class _Unzipped:
    """A compressed file, of which all that can be had is had, also where it is broken further on."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file

    def read(self, size: int, /) -> bytes:
        return self.file.read1(size)


def _unzipped(source: _Source, notes: Notes) -> _Source:
    notes.file_bytes = 0
    head = source.data[source.at : source.end].tobytes()
    return _Source(
        _Unzipped(gzip.GzipFile(fileobj=io.BufferedReader(_Rest(head, source.file), PIECE))), notes
    )


def _packets(source: _Source, name: str, notes: Notes, batch: int, limit: int | None) -> Iterator[Any]:
    from tokenwire.wire.capture import decoding, finding

    find = _opened(source, name, notes)
    tables = _Tables(batch)
    left = limit
    while left is None or left > 0:
        count, reason, links = find(tables)
        count = count if left is None else min(count, left)
        if count:
            rows = tables.rows[:count]
            decoding.decode(source.data, *tables.columns, links, count, rows)
            notes.packets += count
            left = None if left is None else left - count
            yield rows
        if reason == finding.BROKEN:
            where = source.offset + source.at
            notes.say(f"the record at byte {where:,} of the file is impossible: reading stopped there")
            return
        if reason == finding.NEEDS_MORE and not source.more():
            rest = source.end - source.at
            if rest:
                notes.say(f"the file ends in the middle of a record ({rest:,} bytes of it are there)")
            return


def _opened(source: _Source, name: str, notes: Notes) -> Any:
    magic = source.peek(4)
    if len(magic) < 4:
        what = "is empty" if not magic else f"has only {len(magic)} bytes"
        raise InputError(f"capture {name!r}", rule=f"{what}", nearest="a pcap or pcapng file")
    little, big = struct.unpack("<I", magic)[0], struct.unpack(">I", magic)[0]
    if little == PCAPNG:
        notes.format = "pcapng"
        return _Pcapng(source, notes)
    known = {MICROSECONDS: (1000, 16, "µs"), NANOSECONDS: (1, 16, "ns"), MODIFIED: (1000, 24, "µs, modified")}
    for value, is_big in ((little, False), (big, True)):
        if value in known:
            tick, head, unit = known[value]
            header = source.take(24)
            if header is None:
                raise InputError(
                    f"capture {name!r}", rule="ends in its own header", nearest="a pcap or pcapng file"
                )
            link = struct.unpack(">I" if is_big else "<I", header[20:24])[0] & 0x03FF_FFFF
            notes.format = f"pcap ({unit})"
            return _Pcap(source, notes, is_big, tick, head, link)
    raise InputError(
        f"capture {name!r}",
        rule=f"begins with {magic.hex(' ')}, which no capture does",
        nearest="a pcap or pcapng file",
    )


def _known_link(link: int, notes: Notes) -> int:
    from tokenwire.wire.capture.layout import LINK_TYPES

    if link not in LINK_TYPES:
        notes.say(f"packets of link type {link} are counted but not decoded")
    return link


class _Pcap:
    def __init__(self, source: _Source, notes: Notes, big: bool, tick: int, head: int, link: int) -> None:
        self.source, self.big, self.tick, self.head = source, big, tick, head
        self.link = _known_link(link, notes)

    def __call__(self, tables: _Tables) -> tuple[int, int, Any]:
        from tokenwire.wire.capture import finding

        source = self.source
        count, source.at, reason = finding.pcap_records(
            source.data, source.at, source.end, self.big, self.tick, self.head, *tables.columns
        )
        return count, reason, np.full(count, self.link)


class _Pcapng:
    def __init__(self, source: _Source, notes: Notes) -> None:
        self.source, self.notes = source, notes
        self.big = False
        self._section()

    def _section(self) -> None:
        self.links: list[int] = []
        self.per_tick: list[float] = []
        self.offset: list[int] = []
        self.limit = np.zeros(1, np.int64)

    def __call__(self, tables: _Tables) -> tuple[int, int, Any]:
        from tokenwire.wire.capture import finding

        source = self.source
        count, source.at, reason = finding.pcapng_records(
            source.data, source.at, source.end, self.big, np.array(self.per_tick, np.float64),
            np.array(self.offset, np.int64), self.limit, *tables.columns, tables.interfaces,
        )  # fmt: skip
        links = np.array(self.links, np.int64)[tables.interfaces[:count]] if count else np.zeros(0, np.int64)
        if reason == finding.SPECIAL and not count:
            # Only when all packets before it are handed out, since it may change what their interfaces mean.
            reason = self._block()
        return count, reason, links

    def _block(self) -> int:
        from tokenwire.wire.capture import finding

        head = self.source.peek(12)
        order = ">" if self.big else "<"
        if head[:4] == b"\x0a\x0d\x0d\x0a":
            if len(head) < 12 or head[8:12] not in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"):
                return finding.BROKEN
            self.big = head[8:12] == b"\x1a\x2b\x3c\x4d"
            order = ">" if self.big else "<"
            self._section()
        size = struct.unpack(order + "I", head[4:8])[0]
        if size < 20 or size % 4 or size > MAX_RECORD:
            return finding.BROKEN
        if len(self.source.peek(size)) < size:
            return finding.NEEDS_MORE
        block = self.source.take(size)
        assert block is not None
        if head[:4] != b"\x0a\x0d\x0d\x0a":
            if len(self.links) >= MAX_INTERFACES:
                return finding.BROKEN
            self._interface(block, order)
        return finding.FULL

    def _interface(self, block: bytes, order: str) -> None:
        link, _, snap = struct.unpack(order + "HHI", block[8:16])
        per_tick, offset = 1000.0, 0
        at = 16
        while at + 4 <= len(block) - 4:
            code, size = struct.unpack(order + "HH", block[at : at + 4])
            value = block[at + 4 : at + 4 + size]
            if code == 0:
                break
            if code == 9 and len(value) == 1:
                power = value[0] & 0x7F
                per_tick = (
                    1e9 / 2.0**power
                    if value[0] & 0x80
                    else float(10 ** (9 - power))
                    if power <= 9
                    else 10.0 ** (9 - power)
                )
            if code == 14 and len(value) == 8:
                seconds = struct.unpack(order + "q", value)[0]
                offset = seconds * 10**9 if abs(seconds) < 2**33 else 0
            at += 4 + (size + 3) // 4 * 4
        if not self.links:
            self.limit[0] = snap
        self.links.append(_known_link(link, self.notes))
        self.per_tick.append(per_tick)
        self.offset.append(offset)
