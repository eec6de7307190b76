"""Decoding the headers of remote memory access, compiled: RoCEv2, InfiniBand, Ultra Ethernet. See ``decoding``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenwire.compiled import compiled
from tokenwire.wire.capture.finding import Bytes, be16, be24, be32, be64
from tokenwire.wire.capture.integrity import invariant
from tokenwire.wire.capture.layout import CUT, INFINIBAND_PACKET, MALFORMED, UET


@compiled
def rdma(data: Bytes, at: Any, end: Any, size: Any, transport: Any, row: Any) -> None:
    """Read a packet from its BTH on; ``size`` is its bytes as sent, to the end of the ICRC."""
    row.transport = transport
    if size < 16:
        row.status = MALFORMED
        return
    if end - at < 12:
        row.status = CUT
        return
    opcode = np.int64(data[at])
    row.opcode = opcode
    row.qp = be24(data, at + 5)
    row.sequence = be24(data, at + 9)
    row.flags = data[at + 8] >> 7 | data[at + 4] >> 7 << 1 | (data[at + 4] >> 6 & 1) << 2
    pad = np.int64(data[at + 1] >> 4 & 3)
    operation = opcode & 31
    extra = 0
    if opcode == 0x81:
        # A congestion notification has 16 reserved bytes.
        extra = 16
    elif opcode < 0x80:
        if opcode >> 5 == 2:
            extra += 4
        if opcode >> 5 == 3:
            extra += 8
        if operation == 6 or operation == 10 or operation == 11 or operation == 12:
            if end - at >= 12 + extra + 16:
                row.dma_length = be32(data, at + 12 + extra + 12)
            else:
                row.status = CUT
            extra += 16
        if (
            operation == 3
            or operation == 5
            or operation == 9
            or operation == 11
            or operation == 22
            or operation == 23
        ):
            extra += 4
        if operation == 13 or operation == 15 or operation == 16 or operation == 17 or operation == 18:
            if end - at >= 12 + extra + 4:
                row.syndrome = data[at + 12 + extra]
                row.acknowledgement = be24(data, at + 13 + extra)
            else:
                row.status = CUT
            extra += 4
        if operation == 18:
            extra += 8
        if operation == 19 or operation == 20:
            extra += 28
    payload = size - 16 - extra - pad
    if payload < 0:
        row.status = MALFORMED
        payload = 0
    row.payload = payload


@compiled
def uet(data: Bytes, at: Any, end: Any, size: Any, row: Any) -> None:
    """Read a packet of the Ultra Ethernet transport; ``size`` is its bytes as sent."""
    row.transport = UET
    if end - at < 12:
        row.status = CUT
        return
    kind, following = np.int64(data[at] >> 3), be16(data, at) >> 7 & 15
    row.opcode = kind
    row.sequence = be32(data, at + 4)
    row.qp = be16(data, at + 10)
    if kind == 2 or kind == 3:
        semantic = 44 if following == 3 else 32 if following == 2 else 20 if following == 1 else 0
        row.payload = max(size - 12 - semantic, 0)
    else:
        row.payload = 0


@compiled
def infiniband(data: Bytes, at: Any, end: Any, row: Any) -> None:
    """Read a packet of InfiniBand's link: LRH, GRH where there is one, and what stands above."""
    row.transport = INFINIBAND_PACKET
    if end - at < 8:
        row.status = CUT
        return
    following = data[at + 1] & 3
    row.dst = be16(data, at + 2)
    row.src = be16(data, at + 6)
    size = (be16(data, at + 4) & 0x7FF) * 4 - 8
    head = at
    at += 8
    if following == 3:
        if end - at < 40:
            row.status = CUT
            return
        row.src_high = be64(data, at + 8)
        row.src = be64(data, at + 16)
        row.dst_high = be64(data, at + 24)
        row.dst = be64(data, at + 32)
        row.ip = 6
        head = at
        at += 40
        size -= 40
    if following >= 2:
        rdma(data, at, end, size, INFINIBAND_PACKET, row)
        row.icrc = invariant(data, head, at, size, end, 6 if following == 3 else 0, following == 3)
