"""Carrying transfers out on data: the proof that an algorithm does what its operation says."""

from __future__ import annotations

import itertools

import numpy as np

from tokenwire.collectives.algorithm import algorithm, transfers
from tokenwire.collectives.tables import Ints, Table, sizes, starts


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
    entry = algorithm(op, algorithm_name)
    at = starts(S, n)
    own = sizes(S, n)
    table = transfers(op, algorithm_name, n, S)
    if op == "all_to_all":
        width = int(max(S, n * own.max(initial=0)))
        source = np.zeros((n, width), dtype=np.int64)
        source[:, :S] = inputs
        result = np.zeros_like(source)
        for i in range(n):
            result[i, i * own[i] : (i + 1) * own[i]] = inputs[i, at[i] : at[i + 1]]
        _carry_out(table, result, source)
        return tuple(result[i, : n * own[i]] for i in range(n))
    held = inputs.astype(np.int64).copy()
    if op == "all_gather":
        for i in range(n):
            held[i, : at[i]] = 0
            held[i, at[i + 1] :] = 0
    if entry.in_network and table.size:
        switches = max(int(table["src"].max()), int(table["dst"].max())) + 1 - n
        held = np.vstack([held, np.zeros((max(switches, 0), S), dtype=np.int64)])
    _carry_out(table, held, None)
    if op == "reduce_scatter":
        return tuple(held[i, at[i] : at[i + 1]] for i in range(n))
    if op == "reduce":
        return tuple(held[i] if i == 0 else held[i, :0] for i in range(n))
    return tuple(held[i] for i in range(n))


def _carry_out(table: Table, held: Ints, source: Ints | None) -> None:
    bounds = np.flatnonzero(np.diff(table["step"], prepend=-1, append=-2))
    for first, last in itertools.pairwise(bounds):
        rows = table[first:last].tolist()
        taken = source if source is not None else held.copy()
        for _, src, dst, offset, size, _, to, adds in rows:
            piece = taken[src, offset : offset + size]
            if adds:
                held[dst, to : to + size] += piece
            else:
                held[dst, to : to + size] = piece
