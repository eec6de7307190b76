"""The result of a comparison: a table, the formulas behind it, what to notice, and a chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.figures import Figure
from tokenwire.report.comparison.chart import Chart

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Comparison:
    """``frame`` has one row a choice and all its numbers; ``columns`` are those a person reads, with their heads.

    ``units`` gives the unit of each of them (``units.format_quantity``; "" for words). ``least`` are columns in which the
    least value is marked; ``formulas`` derive one row with its numbers.
    """

    name: str
    title: str
    frame: pl.DataFrame
    columns: tuple[tuple[str, str], ...]
    units: dict[str, str]
    least: tuple[str, ...]
    formulas: tuple[Figure, ...]
    notes: tuple[str, ...]
    chart: Chart

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "comparison": self.name, "title": self.title, "rows": self.frame.to_dicts(),
            "formulas": [figure.as_dict() for figure in self.formulas], "notes": list(self.notes),
        }  # fmt: skip
