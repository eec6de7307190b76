"""One call of gloo: its messages by pair, and what one member sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.collectives.algorithm import check
from tokenwire.collectives.gloo import exchange, ring, tree
from tokenwire.collectives.gloo.pairs import MESSAGE_BYTES, pairs, summed
from tokenwire.collectives.tables import Table
from tokenwire.errors import InputError, unknown

CALLS = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send", "recv", "barrier",
)  # fmt: skip
"""What can be asked for."""
_MOST_PAIRS = 1 << 26


@dataclass(frozen=True)
class Sent:
    """What one member sends in one call: ``payload`` bytes in ``messages``."""

    payload: int
    messages: int

    @property
    def bytes(self) -> int:
        """Return payload and gloo's own bytes, those that answer this member's messages included."""
        return self.payload + MESSAGE_BYTES * self.messages


def messages(
    op: str, n: int, size_bytes: int, *, item: int = 4, root: int = 0, sizes: npt.ArrayLike | None = None
) -> Table:  # fmt: skip
    """Return payload and messages by pair of members (``PAIRS``) of one call, ordered by sender and receiver.

    ``size_bytes`` is of the full tensor (what all_gather and gather put out, what the others take in), ``item`` of an
    element. ``sizes``, for all_to_all alone, is the n x n table of bytes from member to member where they differ. A send is from member 0 to member
    1 of a group of any size; a recv sends nothing. Raises ``InputError`` for a call, group or size that cannot be.

    >>> messages("all_reduce", 4, 4_000_000).tolist()[0]        # 2·3/4·4 MB in 2·3/4·8 messages, to the member before
    (0, 3, 6000000, 12)
    """
    _check(op, n, size_bytes, item, root)
    if op in ("send", "recv"):
        return exchange.send(size_bytes) if op == "send" else pairs([], [], [], [])
    if n == 1:
        return pairs([], [], [], [])
    if op in ("all_reduce", "reduce_scatter"):
        return summed(ring.all_reduce(n, size_bytes, item))
    if op == "reduce":
        return summed(ring.reduce(n, size_bytes, item, root))
    if op == "broadcast":
        return summed(tree.broadcast(n, size_bytes, root))
    if op == "barrier":
        return summed(exchange.barrier(n))
    if op == "all_to_all":
        return exchange.all_to_all(n, _sizes(n, size_bytes, sizes))
    if size_bytes % n:
        raise _uneven(op, n, size_bytes)
    if op == "all_gather":
        return summed(ring.all_gather(n, size_bytes))
    return exchange.gather(n, size_bytes, root) if op == "gather" else exchange.scatter(n, size_bytes, root)


def sent(op: str, n: int, size_bytes: int, rank: int = 0, root: int = 0) -> Sent:
    """Return what member ``rank`` sends in one call (see ``messages``).

    >>> sent("all_reduce", 4, 4_000_000), sent("all_reduce", 4, 4_000_000).bytes
    (Sent(payload=6000000, messages=12), 6001728)
    """
    if not 0 <= rank < max(n, 1):
        raise InputError(f"rank {rank}", rule=f"the group has ranks 0 to {n - 1}")
    own = messages(op, n, size_bytes, root=root)
    own = own[own["src"] == rank]
    return Sent(int(own["payload"].sum()), int(own["messages"].sum()))


def _check(op: str, n: int, size_bytes: int, item: int, root: int) -> None:
    if op not in CALLS:
        raise unknown("gloo call", op[:80], CALLS)
    check(op, n, size_bytes)
    if not 0 <= root < n:
        raise InputError(f"root {root}", rule=f"the group has ranks 0 to {n - 1}", nearest=str(min(max(root, 0), n - 1)))
    if not 1 <= item <= 16:
        raise InputError(f"an element of {item} B", rule="must be 1 to 16 B", nearest="4 B")
    if op == "all_to_all" and n * n > _MOST_PAIRS:
        raise InputError(f"all_to_all among {n:,} ranks", rule=f"is more than {_MOST_PAIRS:,} messages", nearest="8,192 ranks")


def _sizes(n: int, size_bytes: int, sizes: npt.ArrayLike | None) -> npt.NDArray[np.int64]:
    if sizes is None:
        if size_bytes % n:
            raise _uneven("all_to_all", n, size_bytes)
        return np.full((n, n), size_bytes // n, dtype=np.int64)
    table = np.asarray(sizes, dtype=np.int64)
    if table.shape != (n, n) or (table < 0).any():
        raise InputError("sizes of all_to_all", rule=f"must be a table of {n} x {n} numbers of bytes, none below 0")
    return table


def _uneven(op: str, n: int, size_bytes: int) -> InputError:
    return InputError(f"{op} of {size_bytes:,} B among {n} ranks", rule="gloo's shards are equal, so n must divide the size",
                      nearest=f"{-(-size_bytes // n) * n:,} B")  # fmt: skip
