"""Frames that messages of gloo make on Ethernet: an estimate, for TCP itself decides when to acknowledge.

Symbols: m messages of L bytes on average from i to j, m' and L' the other way, MSS = MTU - 52 (IPv4 20, TCP 20, timestamps 12). A data
record is 48 + L bytes in ceil((48+L)/MSS) segments; announcements and grants are a segment each; what receives acknowledges every
second full segment by itself (RFC 1122, 4.2.3.2), and the rest with what it sends anyway.
"""

from __future__ import annotations

from tokenwire.collectives.gloo import HEADER_BYTES
from tokenwire.collectives.tables import Table

FRAME_HEADER = 14 + 20 + 20 + 12
"""Ethernet, IPv4, TCP, TCP's timestamps: bytes of each frame besides its part of the stream."""


def frames(table: Table, mtu: int) -> dict[tuple[int, int], int]:
    """Return the frames from each rank to each other for messages by pair (``PAIRS``).

    >>> from tokenwire.collectives.gloo import messages
    >>> frames(messages("send", 2, 14_480), 1500)        # announced, then 11 segments; granted, and 5 acknowledgements
    {(0, 1): 12, (1, 0): 6}
    """
    mss = mtu - (FRAME_HEADER - 14)
    out: dict[tuple[int, int], int] = {}
    for src, dst, payload, count in table.tolist():
        segments = -(-(HEADER_BYTES + payload / count) // mss)
        out[src, dst] = out.get((src, dst), 0) + int(count * segments) + count
        out[dst, src] = out.get((dst, src), 0) + count + int(count * (segments // 2))
    return out
