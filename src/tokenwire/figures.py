"""A number that can explain itself: its unit, its formula, the formula with the values put in, its source."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One result with its derivation.

    ``unit`` is one of ``units.format_quantity``'s (``B``, ``B/s``, ``s``, ``FLOP``, ``FLOP/s``, ``1``) or a
    plain word (``tokens``). ``formula`` is in the field's symbols, ``values`` the same line with numbers put in,
    ``source`` where the rule comes from (paper and equation, or repository, file and function); ``main`` marks what a summary has.

    >>> Figure("ring all_reduce, sent per rank", 150, "B", "2(n-1)/n·S", "2·3/4·100 B").derivation
    '2(n-1)/n·S = 2·3/4·100 B = 150 B'
    """

    name: str
    value: float
    unit: str
    formula: str = ""
    values: str = ""
    source: str = ""
    because: str = ""
    main: bool = False

    @property
    def text(self) -> str:
        """Return the value with its unit, as people read it."""
        from tokenwire.units import format_quantity

        return format_quantity(self.value, self.unit)

    @property
    def derivation(self) -> str:
        """Return ``formula = values = value``, leaving out what is not known."""
        return " = ".join(part for part in (self.formula, self.values, self.text) if part)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; a value without limit is None."""
        return {**asdict(self), "value": self.value if math.isfinite(self.value) else None}
