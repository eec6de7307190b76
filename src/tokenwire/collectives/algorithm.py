"""What an algorithm is, and the register of them by operation and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import NamedTuple

import numpy as np

from tokenwire.collectives.tables import Ints, Table
from tokenwire.errors import InputError, unknown

UNEVEN = "all_to_allv"
"""The operation whose sizes are a matrix; where one size is given, all pieces are alike."""

OPERATIONS: dict[str, str] = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "broadcast": "ring",
    "reduce": "ring",
    "all_to_all": "pairwise",
    UNEVEN: "pairwise",
    "send": "direct",
    "recv": "direct",
    "barrier": "dissemination",
}
"""Every operation, with the algorithm that is taken where none is named."""

_MODULES = ("ring", "bidirectional", "halving_doubling", "tree", "exchange", "direct", "hierarchical", "barrier", "pat", "nvls",
            "nvls_tree", "collnet")  # fmt: skip
MOST_TRANSFERS = 1 << 26
"""Transfers of one collective that are written out: 3 GB."""
MOST_RANKS = 1 << 23
MOST_BYTES = 1 << 60


class Edges(NamedTuple):
    """Who sends how many bytes to whom: int64 columns ``src``, ``dst`` (members of the group), ``bytes``."""

    src: Ints
    dst: Ints
    bytes: Ints


class Round(NamedTuple):
    """``repeat`` equal steps, in each of which member ``src[i]`` sends ``bytes`` to ``dst[i]``.

    Where ``shifts`` are given, every member sends ``bytes`` to each of those ``d`` places on (``src`` and ``dst`` are
    empty then); ``-1`` is the member before. Where ``each`` is given, transfer i has ``each[i]`` times those bytes.
    ``switch_bytes`` is what each member's link to a reducing switch carries.
    """

    repeat: int
    bytes: float
    shifts: range | tuple[int, ...] = ()
    src: Ints | None = None
    dst: Ints | None = None
    switch_bytes: float = 0.0
    each: Ints | None = None


Rounds = Callable[[int, int], Iterator[Round]]
"""The steps of a call among n members with S bytes, equal ones together."""


@dataclass(frozen=True)
class Algorithm:
    """One way to carry out an operation.

    ``transfers(n, S)`` and ``edges(n, S)`` describe it for n >= 2 members and S bytes, ``rounds(n, S)`` its steps for the
    cost model, ``count(n)`` how many transfers there are. ``in_network`` means that switches add or copy. ``sent(n, S)`` is what
    each member sends, where the edges are too many to add up.
    """

    op: str
    name: str
    transfers: Callable[[int, int], Table]
    edges: Callable[[int, int], Edges]
    rounds: Rounds
    count: Callable[[int], int]
    source: str = ""
    in_network: bool = False
    sent: Callable[[int, int], Ints] | None = None


_REGISTER: dict[tuple[str, str], Algorithm] = {}


def register(entry: Algorithm) -> Algorithm:
    """Make an algorithm known by its operation and name."""
    _REGISTER[entry.op, entry.name] = entry
    return entry


@cache
def _loaded() -> dict[tuple[str, str], Algorithm]:
    for module in _MODULES:
        import_module(f"tokenwire.collectives.{module}")
    return _REGISTER


def algorithms(op: str) -> tuple[str, ...]:
    """Return the names of the algorithms of an operation.

    >>> "ring" in algorithms("all_reduce")
    True
    """
    if op not in OPERATIONS:
        raise unknown("collective", op[:80], OPERATIONS)
    return tuple(name for known, name in _loaded() if known == op)


def default_algorithm(op: str) -> str:
    """Return the algorithm that is taken where none is named. Raises ``InputError`` for an unknown operation."""
    if op not in OPERATIONS:
        raise unknown("collective", op[:80], OPERATIONS)
    return OPERATIONS[op]


def algorithm(op: str, name: str | None = None) -> Algorithm:
    """Return an algorithm by operation and name (None: the operation's usual one).

    Raises ``InputError`` with the known names.

    >>> algorithm("all_to_all").name
    'pairwise'
    """
    wanted = default_algorithm(op) if name is None else name
    found = _loaded().get((op, wanted))
    if found is None:
        raise unknown(f"algorithm of {op}", wanted[:80], algorithms(op))
    return found


def check(op: str, n: int, size_bytes: int) -> None:
    """Raise ``InputError`` where the group or the size cannot be."""
    if n < 1 or n > MOST_RANKS:
        raise InputError(f"{op} among {n:,} ranks", rule=f"a group has 1 to {MOST_RANKS:,} ranks",
                         nearest=f"{min(max(n, 1), MOST_RANKS):,}")  # fmt: skip
    if size_bytes < 0 or size_bytes > MOST_BYTES:
        raise InputError(f"{op} of {size_bytes:,} B", rule="a tensor has 0 to 2^60 B",
                         nearest=f"{min(max(size_bytes, 0), MOST_BYTES):,} B")  # fmt: skip


def transfers(op: str, algorithm_name: str | None, n: int, size_bytes: int) -> Table:
    """Return every transfer of one call as a structured array (``tables.TRANSFER``), steps in order.

    Transfers of a step happen at once: each reads what its sender had before the step. Transfers of no bytes are left out,
    but for a barrier, whose messages are empty.

    >>> transfers("all_gather", "ring", 3, 3)[["step", "src", "dst", "offset", "bytes"]].tolist()[:3]
    [(0, 0, 1, 0, 1), (0, 1, 2, 1, 1), (0, 2, 0, 2, 1)]
    """
    check(op, n, size_bytes)
    entry = algorithm(op, algorithm_name)
    if n == 1:
        return entry.transfers(2, 0)[:0]
    if entry.count(n) > MOST_TRANSFERS:
        raise InputError(f"{op} by {entry.name} among {n:,} ranks",
                         rule=f"is more than {MOST_TRANSFERS:,} transfers", nearest="its edges, or fewer ranks")  # fmt: skip
    out = entry.transfers(n, size_bytes)
    return out if op == "barrier" else out[out["bytes"] > 0]


def edges(op: str, algorithm_name: str | None, n: int, size_bytes: int) -> Edges:
    """Return what each pair of members exchanges in one call, in closed form; pairs without bytes may be in it.

    >>> e = edges("all_reduce", "ring", 4, 100)
    >>> e.src.tolist(), e.dst.tolist(), e.bytes.tolist()
    ([0, 1, 2, 3], [1, 2, 3, 0], [150, 150, 150, 150])
    """
    check(op, n, size_bytes)
    entry = algorithm(op, algorithm_name)
    if n == 1:
        none = np.zeros(0, dtype=np.int64)
        return Edges(none, none, none)
    return entry.edges(n, size_bytes)


def sent_bytes(op: str, algorithm_name: str | None, n: int, size_bytes: int) -> Ints:
    """Return the bytes that each of the n members sends in one call, int64[n].

    >>> sent_bytes("reduce_scatter", "ring", 4, 100).tolist()
    [75, 75, 75, 75]
    """
    check(op, n, size_bytes)
    entry = algorithm(op, algorithm_name)
    if entry.sent is not None and n > 1:
        return entry.sent(n, size_bytes)
    e = edges(op, algorithm_name, n, size_bytes)
    own = e.src < n  # what a switch sends is no member's
    out = np.zeros(n, dtype=np.int64)
    np.add.at(out, e.src[own], e.bytes[own])
    return out



def summed(part: Table) -> Edges:
    """Return a table of transfers as edges: the bytes of each pair, ordered by sender and receiver."""
    if not part.size:
        none = np.zeros(0, dtype=np.int64)
        return Edges(none, none, none)
    members = int(max(part["src"].max(), part["dst"].max())) + 1
    pair, place = np.unique(part["src"].astype(np.int64) * members + part["dst"], return_inverse=True)
    total = np.zeros(pair.size, dtype=np.int64)
    np.add.at(total, place, part["bytes"])
    return Edges(pair // members, pair % members, total)
