"""all_to_all and all_to_allv: every member gives each other one its piece of the tensor. Piece j of member i becomes piece i of member j.

Both are one matrix of bytes, row = sender, column = receiver; of all_to_all all rows are ``sizes(S, n)``, so that member j has
n·sizes(S, n)[j] afterwards. The diagonal stays where it is.

- ``pairwise``: n-1 steps, in step t member i sends to i+t.
- ``linear``: everything at once.
- ``pxn``: members stand in nodes of g = gcd(n, 8); a piece for another node goes inside the node first, to the member on the
  receiver's rail, who sends it on. So between nodes only members of one rail talk: N-1 partners each in place of n-g. Written out
  in two steps, inside and then outside; NCCL lets a piece's parts follow each other.

A member's memory is its tensor and, behind it, what it holds for others: places from the tensor's end on are that (``pxn``).

Source: Thakur, Rabenseifner and Gropp 2005, section 4.4 (pairwise exchange); NVIDIA/nccl, grouped ncclSend and ncclRecv (linear);
NVIDIA/nccl, src/graph/paths.cc, ncclTopoComputePaths (PXN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tokenwire.collectives.algorithm import UNEVEN, Algorithm, Edges, Round, Rounds, register
from tokenwire.collectives.hierarchical import domains_of
from tokenwire.collectives.tables import Ints, Table, joined, sizes, table


def even(n: int, S: int) -> Ints:
    """Return the matrix of an all_to_all: every member gives away S bytes.

    >>> even(2, 5).tolist()
    [[3, 2], [3, 2]]
    """
    return np.broadcast_to(sizes(S, n), (n, n))


def placed(matrix: Ints) -> tuple[Ints, Ints]:
    """Return where piece (i, j) begins at its sender and at its receiver, each of the matrix' shape."""
    return np.cumsum(matrix, axis=1) - matrix, np.cumsum(matrix, axis=0) - matrix


def pairwise_transfers(matrix: Ints) -> Table:
    """Return n-1 steps of n transfers."""
    n = matrix.shape[0]
    t = np.repeat(np.arange(1, n, dtype=np.int64), n)
    i = np.tile(np.arange(n, dtype=np.int64), max(n - 1, 0))
    j = (i + t) % n
    offset, to = placed(matrix)
    return table(t - 1, i, j, offset[i, j], matrix[i, j], j, to=to[i, j])


def linear_transfers(matrix: Ints) -> Table:
    """Return all transfers in one step."""
    out = pairwise_transfers(matrix)
    out["step"] = 0
    return out


def pxn_transfers(matrix: Ints) -> Table:
    """Return two steps: inside the nodes, also what others send on; then along the rails."""
    n = matrix.shape[0]
    g, _ = domains_of(n)
    offset, to = placed(matrix)
    i, j = (side.reshape(-1) for side in np.indices((n, n)))
    i, j = i[i != j], j[i != j]
    relay = i // g * g + j % g
    near, rail = i // g == j // g, i % g == j % g
    direct = near | rail
    own = table(np.where(near, 0, 1)[direct], i[direct], j[direct], offset[i, j][direct], matrix[i, j][direct], j[direct],
                  to=to[i, j][direct])  # fmt: skip
    i, j, relay = i[~direct], j[~direct], relay[~direct]
    order = np.lexsort((i, j, relay))
    i, j, relay, size = i[order], j[order], relay[order], matrix[i, j][order]
    # What a member holds for others lies piece after piece, by receiver and sender.
    before = np.cumsum(size) - size
    held = before - before[np.searchsorted(relay, relay)]
    gathered = table(0, i, relay, offset[i, j], size, j, to=matrix.sum(axis=0)[relay] + held)
    passed_on = table(1, relay, j, matrix.sum(axis=1)[relay] + held, size, j, to=to[i, j])
    return joined([own, gathered, passed_on])


def all_pairs(matrix: Ints) -> Edges:
    """Return every pair of members with its piece."""
    n = matrix.shape[0]
    i = np.repeat(np.arange(n, dtype=np.int64), max(n - 1, 0))
    j = np.tile(np.arange(max(n - 1, 0), dtype=np.int64), n)
    j += j >= i
    return Edges(i, j, matrix[i, j])


def pxn_edges(matrix: Ints) -> Edges:
    """Return the pairs inside the nodes and those along the rails."""
    return Edges(*(np.concatenate(pair) for pair in zip(*_pxn_parts(matrix), strict=True)))


