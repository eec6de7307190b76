"""Which transfer of a call waits for which others.

A transfer waits for

- what it passes on: every transfer of an earlier step that brought any byte of it to its sender (of all_to_all a rank waits for its
  own sends of the step before, and for the pieces that it sends on for others);
- what the two ranks had between them in a step before, which a connection carries in order (what goes in one step goes at once).
"""

from __future__ import annotations

import numpy as np

from tokenwire.collectives.algorithm import UNEVEN
from tokenwire.collectives.tables import Ints, Table
from tokenwire.errors import InputError

EXCHANGED = ("all_to_all", UNEVEN)
"""Operations that pass nothing on but what relays hold for others."""
MOST_STRETCHES = 1 << 24
"""Stretches of the tensor that all transfers of one call cover, counted for each."""


def waits(op: str, table: Table) -> Ints:
    """Return which transfer waits for which: pairs (before, then), shape (m, 2).

    >>> from tokenwire.collectives import transfers
    >>> waits("broadcast", transfers("broadcast", "ring", 3, 2)).tolist()  # 0>1, 0>1, 1>2, 1>2 in two pieces
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """
    src, dst, step = (table[name].astype(np.int64) for name in ("src", "dst", "step"))
    parts = [_sent_before(src, step), _sent_on(table)] if op in EXCHANGED else [_passed_on(table, src, dst, step)]
    # One number a pair: far faster to sort than rows of two.
    pairs = np.concatenate([*parts, _in_order(src, dst, step)])
    key = _distinct(pairs[:, 0] * max(table.size, 1) + pairs[:, 1])
    return np.stack(np.divmod(key, max(table.size, 1)), axis=1)


def _passed_on(table: Table, src: Ints, dst: Ints, step: Ints) -> Ints:
    """Return pairs (before, then): what brought any byte of a transfer to its sender in an earlier step."""
    steps = int(step.max(initial=0)) + 1
    # Rows by stretch of the tensor: what two rows have in common shows in one that both have. A message of no bytes counts as one.
    row, part, parts = _stretches(table)
    comes = (dst[row] * parts + part) * steps + step[row]
    first = (src[row] * parts + part) * steps
    found, then = _between(comes, first, first + step[row])
    return np.stack([row[found], row[then]], axis=1)


def _sent_before(src: Ints, step: Ints) -> Ints:
    """Return pairs (before, then): what the same member sent in the step before."""
    steps = int(step.max(initial=0)) + 1
    first = src * steps
    return np.stack(_between(first + step, first + np.maximum(step - 1, 0), first + step), axis=1)


def _sent_on(table: Table) -> Ints:
    """Return pairs (before, then): pieces that came to a member for another one (``chunk``), and what it sends there later."""
    src, dst, chunk, step = (table[name].astype(np.int64) for name in ("src", "dst", "chunk", "step"))
    for_others = np.flatnonzero(dst != chunk)
    if not for_others.size:
        return np.zeros((0, 2), dtype=np.int64)
    later = np.flatnonzero(step > step[for_others].max())
    members = int(max(src.max(), dst.max())) + 1
    wanted = src[later] * members + chunk[later]
    found, then = _between((dst * members + chunk)[for_others], wanted, wanted + 1)
    return np.stack([for_others[found], later[then]], axis=1)


def _between(keys: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return all pairs (i, k) with ``low[k] <= keys[i] < high[k]``."""
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    first = np.searchsorted(in_order, low)
    found, k = _each(first, np.searchsorted(in_order, high) - first)
    return order[found], k


def _each(first: Ints, many: Ints) -> tuple[Ints, Ints]:
    """Return the numbers ``first[k]``, ``first[k] + 1`` ... ``many[k]`` of them, and k for each."""
    k = np.repeat(np.arange(first.size), many)
    return np.repeat(first - (np.cumsum(many) - many), many) + np.arange(k.size), k


def _in_order(src: Ints, dst: Ints, step: Ints) -> Ints:
    """Return pairs (before, then) of each connection: what it carries in a step waits for all that it carried in its step before."""
    line = np.lexsort((step, dst, src))
    ends = np.stack([src[line], dst[line], step[line]])
    new = np.append(True, (ends[:, 1:] != ends[:, :-1]).any(axis=0)) if line.size else np.zeros(0, dtype=np.bool_)
    start = np.flatnonzero(new)
    size = np.diff(np.append(start, line.size))
    goes_on = np.append(False, (ends[:2, start[1:]] == ends[:2, start[:-1]]).all(axis=0)) if start.size else new
    group = np.cumsum(new) - 1
    then = np.flatnonzero(goes_on[group])
    earlier = group[then] - 1
    before, k = _each(start[earlier], size[earlier])
    return np.stack([line[before], line[then[k]]], axis=1)


def _distinct(values: Ints) -> Ints:
    """Return the distinct values in order; by sorting, since numpy's own way by hashes takes many times as long for millions."""
    out: Ints = np.sort(values)
    first: Ints = out[np.append(True, out[1:] != out[:-1])[: out.size]]
    return first


def _stretches(table: Table) -> tuple[Ints, Ints, int]:
    """Return each transfer once for every stretch of the tensor that it covers: (row, stretch), and how many stretches there are.

    A stretch is what lies between two places at which any transfer begins or ends.
    """
    begin = table["offset"].astype(np.int64)
    end = begin + np.maximum(table["bytes"], 1)
    bounds = _distinct(np.concatenate([begin, end]))
    first = np.searchsorted(bounds, begin)
    many = np.searchsorted(bounds, end) - first
    if many.sum() > MOST_STRETCHES:
        raise InputError(f"{table.size:,} transfers over {bounds.size:,} places", nearest="a smaller group",
                         rule=f"at most {MOST_STRETCHES:,} are followed one by one")  # fmt: skip
    part, row = _each(first, many)
    return row, part, int(bounds.size)
