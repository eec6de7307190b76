"""What captures look like as files, and the columns that their packets become.

Sources: the IETF drafts on pcap and pcapng (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng) and the list of link
types at tcpdump.org.
"""

from __future__ import annotations

import numpy as np

MICROSECONDS, NANOSECONDS, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34
"""Magic numbers of pcap: times in µs, in ns, and the variant with eight more bytes a record."""
PCAPNG = 0x0A0D0D0A
"""First block of pcapng: the section header, which reads the same in both byte orders."""
GZIP = b"\x1f\x8b"

ETHERNET, ERF, INFINIBAND = 1, 197, 247
ERF_ETHERNET, ERF_INFINIBAND = 2, 21
"""Types of ERF records that are decoded (Endace, ERF types)."""
LINK_TYPES = {
    0: "BSD loopback", ETHERNET: "Ethernet", 12: "raw IP", 14: "raw IP", 101: "raw IP", 108: "OpenBSD loopback",
    113: "Linux cooked", ERF: "ERF", 228: "raw IPv4", 229: "raw IPv6", INFINIBAND: "InfiniBand", 276: "Linux cooked 2",
}  # fmt: skip
"""Link types that are decoded, by number."""

MAX_RECORD = 2**24
"""Bytes of the largest record that is believed; libpcap's own limit is 2^18 for Ethernet and 2^27 for USB."""

TRANSPORTS = ("other", "tcp", "udp", "rocev2", "infiniband", "uet", "icmp", "arp")
"""Names of the numbers in the column ``transport``."""
OTHER, TCP, UDP, ROCEV2, INFINIBAND_PACKET, UET, ICMP, ARP = range(len(TRANSPORTS))

COMPLETE, CUT, MALFORMED = 0, 1, 2
"""Column ``status``: headers all there; cut by the capture; lengths that contradict each other."""

NO_ICRC, ICRC_RIGHT, ICRC_WRONG, ICRC_CUT, ICRC_UNCLEAR = range(5)
"""Column ``icrc``: a packet without one; right; wrong; not checked since the capture kept too little; not checked since
the packet is a fragment, its lengths do not say where it stands, or it has headers of which no specification says how they count."""

PACKETS = np.dtype(
    [
        ("time", "i8"), ("src_high", "u8"), ("src", "u8"), ("dst_high", "u8"), ("dst", "u8"),
        ("length", "u4"), ("captured", "u4"), ("payload", "u4"), ("sequence", "u4"), ("acknowledgement", "u4"),
        ("qp", "u4"), ("dma_length", "u4"), ("ethertype", "u2"), ("vlan", "u2"), ("source_port", "u2"),
        ("destination_port", "u2"), ("ip", "u1"), ("protocol", "u1"), ("transport", "u1"), ("opcode", "u1"),
        ("flags", "u1"), ("ecn", "u1"), ("status", "u1"), ("syndrome", "u1"), ("icrc", "u1"), ("outer_vlan", "u2"),
    ]
)  # fmt: skip
"""Columns of decoded packets. ``time`` in ns; ``length`` as sent, ``captured`` as kept, ``payload`` the bytes of the
application (for RDMA without padding and ICRC), all in bytes; IPv4 addresses stand in ``src`` and ``dst``, IPv6 ones
in both halves, InfiniBand's LIDs in ``src`` and ``dst``; ``sequence`` is TCP's or the PSN; ``flags`` TCP's, or for RDMA
bit 0 ack requested, bit 1 FECN, bit 2 BECN; ``vlan`` is 0xFFFF where there is none, and the inner one of a frame with several tags, ``outer_vlan`` the outermost of
those, else 0xFFFF; ``syndrome`` is the AETH's."""

NO_VLAN = 0xFFFF
