"""What a switch hashes of a RoCEv2 packet, and how: addresses, UDP ports, and a 32-bit hash of the five.

A queue pair's UDP source port follows from the numbers of the two queue pairs, so that each is a flow of its own to a
switch. Numbers of queue pairs come from the NIC, and nobody can know them beforehand: the first of a connection is drawn by
``seed`` for (sender, receiver), the others of the connection follow it, as a library creates them one after the other.

A switch sees 13 bytes: source and destination address, protocol (17), source and destination port (4791). Hashes:

- ``crc32``: the CRC of IEEE 802.3 over the 13 bytes, in that order;
- ``toeplitz``: the hash of receive-side scaling over addresses and ports (12 bytes), with the key of its specification;
- ``mixed``: a 64-bit mix of the same numbers that has no structure: what an ideal hash would do.

Leaf, spine and core look at different bits: the hash turned by 8 bits a tier, modulo the number of equal ways. (With the same
bits everywhere, a spine would only see flows that agree in them, and leave most of its uplinks empty.)

Source: Linux, include/rdma/ib_verbs.h (rdma_calc_flow_label, rdma_flow_label_to_udp_sport);
NCCL, src/transport/net_ib (ncclIbConnect: NCCL_IB_QPS_PER_CONNECTION queue pairs, created in a loop); IEEE 802.3, clause
3.2.9; Microsoft, RSS hashing functions; Broadcom switches call the turning of bits hash offset selection.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
N = TypeVar("N", int, npt.NDArray[np.int64])
"""One number, or a column of them: the same rule for a packet and for all flows of a fabric."""

HASHES = ("crc32", "toeplitz", "mixed")
UDP, ROCE_PORT = 17, 4791
RSS_KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
"""The key of the verification suite of receive-side scaling."""


def mixed(src: Ints, dst: Ints, seed: int, salt: int) -> Bits:
    """Return a hash of each pair: SplitMix64's finalizer (Steele, Lea and Flood 2014) over sender, receiver and seed."""
    x = src.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + dst.astype(np.uint64)
    x ^= np.uint64((seed * 0xD1342543DE82EF95 + salt * 0xA0761D6478BD642F) % 2**64)
    return _finished(x)


def _finished(x: Bits) -> Bits:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def address(node: N, nic: N) -> N:
    """Return the IPv4 address 10.NIC.node as a number: one subnet a rail, as in a rail-optimised fabric; nodes count from 1.

    >>> hex(address(3, 1)), hex(address(np.array([3]), np.array([1]))[0])
    ('0xa010004', '0xa010004')
    """
    return (10 << 24 | nic << 16) + node + 1


def flow_label(source_qp: N, qp: N) -> N:
    """Return the 20-bit label of a flow between two queue pairs.

    Source: Linux, include/rdma/ib_verbs.h, rdma_calc_flow_label.
    """
    v = source_qp * qp  # below 2^48
    v = v ^ v >> 20
    v = v ^ v >> 40
    return v & 0xFFFFF


def labelled_port(label: N) -> N:
    """Return the UDP source port of a flow label, 0xC000 to 0xFFFF.

    Source: Linux, include/rdma/ib_verbs.h, rdma_flow_label_to_udp_sport.
    """
    return 0xC000 | (label & 0x3FFF) ^ label >> 14


def udp_source_port(source_qp: N, qp: N) -> N:
    """Return the UDP source port that a RoCEv2 flow between two queue pairs is spread by.

    >>> hex(udp_source_port(0x100, 0x100))
    '0xc004'
    >>> [hex(port) for port in udp_source_port(np.array([0x100, 0x101]), np.array([0x100, 0x102]))]
    ['0xc004', '0xc306']
    """
    return labelled_port(flow_label(source_qp, qp))


def queue_pairs(src: Ints, dst: Ints, which: Ints | int, seed: int) -> tuple[Ints, Ints]:
    """Return the numbers (24 bits, above the reserved 0 and 1) of both ends of queue pair ``which`` of each connection."""
    first, second = (
        (mixed(a, b, seed, salt) >> np.uint64(40)).astype(np.int64) for a, b, salt in ((src, dst, 11), (dst, src, 12))
    )
    return tuple(2 + (number + which) % ((1 << 24) - 2) for number in (first, second))  # type: ignore[return-value]


def hashed(source: Ints, destination: Ints, port: Ints, kind: str = "crc32") -> Bits:
    """Return the 32-bit hash (``mixed``: 64-bit) of each packet: addresses, UDP source port.

    >>> import zlib
    >>> a, b, port = np.array([0x0A000001]), np.array([0x0A000002]), np.array([0xC004])
    >>> int(hashed(a, b, port)[0]) == zlib.crc32(bytes.fromhex("0a000001 0a000002 11 c004 12b7"))
    True
    """
    if kind == "mixed":
        return _finished(mixed(source, destination, 0, 5) ^ port.astype(np.uint64))
    fields = [(source, 4), (destination, 4), (port, 2), (np.full_like(port, ROCE_PORT), 2)]
    if kind == "crc32":
        fields.insert(2, (np.full_like(port, UDP), 1))
    columns = [value >> (8 * i) & 0xFF for value, width in fields for i in reversed(range(width))]
    tables, constant = (_crc_tables if kind == "crc32" else _toeplitz_tables)(len(columns))
    out = np.full(port.shape, constant, dtype=np.uint32)
    for table, column in zip(tables, columns, strict=True):
        out ^= table[column]
    return out.astype(np.uint64)


def turned(bits: Bits, tier: int, kind: str) -> Bits:
    """Return what a switch of tier 0 (leaf), 1 ... looks at of a hash: turned right by 8 bits a tier."""
    width = 64 if kind == "mixed" else 32
    by = 8 * tier % width
    if not by:
        return bits
    low = (1 << width) - 1
    return (bits >> np.uint64(by) | bits << np.uint64(width - by)) & np.uint64(low)


@cache
def _crc_tables(length: int) -> tuple[list[npt.NDArray[np.uint32]], int]:
    # A CRC is linear but for a constant: that of the message is the XOR of what each of its bytes does at its place.
    import zlib

    constant = zlib.crc32(bytes(length))
    tables = []
    for place in range(length):
        one = [zlib.crc32(bytes(place) + bytes([v]) + bytes(length - place - 1)) ^ constant for v in range(256)]
        tables.append(np.array(one, dtype=np.uint32))
    return tables, constant


@cache
def _toeplitz_tables(length: int) -> tuple[list[npt.NDArray[np.uint32]], int]:
    # Each set bit of the message, from the left, adds the 32 bits of the key that begin at its place.
    key, bits = int.from_bytes(RSS_KEY, "big"), 8 * len(RSS_KEY)
    window = [key >> (bits - 32 - i) & 0xFFFFFFFF for i in range(8 * length)]
    tables = []
    for place in range(length):
        one = np.zeros(256, dtype=np.uint32)
        for bit in range(8):
            one[(np.arange(256) >> (7 - bit) & 1) == 1] ^= np.uint32(window[8 * place + bit])
        tables.append(one)
    return tables, 0
