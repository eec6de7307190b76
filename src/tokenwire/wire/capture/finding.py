"""Finding the records of a capture, compiled: where each packet's bytes begin, how many there are, and when it came.

``at`` is always a position in ``data``; nothing is read at or beyond ``end``. Compiled code is kept beside this file, so
that only the first run ever pays for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.compiled import compiled
from tokenwire.wire.capture.layout import MAX_RECORD

Bytes = npt.NDArray[np.uint8]

FULL, NEEDS_MORE, BROKEN, SPECIAL = 0, 1, 2, 3
"""Why a search for records stopped: the table is full, the data end, a record is impossible, a block for Python."""


@compiled
def be16(data: Bytes, at: Any) -> Any:
    """Return two bytes, most significant first."""
    return np.int64(data[at]) << 8 | np.int64(data[at + 1])


@compiled
def be24(data: Bytes, at: Any) -> Any:
    """Return three bytes, most significant first."""
    return np.int64(data[at]) << 16 | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2])


@compiled
def be32(data: Bytes, at: Any) -> Any:
    """Return four bytes, most significant first."""
    return be16(data, at) << 16 | be16(data, at + 2)


@compiled
def be64(data: Bytes, at: Any) -> Any:
    """Return eight bytes, most significant first, unsigned."""
    return np.uint64(be32(data, at)) << np.uint64(32) | np.uint64(be32(data, at + 4))


@compiled
def u32(data: Bytes, at: Any, big: bool) -> Any:
    """Return four bytes in the byte order of the file."""
    if big:
        return be32(data, at)
    return (
        np.int64(data[at])
        | np.int64(data[at + 1]) << 8
        | np.int64(data[at + 2]) << 16
        | np.int64(data[at + 3]) << 24
    )


@compiled
def pcap_records(
    data: Bytes,
    at: Any,
    end: Any,
    big: bool,
    tick: Any,
    head: Any,
    starts: Any,
    kept: Any,
    sent: Any,
    times: Any,
) -> tuple[Any, Any, Any]:
    """Find records of pcap from ``at``: return how many, where the search stopped, and why.

    ``tick`` is ns a unit of the fraction; ``head`` bytes of a record's header (16, or 24 in the modified variant).
    """
    count = 0
    while count < len(starts):
        if end - at < head:
            return count, at, NEEDS_MORE
        size = u32(data, at + 8, big)
        if size > MAX_RECORD:
            return count, at, BROKEN
        if end - at < head + size:
            return count, at, NEEDS_MORE
        starts[count] = at + head
        kept[count] = size
        sent[count] = u32(data, at + 12, big)
        times[count] = u32(data, at, big) * 1_000_000_000 + u32(data, at + 4, big) * tick
        at += head + size
        count += 1
    return count, at, FULL


@compiled
def pcapng_records(
    data: Bytes,
    at: Any,
    end: Any,
    big: bool,
    per_tick: Any,
    offset: Any,
    simple_limit: Any,
    starts: Any,
    kept: Any,
    sent: Any,
    times: Any,
    interfaces: Any,
) -> tuple[Any, Any, Any]:
    """Find packets of pcapng from ``at``: return how many, where the search stopped, and why.

    Section headers and interface descriptions are SPECIAL, left to the caller. ``per_tick`` has, by interface, ns a
    unit of time (times 2^-s for a negative s: resolutions finer than ns or binary), ``offset`` ns to add.
    """  # fmt: skip
    count = 0
    last = np.int64(0)
    while count < len(starts):
        if end - at < 12:
            return count, at, NEEDS_MORE
        kind = u32(data, at, big)
        if kind == 0x0A0D0D0A or kind == 1:
            return count, at, SPECIAL
        size = u32(data, at + 4, big)
        if size < 12 or size % 4 or size > MAX_RECORD:
            return count, at, BROKEN
        if end - at < size:
            return count, at, NEEDS_MORE
        if kind == 6 or kind == 2:
            if size < 32:
                return count, at, BROKEN
            if kind == 6:
                interface = u32(data, at + 8, big)
            else:
                interface = u32(data, at + 8, big) & 0xFFFF if not big else u32(data, at + 8, big) >> 16
            length = u32(data, at + 20, big)
            if length > size - 32 or interface >= len(per_tick):
                return count, at, BROKEN
            ticks = np.float64(u32(data, at + 12, big)) * 4294967296.0 + np.float64(u32(data, at + 16, big))
            if per_tick[interface] == 1.0:
                last = (u32(data, at + 12, big) << 32) + u32(data, at + 16, big)
            elif per_tick[interface] >= 1.0 and per_tick[interface] == np.floor(per_tick[interface]):
                last = ((u32(data, at + 12, big) << 32) + u32(data, at + 16, big)) * np.int64(
                    per_tick[interface]
                )
            else:
                last = np.int64(ticks * per_tick[interface])
            last += offset[interface]
            starts[count] = at + 28
            kept[count] = length
            sent[count] = u32(data, at + 24, big)
            times[count] = last
            interfaces[count] = interface
            count += 1
        elif kind == 3:
            if size < 16 or len(per_tick) == 0:
                return count, at, BROKEN
            length = u32(data, at + 8, big)
            starts[count] = at + 12
            kept[count] = min(length, size - 16, simple_limit[0] if simple_limit[0] > 0 else length)
            sent[count] = length
            times[count] = last
            interfaces[count] = 0
            count += 1
        at += size
    return count, at, FULL
