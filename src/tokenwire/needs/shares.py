"""Shares that can be asked about: below them figures are of no network and no GPU that there could be."""

from __future__ import annotations

from tokenwire.errors import InputError

LEAST = 1e-3
"""Least share of a step or of a peak; the most is as far from the whole."""


def asked(name: str, value: float, usual: str) -> float:
    """Return a share from 0.1 % to 99.9 %. Raises ``InputError`` for others, with ``usual`` as one that works.

    >>> asked("exposed", 0.1, "10%")
    0.1
    """
    # 1 - 0.999 is a little more or less than 0.001.
    if not LEAST * (1 - 1e-9) <= value <= 1 - LEAST * (1 - 1e-9):
        raise InputError(f"{name} = {value:.12g}", rule="must be a share from 0.1 % to 99.9 %", nearest=f"{name} = {usual}")
    return value
