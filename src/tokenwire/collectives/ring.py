"""The ring: every member sends only to the next one. Least bytes for large tensors, n-1 steps a phase.

S bytes in n pieces. reduce_scatter: n-1 steps, in step t member i sends piece i-t-1 to i+1, who adds it; at the end
member i has the whole sum of piece i. all_gather: in step t member i hands on piece i-t. all_reduce is the one after the
other: 2(n-1)/n·S sent by each. broadcast and reduce pass n pieces along the open chain 0, 1, ... n-1, one behind the other.

Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations", section 3; NVIDIA/nccl,
src/device/all_reduce.h, runRing (there the order of the pieces is the same but for a rotation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, Rounds, register
from tokenwire.collectives.tables import Ints, Table, joined, shifted, sizes, starts, table

_SOURCE = "Patarasuk and Yuan 2009, section 3; NVIDIA/nccl, src/device/all_reduce.h, runRing"


def _phase(n: int, S: int, lead: int, adds: bool, direction: int = 1) -> Table:
    # Step t: member i sends piece i - direction·(t + lead) to its neighbour in that direction.
    step = np.repeat(np.arange(n - 1, dtype=np.int64), n)
    i = np.tile(np.arange(n, dtype=np.int64), n - 1)
    piece = (i - direction * (step + lead)) % n
    at, size = starts(S, n), sizes(S, n)
    return table(step, i, (i + direction) % n, at[piece], size[piece], piece, adds)


def reduce_scatter_transfers(n: int, S: int, direction: int = 1) -> Table:
    """Return the transfers after which member i has the sum of piece i."""
    return _phase(n, S, 1, True, direction)


def all_gather_transfers(n: int, S: int, direction: int = 1) -> Table:
    """Return the transfers that hand every member's piece to all."""
    return _phase(n, S, 0, False, direction)


def all_reduce_transfers(n: int, S: int, direction: int = 1) -> Table:
    """Return the reduce_scatter and then the all_gather."""
    return joined([
        reduce_scatter_transfers(n, S, direction), shifted(all_gather_transfers(n, S, direction), steps=n - 1),
    ])  # fmt: skip


def _chain(n: int, S: int, members: Ints, adds: bool) -> Table:
    # Piece p leaves the k-th member of the chain in step p + k.
    piece = np.repeat(np.arange(n, dtype=np.int64), n - 1)
    k = np.tile(np.arange(n - 1, dtype=np.int64), n)
    at, size = starts(S, n), sizes(S, n)
    return joined([table(piece + k, members[k], members[k + 1], at[piece], size[piece], piece, adds)])


def broadcast_transfers(n: int, S: int) -> Table:
    """Return the chain from member 0 to member n-1, n pieces one behind the other."""
    return _chain(n, S, np.arange(n, dtype=np.int64), False)


def reduce_transfers(n: int, S: int) -> Table:
    """Return the chain from member n-1 down to member 0, each adding its own."""
    return _chain(n, S, np.arange(n, dtype=np.int64)[::-1], True)


def _around(n: int, sent: Ints, direction: int = 1) -> Edges:
    i = np.arange(n, dtype=np.int64)
    return Edges(i, (i + direction) % n, sent)


def reduce_scatter_edges(n: int, S: int, direction: int = 1) -> Edges:
    """Return S less the member's own piece, to the next member."""
    return _around(n, S - sizes(S, n), direction)


def all_gather_edges(n: int, S: int, direction: int = 1) -> Edges:
    """Return S less the receiver's own piece, to the next member."""
    return _around(n, S - np.roll(sizes(S, n), -direction), direction)


def all_reduce_edges(n: int, S: int, direction: int = 1) -> Edges:
    """Return the sum of both phases: 2(n-1)/n·S where n divides S."""
    scattered, gathered = reduce_scatter_edges(n, S, direction), all_gather_edges(n, S, direction)
    return Edges(scattered.src, scattered.dst, scattered.bytes + gathered.bytes)


def _chain_edges(n: int, S: int, members: Ints) -> Edges:
    return Edges(members[:-1], members[1:], np.full(n - 1, S, dtype=np.int64))


def broadcast_edges(n: int, S: int) -> Edges:
    """Return the whole tensor from each member to the next; the last one sends nothing."""
    return _chain_edges(n, S, np.arange(n, dtype=np.int64))


def reduce_edges(n: int, S: int) -> Edges:
    """Return the whole tensor from each member to the one before; member 0 sends nothing."""
    return _chain_edges(n, S, np.arange(n, dtype=np.int64)[::-1])


def _rounds(phases: int) -> Rounds:
    def rounds(n: int, S: int) -> Iterator[Round]:
        yield Round(phases * (n - 1), S / n, (1,))

    return rounds


def _count(phases: int) -> Callable[[int], int]:
    return lambda n: phases * n * (n - 1)


def _chain_rounds(n: int, S: int) -> Iterator[Round]:
    # n pieces one behind the other over n-1 hops: 2n-2 steps until the last piece has arrived.
    yield Round(2 * n - 2, S / n, (1,))


for _op, _transfers, _edges, _phases in (
    ("all_reduce", all_reduce_transfers, all_reduce_edges, 2),
    ("all_gather", all_gather_transfers, all_gather_edges, 1),
    ("reduce_scatter", reduce_scatter_transfers, reduce_scatter_edges, 1),
):
    register(Algorithm(_op, "ring", _transfers, _edges, _rounds(_phases), _count(_phases), _SOURCE))
for _op, _along, _pairs in (
    ("broadcast", broadcast_transfers, broadcast_edges), ("reduce", reduce_transfers, reduce_edges),
):  # fmt: skip
    register(Algorithm(_op, "ring", _along, _pairs, _chain_rounds, _count(1), _SOURCE))
