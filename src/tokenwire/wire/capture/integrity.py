"""The invariant CRC of captured packets, compiled: computed over the bytes that are there, and compared with the one that came.

It covers the packet from IP (RoCEv2), the global (RoCE version 1) or the local route header (InfiniBand) to the padding, with
ones in place of what switches may change; ``checksums`` has the same of one packet. CRC-32 goes 32 bytes at a time: four
CRCs side by side, each over every fourth word of 8 bytes, joined at the last block (Kadatch and Jenkins, "Everything we know
about CRC but afraid to forget", 2010; zlib's ``crc32.c`` calls it a braid).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.compiled import compiled
from tokenwire.wire.capture.finding import Bytes, be16, be24
from tokenwire.wire.capture.layout import ICRC_CUT, ICRC_RIGHT, ICRC_UNCLEAR, ICRC_WRONG

_LANES, _WORD = 4, 8


def _tables(last: int) -> npt.NDArray[np.uint32]:
    """Return by place k in a word what its byte does to the CRC once the rest of the word and ``last`` more bytes went in."""
    found = np.arange(256, dtype=np.uint32)
    step = np.array([0, 0xEDB88320], np.uint32)
    for _ in range(8):
        found = found >> np.uint32(1) ^ step[found & 1]
    first, rows = found, [found]
    for _ in range(_WORD + last - 1):
        rows.append(rows[-1] >> np.uint32(8) ^ first[rows[-1] & 0xFF])
    return np.array([rows[_WORD - 1 - k + last] for k in range(_WORD)])


_BYTE = _tables(0)[_WORD - 1].copy()
_IN_ORDER = _tables(0)
_APART = _tables((_LANES - 1) * _WORD)


@compiled
def _byte(crc: Any, value: Any) -> Any:
    return _BYTE[np.uint32(crc ^ np.uint32(value)) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))


@compiled
def _word(table: Any, crc: Any, data: Bytes, at: Any) -> Any:
    m = np.uint32(0xFF)
    return (
        table[0, (crc ^ np.uint32(data[at])) & m]
        ^ table[1, (crc >> np.uint32(8) ^ np.uint32(data[at + np.uint64(1)])) & m]
        ^ table[2, (crc >> np.uint32(16) ^ np.uint32(data[at + np.uint64(2)])) & m]
        ^ table[3, (crc >> np.uint32(24) ^ np.uint32(data[at + np.uint64(3)])) & m]
        ^ table[4, data[at + np.uint64(4)]]
        ^ table[5, data[at + np.uint64(5)]]
        ^ table[6, data[at + np.uint64(6)]]
        ^ table[7, data[at + np.uint64(7)]]
    )


@compiled
def _bytes(crc: Any, data: Bytes, start: Any, end: Any) -> Any:
    """Return the CRC register ``crc`` after the bytes from ``start`` to ``end``."""
    at, blocks = np.uint64(start), (end - start) // 32 - 1
    if blocks > 0:
        a, b, c, d = crc, np.uint32(0), np.uint32(0), np.uint32(0)
        for _ in range(blocks):
            a = _word(_APART, a, data, at)
            b = _word(_APART, b, data, at + np.uint64(8))
            c = _word(_APART, c, data, at + np.uint64(16))
            d = _word(_APART, d, data, at + np.uint64(24))
            at += np.uint64(32)
        crc = _word(_IN_ORDER, a, data, at)
        crc = _word(_IN_ORDER, crc ^ b, data, at + np.uint64(8))
        crc = _word(_IN_ORDER, crc ^ c, data, at + np.uint64(16))
        crc = _word(_IN_ORDER, crc ^ d, data, at + np.uint64(24))
        at += np.uint64(32)
    while np.int64(at) < end:
        crc = _byte(crc, data[at])
        at += np.uint64(1)
    return crc


@compiled
def _masked(kind: Any, k: Any, bth: Any) -> Any:
    """Return the bits that stand as ones in header byte ``k``; the BTH begins at byte ``bth``."""
    if k == bth + 4:
        return 0xFF
    if kind == 4:
        changing = k == 1 or k == 8 or k == 10 or k == 11
    elif kind == 6:
        if k == 0:
            return 0x0F
        changing = k == 1 or k == 2 or k == 3 or k == 7
    else:
        return 0xF0 if k == 0 and kind == 0 else 0
    # Over UDP its checksum, the last two bytes before the BTH.
    return 0xFF if changing or ((bth > 40 or kind == 4) and (k == bth - 2 or k == bth - 1)) else 0


@compiled
def invariant(data: Bytes, head: Any, bth: Any, size: Any, end: Any, kind: Any, local: bool) -> Any:
    """Return whether the ICRC of a packet is right: ``layout.ICRC_RIGHT``, ``_WRONG``, ``_CUT`` or ``_UNCLEAR``.

    ``head`` is where the header begins that the check covers first: IPv4 (``kind`` 4), IPv6 or a global route (6), a local route
    (0); ``bth`` is where the BTH begins, ``size`` its bytes to the end of the ICRC; kept bytes end at ``end``. ``local``: eight
    bytes of ones stand before for a local route header.
    """
    if size < 16:
        return ICRC_UNCLEAR
    if bth + size > end:
        return ICRC_CUT
    crc = np.uint32(0xFFFFFFFF)
    if local:
        for _ in range(8):
            crc = _byte(crc, 0xFF)
    for k in range(bth - head + 12):
        crc = _byte(crc, data[head + k] | _masked(kind, k, bth - head))
    stop = bth + size - 4
    crc = _bytes(crc, data, bth + 12, stop) ^ np.uint32(0xFFFFFFFF)
    there = be24(data, stop + 1) | np.int64(data[stop]) << 24
    # It goes on the wire lowest byte first.
    value = np.int64(crc)
    right = (value & 0xFF) << 24 | (value >> 8 & 0xFF) << 16 | (value >> 16 & 0xFF) << 8 | value >> 24
    return ICRC_RIGHT if there == right else ICRC_WRONG


@compiled
def of_datagram(data: Bytes, ip: Any, udp: Any, size: Any, end: Any, more: Any) -> Any:
    """Return whether the ICRC of RoCEv2 is right: IP begins at ``ip``, UDP at ``udp`` with ``size`` bytes and its own 8.

    A fragment does not have it, and what it covers of IPv6 extension headers, or where offload left the length 0, no
    specification says: ``ICRC_UNCLEAR``.
    """
    version = data[ip] >> 4
    extended = version == 6 and udp - ip != 40
    length = be16(data, ip + 2) if version == 4 else be16(data, ip + 4)
    if more or extended or length == 0:
        return ICRC_UNCLEAR
    return invariant(data, ip, udp + 8, size - 8, end, np.int64(version), True)
