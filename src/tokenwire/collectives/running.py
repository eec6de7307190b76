"""Carrying transfers out on data: the proof that an algorithm does what its operation says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tokenwire.collectives.algorithm import UNEVEN, algorithm, transfers
from tokenwire.collectives.exchange import even, placed
from tokenwire.collectives.tables import Ints, Table, starts
from tokenwire.collectives.uneven import transfers_of


def run(op: str, algorithm_name: str | None, inputs: Ints) -> tuple[Ints, ...]:
    """Return what every member holds after a call, where ``inputs`` (n, S) has one number in place of each byte.

    all_reduce and broadcast: S numbers. reduce: S numbers at member 0, what is left over elsewhere is empty. all_gather: S
    numbers (of the input of member i only piece i counts). reduce_scatter: piece i at member i. all_to_all: n pieces of
    size ``sizes(S, n)[i]`` at member i.

    >>> import numpy as np
    >>> [out.tolist() for out in run("all_reduce", "ring", np.array([[1, 2], [10, 20]]))]
    [[11, 22], [11, 22]]
    """
    n, S = inputs.shape
    if op in ("all_to_all", UNEVEN):
        return run_uneven(algorithm_name, even(n, S), list(inputs))
    entry = algorithm(op, algorithm_name)
    at = starts(S, n)
    table = transfers(op, algorithm_name, n, S)
    held = inputs.astype(np.int64).copy()
    if op == "all_gather":
        for i in range(n):
            held[i, : at[i]] = 0
            held[i, at[i + 1] :] = 0
    if entry.in_network and table.size:
        switches = max(int(table["src"].max()), int(table["dst"].max())) + 1 - n
        held = np.vstack([held, np.zeros((max(switches, 0), S), dtype=np.int64)])
    _carry_out(table, held)
    if op == "reduce_scatter":
        return tuple(held[i, at[i] : at[i + 1]] for i in range(n))
    if op == "reduce":
        return tuple(held[i] if i == 0 else held[i, :0] for i in range(n))
    return tuple(held[i] for i in range(n))


def run_uneven(algorithm_name: str | None, matrix: Ints, inputs: Sequence[Ints]) -> tuple[Ints, ...]:
    """Return what every member holds after an all_to_allv, where ``inputs[i]`` has one number in place of each byte of row i.

    >>> import numpy as np
    >>> held = run_uneven("linear", np.array([[1, 2], [0, 1]]), [np.array([1, 2, 3]), np.array([4])])
    >>> [one.tolist() for one in held]
    [[1], [2, 3, 4]]
    """
    n = matrix.shape[0]
    table = transfers_of(algorithm_name, matrix)
    gives, takes = matrix.sum(axis=1), matrix.sum(axis=0)
    # What a member holds for others lies behind its tensor, both where it reads and where it writes.
    behind = int((table["to"] + table["bytes"] - takes[table["dst"]]).max(initial=0))
    source, result = ([np.zeros(size + behind, dtype=np.int64) for size in of] for of in (gives, takes))
    offset, to = placed(matrix)
    for i in range(n):
        source[i][: gives[i]] = inputs[i]
        result[i][to[i, i] : to[i, i] + matrix[i, i]] = source[i][offset[i, i] : offset[i, i] + matrix[i, i]]
    for rows in _steps(table):
        for _, src, dst, at, size, _, place, _ in rows:
            result[dst][place : place + size] = source[src][at : at + size]
        for i in range(n if behind else 0):
            source[i][gives[i] :] = result[i][takes[i] :]
    return tuple(result[i][: takes[i]] for i in range(n))


def _steps(table: Table) -> Iterator[list[Any]]:
    bounds = np.flatnonzero(np.diff(table["step"], prepend=-1, append=-2))
    for first, last in itertools.pairwise(bounds):
        yield table[first:last].tolist()


def _carry_out(table: Table, held: Ints) -> None:
    for rows in _steps(table):
        before = held.copy()
        for _, src, dst, offset, size, _, to, adds in rows:
            piece = before[src, offset : offset + size]
            if adds:
                held[dst, to : to + size] += piece
            else:
                held[dst, to : to + size] = piece
