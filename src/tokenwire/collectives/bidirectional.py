"""Two rings, one each way: the first half of the tensor goes to the next member, the second to the one before.

Each direction is the ring of ``ring.py``; a link that carries both directions at once is used fully.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tokenwire.collectives import ring
from tokenwire.collectives.algorithm import Algorithm, Edges, Round, Rounds, register
from tokenwire.collectives.tables import Table, joined, shifted, sizes, starts, table

_SOURCE = "the ring of Patarasuk and Yuan 2009, once each way"


def _both(make: Callable[[int, int, int], Table]) -> Callable[[int, int], Table]:
    def transfers(n: int, S: int) -> Table:
        first = S - S // 2
        return joined([make(n, first, 1), shifted(make(n, S // 2, -1), offset=first, chunk=n)])

    return transfers


def _both_edges(make: Callable[[int, int, int], Edges]) -> Callable[[int, int], Edges]:
    def edges(n: int, S: int) -> Edges:
        there, back = make(n, S - S // 2, 1), make(n, S // 2, -1)
        return Edges(*(np.concatenate(pair) for pair in zip(there, back, strict=True)))

    return edges


def _piecewise(n: int, S: int, lead: int, adds: bool) -> Table:
    # all_gather and reduce_scatter keep a member's piece together: each piece is halved, not the tensor.
    step = np.repeat(np.arange(n - 1, dtype=np.int64), n)
    i = np.tile(np.arange(n, dtype=np.int64), n - 1)
    at, size = starts(S, n), sizes(S, n)
    parts = []
    for direction in (1, -1):
        piece = (i - direction * (step + lead)) % n
        first = size[piece] - size[piece] // 2
        offset = at[piece] if direction == 1 else at[piece] + first
        length = first if direction == 1 else size[piece] // 2
        parts.append(table(step, i, (i + direction) % n, offset, length, piece, adds))
    return joined(parts)


def _piecewise_edges(lead: int) -> Callable[[int, int], Edges]:
    def edges(n: int, S: int) -> Edges:
        size, i = sizes(S, n), np.arange(n, dtype=np.int64)
        first, second = size - size // 2, size // 2
        # reduce_scatter keeps back the sender's own piece (lead 1), all_gather the receiver's (lead 0).
        kept = (first, second) if lead else (np.roll(first, -1), np.roll(second, 1))
        return Edges(
            np.concatenate([i, i]), np.concatenate([(i + 1) % n, (i - 1) % n]),
            np.concatenate([first.sum() - kept[0], second.sum() - kept[1]]),
        )  # fmt: skip

    return edges


def _rounds(phases: int) -> Rounds:
    def rounds(n: int, S: int) -> Iterator[Round]:
        yield Round(phases * (n - 1), S / n / 2, (1, -1))

    return rounds


register(
    Algorithm(
        "all_reduce", "bidirectional", _both(ring.all_reduce_transfers), _both_edges(ring.all_reduce_edges), _rounds(2),
        lambda n: 4 * n * (n - 1), _SOURCE,
    )
)  # fmt: skip
for _op, _lead in (("all_gather", 0), ("reduce_scatter", 1)):
    register(
        Algorithm(
            _op, "bidirectional", lambda n, S, lead=_lead: _piecewise(n, S, lead, lead == 1),  # type: ignore[misc]
            _piecewise_edges(_lead), _rounds(1), lambda n: 2 * n * (n - 1), _SOURCE,
        )
    )  # fmt: skip
