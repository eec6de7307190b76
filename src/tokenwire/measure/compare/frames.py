"""Frames that messages of gloo make on Ethernet: those with data, and acknowledgements, which TCP sends when it sees fit.

Symbols: m messages of L bytes from i to j, MSS = MTU - 52 (IPv4 20, TCP 20, timestamps 12). A data record is 48 + L bytes in
ceil((48+L)/MSS) segments; announcements and grants are a segment each. These are predicted. Acknowledgements by themselves are
not: one a message where the receiver is busy and takes what came meanwhile as one (Linux net/ipv4/tcp_ipv4.c, tcp_add_backlog),
none where data goes back at that moment, up to one for every segment (net/ipv4/tcp_input.c, tcp_enter_quickack_mode).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tokenwire.collectives.gloo import HEADER_BYTES
from tokenwire.collectives.tables import Table

FRAME_HEADER = 14 + 20 + 20 + 12
"""Ethernet, IPv4, TCP, TCP's timestamps: bytes of each frame besides its part of the stream."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class Frames:
    """By (sender, receiver): frames with data, acknowledgements by themselves at one a message, and at most."""

    data: Counter[Pair]
    acks: Counter[Pair]
    most_acks: Counter[Pair]


def frames(calls: Table, mtu: int) -> Frames:
    """Return the frames from each rank to each other for messages by pair and call (``PAIRS``, a row a call).

    >>> from tokenwire.collectives.gloo import messages
    >>> frames(messages("send", 2, 14_480), 1500)        # announced, then 11 segments; granted, and acknowledged
    Frames(data=Counter({(0, 1): 12, (1, 0): 1}), acks=Counter({(1, 0): 1}), most_acks=Counter({(1, 0): 12, (0, 1): 1}))
    """
    mss = mtu - (FRAME_HEADER - 14)
    data, acks = Counter[Pair](), Counter[Pair]()
    for src, dst, payload, count in calls.tolist():
        segments = int(-(-(HEADER_BYTES + payload / count) // mss))
        data[src, dst] += count * (segments + 1)
        data[dst, src] += count
        acks[dst, src] += count
    return Frames(data, acks, Counter({(dst, src): number for (src, dst), number in data.items()}))
