"""The checks that guard a packet: ones' complement sums of IP and TCP, FCS, and InfiniBand's ICRC and VCRC.

FCS and ICRC are the same CRC-32 (x^32 + x^26 + x^23 + x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 +
x + 1, bits of a byte lowest first, complemented), which zlib computes. Both go on the wire lowest byte first.
"""

from __future__ import annotations

import zlib
from functools import cache


def internet_checksum(data: bytes) -> int:
    """Return the 16-bit ones' complement of the ones' complement sum of ``data`` (RFC 1071).

    >>> hex(internet_checksum(bytes.fromhex("0001f203f4f5f6f7")))       # RFC 1071, section 3: the sum is ddf2
    '0x220d'
    """
    total = int.from_bytes(data + b"\0" * (len(data) % 2), "big") % 0xFFFF
    # A sum of 0 modulo 0xFFFF is 0xFFFF in ones' complement, unless every bit is 0.
    return 0xFFFF ^ (total or (0xFFFF if any(data) else 0))


def fcs(frame: bytes) -> bytes:
    """Return the four bytes of the frame check sequence over ``frame`` (addresses to payload).

    >>> fcs(b"123456789").hex()                                # the standard's check value CBF43926, lowest byte first
    '2639f4cb'
    """
    return zlib.crc32(frame).to_bytes(4, "little")


def masked_ipv4(ip: bytes, rest: bytes) -> bytes:
    """Return what the ICRC of RoCEv2 over IPv4 covers: ``rest`` begins with UDP and ends with the padding.

    Eight bytes of ones stand for the local route header; type of service, time to live and header checksum, the UDP
    checksum and the BTH byte with FECN and BECN are ones, since switches may change them.
    Source: InfiniBand Architecture Specification, annex A17.3.
    """
    masked = bytearray(b"\xff" * 8 + ip + rest)
    at = 8
    masked[at + 1] = masked[at + 8] = 0xFF
    masked[at + 10 : at + 12] = b"\xff\xff"
    return _masked_transport(masked, at + len(ip))


def masked_ipv6(ip: bytes, rest: bytes) -> bytes:
    """Return what the ICRC of RoCEv2 over IPv6 covers: traffic class, flow label and hop limit are ones."""
    masked = bytearray(b"\xff" * 8 + ip + rest)
    at = 8
    masked[at] |= 0x0F
    masked[at + 1 : at + 4] = b"\xff\xff\xff"
    masked[at + 7] = 0xFF
    return _masked_transport(masked, at + len(ip))


def _masked_transport(masked: bytearray, udp: int) -> bytes:
    masked[udp + 6 : udp + 8] = b"\xff\xff"
    masked[udp + 8 + 4] = 0xFF
    return bytes(masked)


def masked_infiniband(lrh: bytes, grh: bytes, rest: bytes) -> bytes:
    """Return what the ICRC covers on InfiniBand: ``rest`` begins with the BTH and ends with the padding.

    Inside a subnet only the virtual lane is masked; with a global route the whole LRH is, and in the GRH traffic class,
    flow label and hop limit. Source: InfiniBand Architecture Specification, volume 1, chapter 7.8.1.
    """
    masked = bytearray(lrh + grh + rest)
    if grh:
        masked[:8] = b"\xff" * 8
        masked[8] |= 0x0F
        masked[9:12] = b"\xff\xff\xff"
        masked[15] = 0xFF
    else:
        masked[0] |= 0xF0
    masked[len(lrh) + len(grh) + 4] = 0xFF
    return bytes(masked)


def icrc(masked: bytes) -> bytes:
    """Return the four bytes of the invariant CRC over bytes already masked.

    >>> lrh, bth = bytes.fromhex("7012375c000e17d2"), bytes.fromhex("0a2024870087b1b3000dec2a")
    >>> rest = bytes.fromhex("01710a1c015d400238f27a050000000e" "bb884d85fd5cfba4728bc0690ed4" "0000")
    >>> icrc(masked_infiniband(lrh, b"", bth + rest)).hex()     # the specification's sample packet, chapter 7.8.3
    '9625b75a'
    """
    return zlib.crc32(masked).to_bytes(4, "little")


@cache
def _vcrc_table() -> tuple[int, ...]:
    # The polynomial 0x100B with its bits reversed: 0xD008.
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0xD008 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


def vcrc(packet: bytes) -> bytes:
    """Return the two bytes of the variant CRC over a packet from LRH to ICRC: x^16 + x^12 + x^3 + x + 1.

    Source: InfiniBand Architecture Specification, volume 1, chapter 7.8.2.
    """
    table, crc = _vcrc_table(), 0xFFFF
    for byte in packet:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return (crc ^ 0xFFFF).to_bytes(2, "little")
