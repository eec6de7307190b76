"""Flows of a capture: a table that grows as packets come, one row a flow, compiled.

Sequence numbers tell what was sent twice. Of RDMA a flow expects packet sequence numbers one after the other (modulo
2^24), of TCP bytes (modulo 2^32). What lies ahead of the expected is a gap, what lies behind is repeated (sent again,
or late because paths differ: a capture alone cannot tell the two apart). Acknowledgements and congestion notifications
carry no sequence of their own and are counted apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenwire.compiled import compiled
from tokenwire.wire.capture.layout import INFINIBAND_PACKET, ROCEV2, TCP, UET

FLOWS = np.dtype(
    [
        ("src_high", "u8"), ("src", "u8"), ("dst_high", "u8"), ("dst", "u8"), ("packets", "i8"), ("bytes", "i8"),
        ("payload", "i8"), ("repeated", "i8"), ("repeated_bytes", "i8"), ("gaps", "i8"), ("messages", "i8"),
        ("acknowledgements", "i8"), ("refusals", "i8"), ("notifications", "i8"), ("marked", "i8"), ("bursts", "i8"),
        ("burst_bytes", "i8"), ("largest_burst", "i8"), ("first", "i8"), ("last", "i8"), ("next", "i8"), ("qp", "u4"),
        ("source_port", "u2"), ("destination_port", "u2"), ("transport", "u1"), ("ip", "u1"), ("begun", "u1"),
    ]
)  # fmt: skip
"""Columns of flows: ``bytes`` are of frames as sent, ``payload`` of the application (repeated ones too), ``messages``
begun, ``refusals`` negative acknowledgements, ``notifications`` of congestion (CNP), ``marked`` packets with congestion
experienced, ``largest_burst`` payload bytes; times in ns. A burst ends where nothing comes for a given time."""

BINS = 4096
"""Intervals that the volume over time is kept in; when they do not suffice, two become one."""


@compiled
def _mix(value: Any, key: Any) -> Any:
    value = (value ^ np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@compiled
def place(
    slots: Any,
    flows: Any,
    used: Any,
    transport: Any,
    src_high: Any,
    src: Any,
    dst_high: Any,
    dst: Any,
    source_port: Any,
    destination_port: Any,
    qp: Any,
) -> tuple[Any, Any]:
    """Return (slot, flow) of a key: flow -1 where it is new."""  # fmt: skip
    h = np.uint64(transport + 1)
    h = _mix(h, src_high)
    h = _mix(h, src)
    h = _mix(h, dst_high)
    h = _mix(h, dst)
    h = _mix(
        h,
        np.uint64(source_port) << np.uint64(48)
        | np.uint64(destination_port) << np.uint64(32)
        | np.uint64(qp),
    )
    mask = np.uint64(len(slots) - 1)
    at = h & mask
    while True:
        flow = slots[np.int64(at)]
        if flow < 0:
            return np.int64(at), -1
        row = flows[flow]
        if (
            row.src == src and row.dst == dst and row.qp == qp and row.source_port == source_port
            and row.destination_port == destination_port and row.transport == transport
            and row.src_high == src_high and row.dst_high == dst_high
        ):  # fmt: skip
            return np.int64(at), flow
        at = (at + np.uint64(1)) & mask


@compiled
def _sequence(row: Any, flow: Any) -> None:
    if row.transport == TCP:
        size = np.int64(row.payload) + (1 if row.flags & 2 else 0)
        if size == 0:
            return
        sequence = np.int64(row.sequence)
        if flow.begun:
            ahead = (sequence - flow.next) & 0xFFFFFFFF
            if ahead >= 0x80000000:
                behind = 0x100000000 - ahead
                flow.repeated += 1
                flow.repeated_bytes += min(np.int64(row.payload), behind)
                if size <= behind:
                    return
            elif ahead:
                flow.gaps += 1
        flow.begun = 1
        flow.next = (sequence + size) & 0xFFFFFFFF
        if row.payload:
            flow.messages += row.flags >> 3 & 1
        return
    operation = row.opcode & 31
    mask = 0xFFFFFFFF if row.transport == UET else 0xFFFFFF
    if row.transport == UET:
        if row.opcode != 2 and row.opcode != 3:
            if row.opcode >= 7 and row.opcode <= 9:
                flow.acknowledgements += 1
            if row.opcode == 10 or row.opcode == 12:
                flow.refusals += 1
            return
    elif row.opcode == 0x81:
        flow.notifications += 1
        return
    elif row.opcode >= 0x80:
        return
    elif operation == 17 or operation == 18:
        # Bits 6 and 5 of the syndrome: 00 acknowledged, 01 receiver not ready, 11 refused.
        if row.syndrome >> 5 & 3:
            flow.refusals += 1
        else:
            flow.acknowledgements += 1
        return
    elif operation in (0, 4, 5, 6, 10, 11, 23):
        # The first or only packet of a SEND or WRITE.
        flow.messages += 1
    if flow.begun:
        ahead = (np.int64(row.sequence) - flow.next) & mask
        if ahead > mask >> 1:
            flow.repeated += 1
            flow.repeated_bytes += row.payload
            return
        if ahead:
            flow.gaps += 1
    # A READ request takes as many numbers as its answer has packets, which it does not say.
    flow.begun = 0 if operation == 12 and row.transport != UET else 1
    flow.next = (np.int64(row.sequence) + 1) & mask


@compiled
def tally(
    rows: Any, begin: Any, slots: Any, flows: Any, used: Any, pause: Any, opcodes: Any
) -> tuple[Any, Any]:
    """Add packets from ``begin`` on to the flows; return (next packet, flows in use).

    Stops early when the table of flows, or half of ``slots``, is full. A gap of ``pause`` ns ends a burst.
    ``opcodes`` (256, 2) counts packets and payload bytes by BTH opcode.
    """
    room = min(len(flows), len(slots) // 2)
    for k in range(begin, len(rows)):
        row = rows[k]
        rdma = row.transport == ROCEV2 or row.transport == INFINIBAND_PACKET or row.transport == UET
        source_port = 0 if rdma else np.int64(row.source_port)
        destination_port = 0 if rdma else np.int64(row.destination_port)
        slot, at = place(
            slots, flows, used, row.transport, row.src_high, row.src, row.dst_high, row.dst,
            source_port, destination_port, row.qp,
        )  # fmt: skip
        if at < 0:
            if used >= room:
                return k, used
            at = used
            used += 1
            slots[slot] = at
            flow = flows[at]
            flow.transport = row.transport
            flow.ip = row.ip
            flow.src_high = row.src_high
            flow.src = row.src
            flow.dst_high = row.dst_high
            flow.dst = row.dst
            flow.source_port = source_port
            flow.destination_port = destination_port
            flow.qp = row.qp
            flow.first = row.time
            flow.last = row.time
        flow = flows[at]
        flow.packets += 1
        flow.bytes += row.length
        flow.payload += row.payload
        if row.ecn == 3:
            flow.marked += 1
        if row.payload:
            if row.time - flow.last > pause or flow.bursts == 0:
                flow.bursts += 1
                flow.burst_bytes = 0
            flow.burst_bytes += row.payload
            flow.largest_burst = max(flow.largest_burst, flow.burst_bytes)
        flow.first = min(flow.first, row.time)
        flow.last = max(flow.last, row.time)
        if row.transport == ROCEV2 or row.transport == INFINIBAND_PACKET:
            opcodes[row.opcode, 0] += 1
            opcodes[row.opcode, 1] += row.payload
        if rdma or row.transport == TCP:
            _sequence(row, flow)
    return len(rows), used


@compiled
def spread(rows: Any, bins: Any, start: Any, width: Any, high: Any, low: Any) -> Any:
    """Add frame bytes of packets to ``bins`` (2, n) of ``width`` ns from ``start`` ns; return the width, doubled as needed.

    The first row of bins is what the host with address (``high``, ``low``) sent, the second all else. Packets before ``start`` count
    in the first interval.
    """
    count = bins.shape[1]
    for k in range(len(rows)):
        after = max(rows[k].time - start, 0)
        while after // width >= count:
            half = count // 2
            for way in range(2):
                for i in range(half):
                    bins[way, i] = bins[way, 2 * i] + bins[way, 2 * i + 1]
                bins[way, half:] = 0
            width *= 2
        way = 0 if rows[k].src == low and rows[k].src_high == high and rows[k].ip != 0 else 1
        bins[way, after // width] += rows[k].length
    return width


@compiled
def rehash(slots: Any, flows: Any, used: Any) -> None:
    """Put the flows in use into empty ``slots``."""
    for i in range(used):
        row = flows[i]
        slot, _ = place(
            slots, flows, used, row.transport, row.src_high, row.src, row.dst_high, row.dst,
            row.source_port, row.destination_port, row.qp,
        )  # fmt: skip
        slots[slot] = i
