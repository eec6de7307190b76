"""A message and where the token is in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.figures import Figure

Bits = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Carried:
    """A message and where the token is in it.

    ``op``, ``group``, ``what``, ``dtype`` are those of the step's row; ``source`` and ``target`` are ranks, ``stage`` that of
    the sender; ``message_bytes`` the size of the message, of which ``length`` bytes from ``offset`` are the token's;
    ``offset_figure`` derives that. ``bits`` are the token's own numbers in bfloat16, ``truth`` says what they are, and
    ``around(first, last)`` gives any bytes of the message.
    """

    op: str
    group: str
    what: str
    dtype: str
    stage: int
    layer: int | None
    source: int
    target: int
    message_bytes: int
    offset: int
    length: int
    offset_figure: Figure
    bits: Bits
    truth: str
    around: Callable[[int, int], bytes]


def window(row: bytes, offset: int, first: int, last: int) -> bytes:
    """Return bytes ``first`` to ``last`` of a message of which only ``row``, at ``offset``, is known."""
    # Bytes around the token are zeros where they were not computed.
    out = bytearray(max(0, last - first))
    low, high = max(first, offset), min(last, offset + len(row))
    if low < high:
        out[low - first : high - first] = row[low - offset : high - offset]
    return bytes(out)
