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
    """A plot: grouped or stacked ``bars`` over named places, or ``lines`` over numbers (``x_values``, named where ``places`` is not "").

    Axes that are ``log`` have logarithmic scales; titles of axes have their units.
    """

    title: str
    kind: Literal["bars", "stacked", "lines"]
    x_title: str
    y_title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    x_values: tuple[float, ...] = ()
    log_y: bool = True
    log_x: bool = True

    def extent(self) -> tuple[float, float]:
        """Return the ends of the y axis, around all that is drawn: whole powers of ten, or 0 and whole steps of it.

        >>> Chart("", "bars", "", "", ("a", "b"), (Series("s", (3.0, 240.0)),)).extent()
        (1.0, 1000.0)
        """
        columns = zip(*(one.values for one in self.series), strict=True)
        drawn = [value for one in self.series for value in one.values if value is not None]
        if self.kind == "stacked":
            drawn = [sum(value or 0 for value in column) for column in columns]
        if not self.log_y:
            high = max(drawn, default=1.0) or 1.0
            return 0.0, step_of(high) * math.ceil(high / step_of(high) - 1e-9)
        above = [value for value in drawn if value > 0] or [1.0]
        low, high = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
        # A bar needs some height even where all values are the same power of ten.
        return 10.0**low, 10.0 ** max(high, low + 1)


def step_of(high: float) -> float:
    """Return the distance of the ticks from 0 to ``high``: 1, 2.5 or 5 times a power of ten, four of them or more.

    >>> step_of(377.0), step_of(0.12), step_of(100.0)
    (50.0, 0.025, 25.0)
    """
    step = float(10.0 ** math.floor(math.log10(high)))
    while high / step < 4:
        step /= 2
    return step


COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2", "#97bbf5", "#3ca951")
"""Colours of the series in order; chosen to stay apart for readers who see fewer colours."""
