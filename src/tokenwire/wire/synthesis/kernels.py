"""The loop that writes packets of RoCEv2, compiled: headers from columns, checks over what is written.

CRC-32 is linear: bytes of zero after a state change it by a fixed map, kept as tables for 2^p bytes, so a payload of
zeros costs a few look-ups. A payload of other bytes is read eight at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenwire.compiled import compiled
from tokenwire.fabric.fivetuple import flow_label, labelled_port
from tokenwire.wire.headers import FCS
from tokenwire.wire.transports.ethernet import MINIMUM_FRAME

DATA, ACKNOWLEDGEMENT = 0, 1

SHORTEST = MINIMUM_FRAME - FCS.size
"""Bytes that a captured frame has at least: the FCS is not kept."""

(ETH_SRC, IP, IP4_LENGTH, IP4_ID, IP4_CHECK, IP_SRC, IP_DST, IP6_LENGTH, IP6_LABEL, UDP, UDP_SOURCE,
 UDP_LENGTH, UDP_CHECK, BTH, OPCODE, PAD, QP, ACK_REQUEST, PSN, HEADERS_END, POSITIONS) = range(21)  # fmt: skip
"""Indices of ``at``: where in a packet the fields begin that differ from packet to packet, in bytes."""


_flow_label, _labelled_port = compiled(flow_label), compiled(labelled_port)


@compiled
def crc_tables() -> Any:
    """Return eight tables of CRC-32: table k maps a byte to its effect k bytes later."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = np.uint32(byte)
        for _ in range(8):
            value = (value >> np.uint32(1)) ^ (
                np.uint32(0xEDB88320) if value & np.uint32(1) else np.uint32(0)
            )
        tables[0, byte] = value
    for byte in range(256):
        for k in range(1, 8):
            before = tables[k - 1, byte]
            tables[k, byte] = tables[0, before & np.uint32(0xFF)] ^ (before >> np.uint32(8))
    return tables


