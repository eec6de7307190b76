"""Decoding the headers of packets into columns, compiled.

``at`` is always a position in ``data``; ``end`` is where the packet's kept bytes end, so nothing is read beyond them:
what is not there makes the packet's status CUT, what contradicts itself MALFORMED, and both are counted, never raised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.compiled import compiled
from tokenwire.wire.capture.decoding_rdma import infiniband, rdma, uet
from tokenwire.wire.capture.finding import Bytes, be16, be32, be64
from tokenwire.wire.capture.integrity import invariant, of_datagram
from tokenwire.wire.capture.layout import (
    ARP,
    CUT,
    ICMP,
    INFINIBAND_PACKET,
    MALFORMED,
    NO_ICRC,
    NO_VLAN,
    ROCEV2,
    TCP,
    UDP,
)

Rows = npt.NDArray[Any]

_DEPTH = 8
"""Most headers of one kind (VLAN tags, IP in IP, IPv6 extensions) that are followed in a packet."""


@compiled
def _ip(data: Bytes, at: Any, end: Any, row: Any) -> tuple[Any, Any, Any, Any]:
    # Returns (protocol or -1, start of what follows, bytes of it as sent, whether more fragments follow).
    if end - at < 1:
        row.status = CUT
        return -1, at, 0, False
    version = data[at] >> 4
    if version == 4:
        if end - at < 20:
            row.status = CUT
            return -1, at, 0, False
        head = np.int64(data[at] & 15) * 4
        total = be16(data, at + 2)
        if head < 20 or (total < head and total != 0):
            row.status = MALFORMED
            return -1, at, 0, False
        row.ip = 4
        row.ecn = data[at + 1] & 3
        row.protocol = data[at + 9]
        row.src_high = 0
        row.dst_high = 0
        row.src = be32(data, at + 12)
        row.dst = be32(data, at + 16)
        fragment = be16(data, at + 6)
        if fragment & 0x1FFF:
            # A later fragment has no header of what it carries.
            return -1, at + head, 0, False
        # A total length of 0 is what segmentation offload leaves: believe the capture.
        rest = total - head if total else np.int64(row.length) - (at + head - (end - np.int64(row.captured)))
        return np.int64(row.protocol), at + head, rest, fragment & 0x2000 != 0
    if version == 6:
        if end - at < 40:
            row.status = CUT
            return -1, at, 0, False
        row.ip = 6
        row.ecn = data[at + 1] >> 4 & 3
        row.src_high = be64(data, at + 8)
        row.src = be64(data, at + 16)
        row.dst_high = be64(data, at + 24)
        row.dst = be64(data, at + 32)
        rest = be16(data, at + 4)
        if rest == 0:
            rest = np.int64(row.length) - (at + 40 - (end - np.int64(row.captured)))
        following: Any = np.int64(data[at + 6])
        at += 40
        more = False
        for _ in range(_DEPTH):
            if not (
                following == 0 or following == 43 or following == 60 or following == 44 or following == 51
            ):
                break
            if end - at < 8:
                row.status = CUT
                return -1, at, 0, False
            size: Any = 8
            if following == 44:
                if be16(data, at + 2) & 0xFFF8:
                    row.protocol = data[at]
                    return -1, at + 8, 0, False
                more = be16(data, at + 2) & 1 != 0
            elif following == 51:
                size = (np.int64(data[at + 1]) + 2) * 4
            else:
                size = (np.int64(data[at + 1]) + 1) * 8
            following = np.int64(data[at])
            at += size
            rest -= size
            if rest < 0:
                row.status = MALFORMED
                return -1, at, 0, False
        row.protocol = following
        return following, at, rest, more
    row.status = MALFORMED
    return -1, at, 0, False


@compiled
def _tagged(data: Bytes, at: Any, end: Any, kind: Any, row: Any) -> tuple[Any, Any]:
    # Returns (kind of what follows the VLAN tags or -1, where it starts).
    row.outer_vlan = NO_VLAN
    for depth in range(_DEPTH):
        if kind != 0x8100 and kind != 0x88A8 and kind != 0x9100:
            break
        if end - at < 4:
            row.status = CUT
            return -1, at
        if depth == 1:
            row.outer_vlan = row.vlan
        row.vlan = be16(data, at) & 0x0FFF
        kind = be16(data, at + 2)
        at += 4
    row.ethertype = kind
    return kind, at


@compiled
def _ethernet(data: Bytes, at: Any, end: Any, row: Any) -> Any:
    if end - at < 14:
        row.status = CUT
        return -1, at
    return _tagged(data, at + 14, end, be16(data, at + 12), row)


@compiled
def _tunnelled(data: Bytes, at: Any, end: Any, geneve: Any, row: Any) -> tuple[Any, Any]:
    # Returns (kind of what is inside or -1, where it starts); VXLAN has Ethernet, Geneve says what, after its options.
    if end - at < 8:
        row.status = CUT
        return -1, at
    if not geneve:
        return np.int64(0x6558), at + 8
    return np.int64(be16(data, at + 2)), at + 8 + 4 * np.int64(data[at] & 63)


@compiled
def _above_ip(data: Bytes, at: Any, end: Any, row: Any) -> None:
    for _ in range(_DEPTH):
        ip = at
        protocol, at, size, more = _ip(data, at, end, row)
        if protocol == 4 or protocol == 41:
            continue
        if protocol == 47:
            if end - at < 4:
                row.status = CUT
                return
            flags, kind = be16(data, at), be16(data, at + 2)
            at += 4 + 4 * (flags >> 15 & 1) + 4 * (flags >> 13 & 1) + 4 * (flags >> 12 & 1)
            if kind == 0x88BE:
                # ERSPAN, what a switch mirrors: with sequence numbers there are 8 bytes of its own before the frame.
                at += 8 * (flags >> 12 & 1)
                kind = np.int64(0x6558)
            if kind == 0x6558:
                kind, at = _ethernet(data, at, end, row)
            if kind == 0x0800 or kind == 0x86DD:
                continue
            return
        if protocol == 17:
            if end - at < 8:
                row.transport = UDP
                row.status = CUT
                return
            row.transport = UDP
            row.source_port = be16(data, at)
            row.destination_port = be16(data, at + 2)
            length = be16(data, at + 4)
            if length < 8 or length > size:
                if length == 0 or (more and length > size):
                    # Of a datagram in fragments the first has the length of the whole.
                    length = size
                else:
                    row.status = MALFORMED
                    return
            row.payload = length - 8
            if row.destination_port == 4791:
                rdma(data, at + 8, end, length - 8, ROCEV2, row)
                row.icrc = of_datagram(data, ip, at, length, end, more)
            elif row.destination_port == 4793:
                uet(data, at + 8, end, length - 8, row)
            elif row.destination_port == 4789 or row.destination_port == 6081:
                # VXLAN and Geneve: what is inside is decoded instead of what carries it.
                kind, at = _tunnelled(data, at + 8, end, row.destination_port == 6081, row)
                if kind == 0x6558:
                    kind, at = _ethernet(data, at, end, row)
                if kind == 0x0800 or kind == 0x86DD:
                    row.transport = 0
                    row.payload = 0
                    continue
            return
        if protocol == 6:
            row.transport = TCP
            if end - at < 20:
                row.status = CUT
                return
            row.source_port = be16(data, at)
            row.destination_port = be16(data, at + 2)
            row.sequence = be32(data, at + 4)
            row.acknowledgement = be32(data, at + 8)
            row.flags = data[at + 13]
            head = np.int64(data[at + 12] >> 4) * 4
            if head < 20 or head > size:
                row.status = MALFORMED
                return
            row.payload = size - head
            return
        if protocol == 1 or protocol == 58:
            row.transport = ICMP
            row.payload = max(size - 8, 0)
            return
        if protocol >= 0 and size > 0:
            row.payload = size
        return


@compiled
def _frame(data: Bytes, at: Any, end: Any, link: Any, row: Any) -> None:
    kind: Any = -1
    if link == 1:
        kind, at = _ethernet(data, at, end, row)
    elif link == 101 or link == 12 or link == 14 or link == 228 or link == 229:
        kind = 0x0800
    elif link == 0 or link == 108:
        if end - at < 4:
            row.status = CUT
            return
        at += 4
        kind = 0x0800
    elif link == 113:
        if end - at < 16:
            row.status = CUT
            return
        kind, at = _tagged(data, at + 16, end, be16(data, at + 14), row)
    elif link == 276:
        if end - at < 20:
            row.status = CUT
            return
        kind, at = _tagged(data, at + 20, end, be16(data, at), row)
    elif link == 247:
        infiniband(data, at, end, row)
        return
    elif link == 197:
        if end - at < 16:
            row.status = CUT
            return
        erf = data[at + 8]
        row.length = be16(data, at + 14)
        at += 16
        for _ in range(_DEPTH):
            # Extension headers: the top bit of each says that one more follows.
            if not erf & 0x80:
                break
            if end - at < 8:
                row.status = CUT
                return
            erf = (erf & 0x7F) | (data[at] & 0x80)
            at += 8
        if erf & 0x7F == 21:
            infiniband(data, at, end, row)
            return
        erf &= 0x7F
        if erf == 2 or erf == 11 or erf == 16 or erf == 20:
            # Ethernet, also coloured or hashed; two bytes stand before the frame: offset and padding.
            kind, at = _ethernet(data, at + 2, end, row)
        elif erf == 22 or erf == 23:
            kind = 0x0800
    if kind == 0x0800 or kind == 0x86DD:
        _above_ip(data, at, end, row)
    elif kind == 0x0806:
        row.transport = ARP
    elif kind == 0x8915:
        # RoCE version 1: a GRH right above Ethernet.
        if end - at < 40:
            row.status = CUT
            return
        row.ip = 6
        row.src_high = be64(data, at + 8)
        row.src = be64(data, at + 16)
        row.dst_high = be64(data, at + 24)
        row.dst = be64(data, at + 32)
        rdma(data, at + 40, end, be16(data, at + 4), INFINIBAND_PACKET, row)
        row.icrc = invariant(data, at, at + 40, be16(data, at + 4), end, 6, True)


@compiled
def decode(
    data: Bytes, starts: Any, kept: Any, sent: Any, times: Any, links: Any, count: Any, rows: Rows
) -> None:
    """Decode ``count`` packets, found by the searches above, into ``rows`` (columns ``layout.PACKETS``)."""
    for k in range(count):
        row = rows[k]
        row.time = times[k]
        row.length = sent[k]
        row.captured = kept[k]
        row.vlan = NO_VLAN
        row.outer_vlan = NO_VLAN
        row.src_high = 0
        row.src = 0
        row.dst_high = 0
        row.dst = 0
        row.payload = 0
        row.sequence = 0
        row.acknowledgement = 0
        row.qp = 0
        row.dma_length = 0
        row.ethertype = 0
        row.source_port = 0
        row.destination_port = 0
        row.ip = 0
        row.protocol = 0
        row.transport = 0
        row.opcode = 0
        row.flags = 0
        row.ecn = 0
        row.status = 0
        row.syndrome = 0
        row.icrc = NO_ICRC
        _frame(data, starts[k], starts[k] + kept[k], links[k], row)
