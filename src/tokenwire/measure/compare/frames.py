"""Frames that messages of gloo make on Ethernet: an estimate, for TCP itself decides when to acknowledge.

Symbols: m messages of L bytes on average from i to j, MSS = MTU - 52 (IPv4 20, TCP 20, timestamps 12). A data record is 48 + L bytes in
ceil((48+L)/MSS) segments; announcements and grants are a segment each. Acknowledgements by themselves lie between one a message
(a receiver that is busy reading takes what came meanwhile as one: Linux net/ipv4/tcp_ipv4.c, tcp_add_backlog) and one every second
full segment (RFC 1122, 4.2.3.2). The lower end is what is compared, for receivers here are always busy.
"""

from __future__ import annotations

from tokenwire.collectives.gloo import HEADER_BYTES
from tokenwire.collectives.tables import Table

FRAME_HEADER = 14 + 20 + 20 + 12
"""Ethernet, IPv4, TCP, TCP's timestamps: bytes of each frame besides its part of the stream."""


def frames(table: Table, mtu: int, *, every_second: bool = False) -> dict[tuple[int, int], int]:
    """Return the frames from each rank to each other for messages by pair (``PAIRS``).

    ``every_second``: with an acknowledgement for every second full segment, the most there are.

    >>> from tokenwire.collectives.gloo import messages
    >>> frames(messages("send", 2, 14_480), 1500)        # announced, then 11 segments; granted and acknowledged
    {(0, 1): 12, (1, 0): 2}
    >>> frames(messages("send", 2, 14_480), 1500, every_second=True)
    {(0, 1): 12, (1, 0): 6}
    """
    mss = mtu - (FRAME_HEADER - 14)
    out: dict[tuple[int, int], int] = {}
    for src, dst, payload, count in table.tolist():
        segments = int(-(-(HEADER_BYTES + payload / count) // mss))
        out[src, dst] = out.get((src, dst), 0) + count * (segments + 1)
        out[dst, src] = out.get((dst, src), 0) + count * (1 + (segments // 2 if every_second else 1))
    return out
