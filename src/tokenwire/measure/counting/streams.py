"""What is in the TCP streams of a capture: bytes by sequence number, and gloo's messages by their headers.

A stream is one direction of a connection. Its bytes are counted by sequence numbers, so that what is sent again counts once.
Gloo's streams are a row of records, each with a header of six words of eight bytes: the record's bytes, its kind, ... (pytorch/gloo,
gloo/transport/tcp/pair.h, Op); the one who connects first says eight bytes of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError

MAGIC = 0xA1B23C4D
ETHERNET, IPV4 = 14, 0x0800
SYN, ACK = 0x02, 0x10
HEADER, GREETING = 48, 8
DATA, ANNOUNCE, GRANT = 1, 2, 3
"""Kinds of gloo's records: SEND_UNBOUND_BUFFER, NOTIFY_SEND_READY, NOTIFY_RECV_READY."""

End = tuple[str, int]
Times = npt.NDArray[np.int64]


@dataclass
class Stream:
    """One direction of a connection, packet by packet: ``time`` in ns, ``frame`` and ``payload`` bytes, ``start`` in the stream."""

    source: End
    target: End
    time: Times
    frame: Times
    payload: Times
    start: Times
    opened: bool
    data: bytes
    arrived: Times

    def window(self, first: int, last: int) -> dict[str, int]:
        """Return what was sent after ``first`` and until ``last`` (ns): frames and their bytes, payload once, what was repeated."""
        inside = (self.time > first) & (self.time <= last)
        ends = np.maximum.accumulate(np.where(self.payload > 0, self.start + self.payload, 0)) if len(self.time) else self.time
        before = ends[self.time <= first]
        until = ends[self.time <= last]
        new = int(until[-1] if len(until) else 0) - int(before[-1] if len(before) else 0)
        carried = int(self.payload[inside].sum())
        return {"frames": int(inside.sum()), "frame_bytes": int(self.frame[inside].sum()), "payload_bytes": carried, "stream_bytes": new,
                "resent_bytes": carried - new, "data_frames": int((inside & (self.payload > 0)).sum())}  # fmt: skip

    def records(self) -> npt.NDArray[np.int64]:
        """Return gloo's records, int64[n, 3]: when the last byte was sent (ns), kind, bytes of tensors in it.

        Raises ``InputError`` where the stream is no gloo stream, or has holes.
        """
        at, out = GREETING if self.opened else 0, []
        while at + HEADER <= len(self.data):
            size, kind = struct.unpack_from("<QQ", self.data, at)
            if kind not in (DATA, ANNOUNCE, GRANT) or size < HEADER or (kind != DATA and size != HEADER):
                raise InputError(f"the stream {self.source[0]} to {self.target[0]}", rule=f"has no header of gloo at byte {at:,}")
            if at + size > len(self.data):
                break
            out.append((int(self.arrived[at + size - 1]), kind, size - HEADER))
            at += size
        return np.array(out, dtype=np.int64).reshape(-1, 3)


@dataclass
class _Packets:
    time: list[int] = field(default_factory=list)
    frame: list[int] = field(default_factory=list)
    payload: list[int] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


def streams(files: list[Path]) -> list[Stream]:
    """Return the TCP streams of captures over IPv4.

    Raises ``InputError`` for a file that tcpdump did not write, or that ends within a packet.
    """
    packets: dict[tuple[End, End], _Packets] = {}
    for file in files:
        for when, length, data in _records(file):
            _sort_in(packets, when, length, data)
    return [_stream(ends, one) for ends, one in packets.items()]


def _sort_in(packets: dict[tuple[End, End], _Packets], when: int, length: int, data: bytes) -> None:
    if len(data) < ETHERNET + 40 or struct.unpack_from(">H", data, 12)[0] != IPV4 or data[ETHERNET + 9] != 6:
        return
    ip = ETHERNET
    tcp = ip + (data[ip] & 15) * 4
    total = struct.unpack_from(">H", data, ip + 2)[0]
    source_port, target_port, sequence = struct.unpack_from(">HHI", data, tcp)
    body = tcp + (data[tcp + 12] >> 4) * 4
    ends = ((str(IPv4Address(data[ip + 12 : ip + 16])), source_port), (str(IPv4Address(data[ip + 16 : ip + 20])), target_port))
    one = packets.setdefault(ends, _Packets())
    payload = max(0, ip + total - body)
    for column, value in zip((one.time, one.frame, one.payload, one.sequence, one.flags),
                             (when, length, payload, sequence, data[tcp + 13]), strict=True):  # fmt: skip
        column.append(value)
    one.bodies.append(data[body : body + payload])


def _stream(ends: tuple[End, End], one: _Packets) -> Stream:
    order = np.argsort(np.array(one.time), kind="stable")
    time, frame, payload = (np.array(column, dtype=np.int64)[order] for column in (one.time, one.frame, one.payload))
    sequence, flags = np.array(one.sequence, dtype=np.int64)[order], np.array(one.flags)[order]
    opening = np.flatnonzero(flags & SYN)
    first = int(sequence[opening[0]]) + 1 if len(opening) else int(sequence[0])
    # Sequence numbers wrap at 2^32; the step from one packet to the next never is half of that.
    steps = np.diff(sequence, prepend=first)
    start = np.cumsum((steps + 2**31) % 2**32 - 2**31)
    opened = bool(len(opening)) and not flags[opening[0]] & ACK
    length = int((start + payload)[payload > 0].max(initial=0))
    data, arrived = bytearray(length), np.zeros(length, dtype=np.int64)
    for place, index in enumerate(order):
        at, body = int(start[place]), one.bodies[index]
        if body and at >= 0:
            data[at : at + len(body)] = body
            fresh = arrived[at : at + len(body)]
            fresh[fresh == 0] = time[place]
    return Stream(ends[0], ends[1], time, frame, payload, start, opened, bytes(data), arrived)


def _records(file: Path) -> Iterator[tuple[int, int, bytes]]:
    data = file.read_bytes()
    if len(data) < 24 or struct.unpack_from("<I", data)[0] != MAGIC:
        raise InputError(f"capture {file.name}", rule="is not what tcpdump was asked to write")
    at = 24
    while at + 16 <= len(data):
        seconds, rest, kept, length = struct.unpack_from("<IIII", data, at)
        at += 16
        if at + kept > len(data):
            break
        yield seconds * 10**9 + rest, length, data[at : at + kept]
        at += kept
