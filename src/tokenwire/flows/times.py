"""Times that users give by number: ``3=1 ms``."""

from __future__ import annotations

from collections.abc import Sequence

from tokenwire.errors import InputError
from tokenwire.units import parse_seconds


def times_of(given: Sequence[str], many: int, option: str, what: str) -> dict[int, float]:
    """Return ``["3=1 ms"]`` as {3: 0.001} (seconds), of ``many`` things (``what``: ranks, jobs) counted from 0.

    Raises ``InputError`` for numbers or times that are none.

    >>> times_of(["3=1 ms"], 8, "--late", "ranks")
    {3: 0.001}
    """
    out: dict[int, float] = {}
    for text in given:
        number, sign, time = text.partition("=")
        if not sign or not number.strip().isdecimal():
            raise InputError(f"{option} {text}"[:80], rule=f"must be {what[:-1].upper()}=TIME", nearest=f'{option} "1=1 ms"')
        if int(number[:18]) >= many:
            raise InputError(f"{option} {text}"[:80], rule=f"there are {what} 0 to {many - 1:,}", nearest=f"{option} {many - 1}={time}"[:80])
        seconds = parse_seconds(time.strip())
        if seconds < 0:
            raise InputError(f"{option} {text}"[:80], rule="a time must be zero or more", nearest=f"{option} {number}=0 s")
        out[int(number)] = seconds
    return out
