"""What gloo puts on TCP for a call: payload and messages of each rank.

Every message costs 144 bytes more in total over the connection: 48 with the data, 48 to announce it and 48 to grant it.

all_reduce cuts S bytes into max(ceil(S / 1 MiB), 2n) segments, rounded up to a multiple of n, and passes them round a ring
twice. reduce_scatter is carried out as an all_reduce; all_gather is a ring; all_to_all exchanges pairwise; broadcast is a
binomial tree, the nearest first; reduce is a ring reduce_scatter and a gather at the root; barrier has ceil(log2 n) rounds.

Source: measured with torch 2.13 over TCP between network hosts, 4 ranks, float32. How other group sizes divide, and that
reduce has the segments of all_reduce, is taken to follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire.collectives.algorithm import check
from tokenwire.collectives.tables import sizes
from tokenwire.errors import InputError, unknown

MESSAGE_BYTES = 144
"""Bytes of gloo's own for one message, both ways together."""
SEGMENT = 1 << 20
"""Bytes of the largest segment of an all_reduce."""
CALLS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "send", "recv", "barrier")


@dataclass(frozen=True)
class Sent:
    """What one rank sends in one call: ``payload`` bytes in ``messages``."""

    payload: int
    messages: int

    @property
    def bytes(self) -> int:
        """Return payload and gloo's own bytes, those that answer this rank's messages included."""
        return self.payload + MESSAGE_BYTES * self.messages


def segments(n: int, size_bytes: int) -> int:
    """Return into how many segments an all_reduce is cut.

    >>> segments(4, 4_000_000), segments(4, 100 * 2**20)
    (8, 100)
    """
    least = max(-(-size_bytes // SEGMENT), 2 * n)
    return -(-least // n) * n


def sent(op: str, n: int, size_bytes: int, rank: int = 0, root: int = 0) -> Sent:
    """Return what ``rank`` of ``n`` sends in one call on a full tensor of ``size_bytes`` (what all_gather puts out).

    For pieces that n does not divide, the mean over ranks is rounded down. Raises ``InputError`` for what gloo has not.

    >>> sent("all_reduce", 4, 4_000_000)                        # 2·3/4·4 MB in 2·3/4·8 messages
    Sent(payload=6000000, messages=12)
    """
    if op not in CALLS:
        raise unknown("gloo call", op[:80], CALLS)
    check(op, n, size_bytes)
    if not 0 <= rank < n:
        raise InputError(f"rank {rank}", rule=f"the group has ranks 0 to {n - 1}")
    if n == 1:
        return Sent(0, 0)
    S, place = size_bytes, (rank - root) % n
    if op in ("all_reduce", "reduce_scatter"):
        return Sent(2 * (n - 1) * S // n, 2 * (n - 1) * segments(n, S) // n)
    if op in ("all_gather", "all_to_all"):
        return Sent((n - 1) * S // n, n - 1)
    if op == "reduce":
        own = int(sizes(S, n)[rank])
        return Sent((n - 1) * S // n + (own if place else 0), (n - 1) * segments(n, S) // n + (segments(n, S) // n if place else 0))
    if op == "broadcast":
        children = _children(place, n)
        return Sent(children * S, children)
    if op == "barrier":
        return Sent(0, (n - 1).bit_length())
    return Sent(S, 1) if op == "send" else Sent(0, 0)


def _children(place: int, n: int) -> int:
    # In round k those who have the tensor, places 0 to 2^k - 1, hand it 2^k places on.
    return sum(1 for k in range((n - 1).bit_length()) if place < 1 << k and place + (1 << k) < n)
