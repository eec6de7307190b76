"""Many sizes at once, in the columns of nccl-tests: size, count, type, time, algbw, busbw, and what was picked.

``count`` is of the buffer that the call names, as nccl-tests print it: of one rank's part for all_gather and
reduce_scatter. Source: NVIDIA/nccl-tests, src/common.cu and src/all_gather.cu (GetCollByteCount).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenwire.collectives.nccl.choice import choose, times
from tokenwire.collectives.nccl.constants import ALGORITHMS
from tokenwire.collectives.nccl.machine import Machine
from tokenwire.collectives.nccl.overrides import DEFAULT, Overrides
from tokenwire.errors import InputError
from tokenwire.units import ITEM_BYTES, parse_bytes

MOST_SIZES = 200
TYPES = {"fp32": "float", "fp16": "half", "bf16": "bfloat16", "fp64": "double", "int32": "int32", "int64": "int64", "int8": "int8",
         "uint8": "uint8"}  # fmt: skip
"""Our names of types, and those of nccl-tests."""


class Row(NamedTuple):
    """One line of the table; ``elements`` is nccl-tests' count; ``time`` in us, ``algbw`` and ``busbw`` in GB/s (1e9 B/s), as nccl-tests print them."""

    size: int
    elements: int
    type: str
    time: float
    algbw: float
    busbw: float
    algorithm: str
    protocol: str
    channels: int


def sweep(machine: Machine, op: str, sizes: Sequence[int], dtype: str = "fp32", overrides: Overrides = DEFAULT) -> list[Row]:
    """Return a row for each size (bytes of the full tensor).

    >>> row = sweep(Machine("hopper"), "all_gather", [8 << 20])[0]
    >>> row.size, row.elements, row.type, row.algorithm
    (8388608, 262144, 'float', 'Ring')
    """
    out = []
    for size in sizes:
        c = choose(machine, op, size, overrides)
        out.append(Row(size, count(op, machine.ranks, size, dtype), TYPES[dtype], c.seconds * 1e6, c.algbw / 1e9, c.busbw / 1e9,
                       c.algorithm, c.protocol, c.channels))  # fmt: skip
    return out


def count(op: str, n: int, size_bytes: int, dtype: str = "fp32") -> int:
    """Return the elements that the call names."""
    elements = int(size_bytes / ITEM_BYTES[dtype])
    return elements // n if op in ("all_gather", "reduce_scatter", "all_to_all") else elements


def curves(machine: Machine, op: str, sizes: Sequence[int], overrides: Overrides = DEFAULT) -> dict[str, list[float | None]]:
    """Return seconds by size for each algorithm that can carry the operation out, by its best protocol."""
    out: dict[str, list[float | None]] = {}
    for place, size in enumerate(sizes):
        for (a, _), seconds in times(machine, op, size, overrides).items():
            line = out.setdefault(a, [None] * len(sizes))
            line[place] = min(seconds, line[place] or seconds)
    return {a: out[a] for a in ALGORITHMS if a in out}


def read_sizes(text: str) -> list[int]:
    """Return sizes from ``8B-8GiB`` (each twice the one before), or ``1MiB,3MiB``. Raises ``InputError``.

    >>> read_sizes("8B-64B"), read_sizes("1 MiB, 3 MiB")
    ([8, 16, 32, 64], [1048576, 3145728])
    """
    if "-" not in text:
        return [_size(part) for part in text.split(",")][:MOST_SIZES]
    low, high = (_size(part) for part in text.split("-", 1))
    if low > high or low < 1:
        raise InputError(f"--sizes {text[:80]}", rule="must run from a size above 0 B to a larger one", nearest="8B-8GiB")
    out = [low]
    while out[-1] * 2 <= high:
        out.append(out[-1] * 2)
    return out


def _size(text: str) -> int:
    try:
        return parse_bytes(text.strip())
    except InputError as error:
        raise InputError(error.what, where="--sizes", rule=error.rule, nearest="8B-8GiB") from None