def _pxn_parts(matrix: Ints) -> tuple[Edges, Edges]:
    n = matrix.shape[0]
    g, N = domains_of(n)
    by_node = matrix.reshape(N, g, N, g)
    node, src, dst = (side.reshape(-1) for side in np.indices((N, g, g)))
    apart = src != dst
    inside = Edges((node * g + src)[apart], (node * g + dst)[apart], by_node.sum(axis=2).reshape(-1)[apart])
    here, there, rail = (side.reshape(-1) for side in np.indices((N, N, g)))
    far = here != there
    return inside, Edges((here * g + rail)[far], (there * g + rail)[far], by_node.sum(axis=1).reshape(-1)[far])


def pairwise_rounds(matrix: Ints) -> Iterator[Round]:
    """Yield n-1 steps."""
    i = np.arange(matrix.shape[0], dtype=np.int64)
    for t in range(1, i.size):
        j = (i + t) % i.size
        yield Round(1, 1.0, src=i, dst=j, each=matrix[i, j])


def linear_rounds(matrix: Ints) -> Iterator[Round]:
    """Yield the one step."""
    e = all_pairs(matrix)
    yield Round(1, 1.0, src=e.src, dst=e.dst, each=e.bytes)


def pxn_rounds(matrix: Ints) -> Iterator[Round]:
    """Yield the step inside the nodes and the step along the rails."""
    for e in _pxn_parts(matrix):
        if e.src.size:
            yield Round(1, 1.0, src=e.src, dst=e.dst, each=e.bytes)


def _even_pairwise_rounds(n: int, S: int) -> Iterator[Round]:
    for t in range(1, n):
        yield Round(1, S / n, (t,))


def _even_linear_rounds(n: int, S: int) -> Iterator[Round]:
    yield Round(1, S / n, range(1, n))


def _even_pxn_rounds(n: int, S: int) -> Iterator[Round]:
    g, N = domains_of(n)
    if g > 1:
        node, src, dst = (side.reshape(-1) for side in np.indices((N, g, g)))
        apart = src != dst
        yield Round(1, S / n * N, src=(node * g + src)[apart], dst=(node * g + dst)[apart])
    if N > 1:
        yield Round(1, S / n * g, range(g, n, g))


def _sent(n: int, S: int) -> Ints:
    return S - sizes(S, n)


def _pxn_sent(n: int, S: int) -> Ints:
    g, N = domains_of(n)
    own = sizes(S, n)
    rail = np.tile(own.reshape(N, g).sum(axis=0), N)
    return (S - rail) + g * (rail - own)


@dataclass(frozen=True)
class Exchange:
    """One way to exchange any matrix of bytes, and what of it is shorter to say where all rows are alike (``even``)."""

    name: str
    transfers: Callable[[Ints], Table]
    edges: Callable[[Ints], Edges]
    rounds: Callable[[Ints], Iterator[Round]]
    even_rounds: Rounds
    even_sent: Callable[[int, int], Ints]
    source: str

    def as_algorithm(self, op: str) -> Algorithm:
        """Return it as the algorithm of an operation of S bytes for each member."""
        relays = 2 if self.name == "pxn" else 1
        return Algorithm(
            op, self.name, lambda n, S: self.transfers(even(n, S)), lambda n, S: self.edges(even(n, S)), self.even_rounds,
            lambda n: relays * n * (n - 1), self.source, sent=self.even_sent,
        )  # fmt: skip


EXCHANGES = {
    one.name: one
    for one in (
        Exchange("pairwise", pairwise_transfers, all_pairs, pairwise_rounds, _even_pairwise_rounds, _sent,
                 "Thakur, Rabenseifner and Gropp 2005, section 4.4"),
        Exchange("linear", linear_transfers, all_pairs, linear_rounds, _even_linear_rounds, _sent,
                 "NVIDIA/nccl, grouped ncclSend and ncclRecv"),
        Exchange("pxn", pxn_transfers, pxn_edges, pxn_rounds, _even_pxn_rounds, _pxn_sent,
                 "NVIDIA/nccl, src/graph/paths.cc, ncclTopoComputePaths (PXN)"),
    )
}  # fmt: skip

for exchange in EXCHANGES.values():
    register(exchange.as_algorithm("all_to_all"))
    register(exchange.as_algorithm(UNEVEN))
