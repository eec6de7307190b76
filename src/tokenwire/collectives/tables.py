"""Transfers as a table, and how a tensor is cut into pieces.

A tensor of S bytes is cut into n pieces whose sizes differ by at most one byte, the larger ones first: any S and any n
work, also S = 0 and S < n.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[Any]

TRANSFER = np.dtype(
    [
        ("step", np.int32), ("src", np.int32), ("dst", np.int32), ("offset", np.int64), ("bytes", np.int64),
        ("chunk", np.int32), ("to", np.int64), ("adds", np.bool_),
    ]
)  # fmt: skip
"""One transfer: in ``step``, member ``src`` sends ``bytes`` from ``offset`` of its tensor to ``dst``, who puts them at
``to`` (the same offset but for all_to_all) and adds them to what is there where ``adds``. ``chunk`` is the piece's number."""


def sizes(S: int, n: int) -> Ints:
    """Return the bytes of the n pieces of a tensor of S bytes.

    >>> sizes(10, 4).tolist(), sizes(2, 3).tolist()
    ([3, 3, 2, 2], [1, 1, 0])
    """
    return S // n + (np.arange(n, dtype=np.int64) < S % n)


def starts(S: int, n: int) -> Ints:
    """Return the offsets of the n pieces and, last, S itself.

    >>> starts(10, 4).tolist()
    [0, 3, 6, 8, 10]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes(S, n))])


def table(
    step: npt.ArrayLike, src: npt.ArrayLike, dst: npt.ArrayLike, offset: npt.ArrayLike, size: npt.ArrayLike,
    chunk: npt.ArrayLike, adds: npt.ArrayLike = False, to: npt.ArrayLike | None = None,
) -> Table:  # fmt: skip
    """Return the columns as one ``TRANSFER`` array; scalars are repeated."""
    columns = np.broadcast_arrays(step, src, dst, offset, size, chunk, offset if to is None else to, adds)
    out = np.zeros(columns[0].size, dtype=TRANSFER)
    for name, column in zip(TRANSFER.names or (), columns, strict=True):
        out[name] = column.reshape(-1)
    return out


def joined(tables: Sequence[Table] | Iterable[Table]) -> Table:
    """Return several tables as one, in the order of their steps; of one step the order given."""
    parts = list(tables)
    if not parts:
        return np.zeros(0, dtype=TRANSFER)
    out = np.concatenate(parts)
    return out[np.argsort(out["step"], kind="stable")]


def shifted(part: Table, steps: int = 0, offset: int = 0, chunk: int = 0) -> Table:
    """Return a copy with ``steps`` added to its steps and ``offset`` to its places."""
    out = part.copy()
    out["step"] += steps
    out["offset"] += offset
    out["to"] += offset
    out["chunk"] += chunk
    return out


def renamed(part: Table, members: Ints) -> Table:
    """Return a copy in which member i is ``members[i]``."""
    out = part.copy()
    out["src"] = members[part["src"]]
    out["dst"] = members[part["dst"]]
    return out
