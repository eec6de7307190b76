"""What a plot shows, without how it is drawn: series of values over the same places on the x axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Series:
    """One line or one colour of bars; ``values`` has one entry a place, None where there is none."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Chart:
    """A plot: grouped or stacked ``bars`` over named places, or ``lines`` over numbers on a logarithmic x axis."""

    title: str
    kind: Literal["bars", "stacked", "lines"]
    x_title: str
    y_title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    x_values: tuple[float, ...] = ()
    log_y: bool = True

    def extent(self) -> tuple[float, float]:
        """Return the lowest and highest value that is drawn; on a logarithmic axis whole powers of ten.

        >>> Chart("", "bars", "", "", ("a", "b"), (Series("s", (3.0, 240.0)),)).extent()
        (1.0, 1000.0)
        """
        columns = zip(*(one.values for one in self.series), strict=True)
        drawn = [value for one in self.series for value in one.values if value is not None]
        if self.kind == "stacked":
            drawn = [sum(value or 0 for value in column) for column in columns]
        if not self.log_y:
            return 0.0, max(drawn, default=1.0) or 1.0
        above = [value for value in drawn if value > 0] or [1.0]
        low, high = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
        # A bar needs some height even where all values are the same power of ten.
        return 10.0**low, 10.0 ** max(high, low + 1)


COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2", "#97bbf5", "#3ca951")
"""Colours of the series in order; chosen to stay apart for readers who see fewer colours."""
