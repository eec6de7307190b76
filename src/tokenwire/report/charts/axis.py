"""Places of a logarithmic axis: few points of a long curve, and names for the round ones."""

from __future__ import annotations

import numpy as np

from tokenwire.units import format_count

POINTS = 120
"""Points that stand for a long curve."""


def sampled(count: int) -> list[int]:
    """Return numbers from 1 to ``count``, evenly spaced in their logarithms, and the powers of ten among them.

    >>> sampled(4)
    [1, 2, 3, 4]
    """
    spread = {int(n) for n in np.geomspace(1, count, POINTS).round()} if count else set()
    return sorted(spread | {10**power for power in range(len(str(count))) if 10**power <= count})


def named(values: list[int]) -> tuple[str, ...]:
    """Return the name of each number that is a power of ten, "" for the others; all of them where they are few.

    >>> named([1, 7, 10, 12, 100, 700, 1000]), named([1, 2])
    (('1', '', '10', '', '100', '', '1,000'), ('1', '2'))
    """
    tens = {10**power for power in range(20)}
    few = sum(value in tens for value in values) < 2
    return tuple(format_count(value) if few or value in tens else "" for value in values)
