"""NVLink SHARP: the switch adds and copies. The switch is member n of the transfers and edges.

all_reduce: member i asks the switch for the sum of piece i, which the switch pulls from all members, and writes it back to
the switch, which copies it to all. A member sends S + S/n and receives as much: S(n+1)/n where a ring moves 2S(n-1)/n, so
busbw may exceed the rate of a link, up to 2(n-1)/(n+1) times. reduce_scatter is the first half, all_gather the second.

Source: NVIDIA/nccl, src/device/all_reduce.h, RunWorkColl for NCCL_ALGO_NVLS (multimem.ld_reduce and multimem.st);
Klenk et al. 2020, "An in-network architecture for accelerating shared-memory multiprocessor collectives".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tokenwire.collectives.algorithm import Algorithm, Edges, Round, Rounds, register
from tokenwire.collectives.tables import Table, joined, sizes, starts, table

_SOURCE = "NVIDIA/nccl, src/device/all_reduce.h; Klenk et al. 2020"


def pull(n: int, S: int) -> Table:
    """Return piece i of every member into the switch, and the sum of it to member i."""
    member, piece = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    at, size, i = starts(S, n), sizes(S, n), np.arange(n)
    return joined([
        table(np.zeros(n * n, int), member, n, at[piece], size[piece], piece, True),
        table(np.ones(n, int), n, i, at[i], size, i),
    ])  # fmt: skip


def push(n: int, S: int, step: int) -> Table:
    """Return piece i of member i into the switch, and from there to all, beginning with ``step``."""
    member, piece = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    at, size, i = starts(S, n), sizes(S, n), np.arange(n)
    return joined([
        table(np.full(n, step), i, n, at[i], size, i),
        table(np.full(n * n, step + 1), n, member, at[piece], size[piece], piece),
    ])  # fmt: skip


def _edges(pulls: bool, pushes: bool) -> Callable[[int, int], Edges]:
    def edges(n: int, S: int) -> Edges:
        i, size = np.arange(n, dtype=np.int64), sizes(S, n)
        switch = np.full(n, n, dtype=np.int64)
        up = (S if pulls else 0) + (size if pushes else 0)
        down = (S if pushes else 0) + (size if pulls else 0)
        return Edges(
            np.concatenate([i, switch]), np.concatenate([switch, i]),
            np.concatenate([np.broadcast_to(up, n), np.broadcast_to(down, n)]).astype(np.int64),
        )  # fmt: skip

    return edges


all_reduce_edges = _edges(pulls=True, pushes=True)


def _rounds(pulls: bool, pushes: bool) -> Rounds:
    def rounds(n: int, S: int) -> Iterator[Round]:
        # Reading and writing run at once, so the busier direction of a member's link decides.
        if pulls and pushes:
            yield Round(1, 0.0, switch_bytes=S * (n + 1) / n)
        else:
            yield Round(1, 0.0, switch_bytes=float(S))

    return rounds


for _op, _pulls, _pushes in (("all_reduce", True, True), ("reduce_scatter", True, False), ("all_gather", False, True)):

    def _transfers(n: int, S: int, pulls: bool = _pulls, pushes: bool = _pushes) -> Table:
        first = [pull(n, S)] if pulls else []
        return joined([*first, *([push(n, S, 2 * len(first))] if pushes else [])])

    register(
        Algorithm(
            _op, "nvls", _transfers, _edges(_pulls, _pushes), _rounds(_pulls, _pushes), lambda n: 2 * n * (n + 1),
            _SOURCE, in_network=True,
        )
    )  # fmt: skip