@compiled
def zero_tables(tables: Any) -> Any:
    """Return maps of the state by 2^p bytes of zero, p from 0 to 16, each as four tables by byte of the state."""
    maps = np.zeros((17, 4, 256), np.uint32)
    for place in range(4):
        for byte in range(256):
            state = np.uint32(byte) << np.uint32(8 * place)
            maps[0, place, byte] = tables[0, state & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    for p in range(1, 17):
        for place in range(4):
            for byte in range(256):
                once = maps[p - 1, place, byte]
                maps[p, place, byte] = _mapped(maps[p - 1], once)
    return maps


@compiled
def _mapped(table: Any, state: Any) -> Any:
    return (
        table[0, state & np.uint32(0xFF)]
        ^ table[1, (state >> np.uint32(8)) & np.uint32(0xFF)]
        ^ table[2, (state >> np.uint32(16)) & np.uint32(0xFF)]
        ^ table[3, state >> np.uint32(24)]
    )


@compiled
def crc_zeros(maps: Any, state: Any, count: Any) -> Any:
    """Return the state after ``count`` (below 2^17) bytes of zero."""
    p = 0
    while count:
        if count & 1:
            state = _mapped(maps[p], state)
        count >>= 1
        p += 1
    return state


@compiled
def crc_bytes(tables: Any, state: Any, data: Any, at: Any, count: Any) -> Any:
    """Return the state after ``count`` bytes of ``data`` from ``at`` on."""
    end = at + count
    mask = np.uint32(0xFF)
    while end - at >= 8:
        low = state ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        state = (
            tables[7, low & mask]
            ^ tables[6, (low >> np.uint32(8)) & mask]
            ^ tables[5, (low >> np.uint32(16)) & mask]
            ^ tables[4, low >> np.uint32(24)]
            ^ tables[3, data[at + 4]]
            ^ tables[2, data[at + 5]]
            ^ tables[1, data[at + 6]]
            ^ tables[0, data[at + 7]]
        )
        at += 8
    while at < end:
        state = tables[0, (state ^ np.uint32(data[at])) & mask] ^ (state >> np.uint32(8))
        at += 1
    return state


@compiled
def _put(out: Any, at: Any, value: Any, size: Any) -> None:
    for k in range(size):
        out[at + k] = (value >> (8 * (size - 1 - k))) & 0xFF


@compiled
def _little(out: Any, at: Any, value: Any) -> None:
    for k in range(4):
        out[at + k] = (value >> (8 * k)) & 0xFF


@compiled
def _sum(data: Any, at: Any, count: Any) -> Any:
    # The sum of 16-bit words, not yet folded; an odd last byte is the high one of its word.
    total: Any = 0
    for k in range(at, at + count - 1, 2):
        total += np.int64(data[k]) << 8 | np.int64(data[k + 1])
    if count & 1:
        total += np.int64(data[at + count - 1]) << 8
    return total


@compiled
def _folded(total: Any) -> Any:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


@compiled
def _addresses(out: Any, base: Any, at: Any, version: Any, a: Any, i: Any, b: Any, j: Any) -> None:
    # The address plan of ``connection``: only node and NIC differ from the template, and all frames go to one next hop.
    _put(out, base + at[ETH_SRC] + 3, a, 2)
    out[base + at[ETH_SRC] + 5] = i
    if version == 4:
        out[base + at[IP_SRC] + 1] = i
        _put(out, base + at[IP_SRC] + 2, a + 1, 2)
        out[base + at[IP_DST] + 1] = j
        _put(out, base + at[IP_DST] + 2, b + 1, 2)
    else:
        _put(out, base + at[IP_SRC] + 6, i, 2)
        _put(out, base + at[IP_SRC] + 14, a + 1, 2)
        _put(out, base + at[IP_DST] + 6, j, 2)
        _put(out, base + at[IP_DST] + 14, b + 1, 2)


@compiled
def fill(
    out: Any,
    snap: Any,
    template: Any,
    at: Any,
    version: Any,
    M: Any,
    opcodes: Any,
    reth: Any,
    immediate: Any,
    messages: Any,
    content: Any,
    which: Any,
    index: Any,
    kinds: Any,
    times: Any,
    tables: Any,
    maps: Any,
) -> Any:
    """Write records of packets into ``out``; return the bytes written.

    ``opcodes`` are those of only, first, middle and last packets, and of acknowledgements; ``reth`` and ``immediate``
    the bytes of these headers, or 0; ``which``, ``index``, ``kinds``, ``times`` say of each packet its message, its
    number in it, whether it is an acknowledgement, and when its first bit passes, in ns.
    """  # fmt: skip
    base = 0
    seed = np.uint32(0xFFFFFFFF)
    scratch = np.empty(256, np.uint8)
    for _ in range(8):
        seed = tables[0, (seed ^ np.uint32(0xFF)) & np.uint32(0xFF)] ^ (seed >> np.uint32(8))
    for n in range(len(which)):
        message = messages[which[n]]
        size = np.int64(message.bytes)
        packets = max((size + M - 1) // M, 1)
        record = base
        base += 16
        for k in range(len(template)):
            out[base + k] = template[k]
        end = base + at[HEADERS_END]
        k = index[n]
        offset = k * M
        length = 0
        if kinds[n] == ACKNOWLEDGEMENT:
            _addresses(
                out, base, at, version, message.destination_node, message.destination_nic, message.source_node,
                message.source_nic,
            )  # fmt: skip
            opcode = opcodes[4]
            qp = np.int64(message.source_qp)
            number = np.int64(message.psn) + packets - 1
            out[end] = 0x1F
            _put(out, end + 1, np.int64(message.msn), 3)
            end += 4
            asks = 0
        else:
            _addresses(
                out, base, at, version, message.source_node, message.source_nic, message.destination_node,
                message.destination_nic,
            )  # fmt: skip
            last = k == packets - 1
            opcode = (
                opcodes[0] if packets == 1 else opcodes[1] if k == 0 else opcodes[3] if last else opcodes[2]
            )
            qp = np.int64(message.qp)
            number = np.int64(message.psn) + k
            length = min(M, size - offset)
            if k == 0 and reth:
                _put(out, end, np.uint64(message.va) >> np.uint64(32), 4)
                _put(out, end + 4, np.uint64(message.va) & np.uint64(0xFFFFFFFF), 4)
                _put(out, end + 8, np.int64(message.rkey), 4)
                _put(out, end + 12, size, 4)
                end += reth
            if last and immediate:
                _put(out, end, 0, 4)
                end += immediate
            asks = 1 if last else 0
        pad = -length % 4
        payload = end
        end += length + pad
        label = _flow_label(np.int64(message.source_qp), np.int64(message.qp))
        port = _labelled_port(label)
        out[base + at[OPCODE]] = opcode
        out[base + at[PAD]] = (out[base + at[PAD]] & 0xCF) | pad << 4
        _put(out, base + at[QP], qp, 3)
        out[base + at[ACK_REQUEST]] = asks << 7
        _put(out, base + at[PSN], number & 0xFFFFFF, 3)
        udp_size = end + 4 - (base + at[UDP])
        _put(out, base + at[UDP_SOURCE], port, 2)
        _put(out, base + at[UDP_LENGTH], udp_size, 2)
        _put(out, base + at[UDP_CHECK], 0, 2)
        if version == 4:
            _put(out, base + at[IP4_LENGTH], udp_size + 20, 2)
            _put(out, base + at[IP4_ID], number & 0xFFFF, 2)
            _put(out, base + at[IP4_CHECK], 0, 2)
            _put(out, base + at[IP4_CHECK], _folded(_sum(out, base + at[IP], 20)), 2)
        else:
            _put(out, base + at[IP6_LENGTH], udp_size, 2)
            # The flow label's low 16 bits, as ``build`` sets them.
            _put(out, base + at[IP6_LABEL], port, 2)
        if len(content):
            done = 0
            while done < length:
                begin = (message.content + offset + done) % len(content)
                part = min(length - done, len(content) - begin)
                out[payload + done : payload + done + part] = content[begin : begin + part]
                done += part
        else:
            out[payload : payload + length] = 0
        out[payload + length : end] = 0
        head = payload - (base + at[IP])
        for m in range(head):
            scratch[m] = out[base + at[IP] + m]
        if version == 4:
            scratch[1] = scratch[8] = scratch[10] = scratch[11] = 0xFF
        else:
            scratch[0] |= 0x0F
            scratch[1] = scratch[2] = scratch[3] = scratch[7] = 0xFF
        udp = at[UDP] - at[IP]
        scratch[udp + 6] = scratch[udp + 7] = 0xFF
        scratch[at[BTH] - at[IP] + 4] = 0xFF
        state = crc_bytes(tables, seed, scratch, 0, head)
        if len(content):
            state = crc_bytes(tables, state, out, payload, length)
            state = crc_zeros(maps, state, pad)
        else:
            state = crc_zeros(maps, state, length + pad)
        _little(out, end, np.int64(state ^ np.uint32(0xFFFFFFFF)))
        end += 4
        if version == 6:
            total = _sum(out, base + at[IP_SRC], 32) + udp_size + 17
            total += _sum(out, base + at[UDP], payload - (base + at[UDP]))
            if len(content):
                total += _sum(out, payload, length)
            total += _sum(out, end - 4, 4)
            check = _folded(total)
            _put(out, base + at[UDP_CHECK], check if check else 0xFFFF, 2)
        while end - base < SHORTEST:
            out[end] = 0
            end += 1
        kept = min(end - base, snap)
        _little(out, record, times[n] // 1_000_000_000)
        _little(out, record + 4, times[n] % 1_000_000_000)
        _little(out, record + 8, kept)
        _little(out, record + 12, end - base)
        base += kept
    return base
