"""A comparison as a person reads it: the table, what to notice, and the formulas with their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.report.comparison.comparison import Comparison
from tokenwire.report.terminal import table
from tokenwire.units import format_bytes, format_count, format_quantity

MARK = "◂"
"""Stands at the least value of a column, where the balance lies."""


def picture(comparison: Comparison) -> Iterator[Any]:
    """Yield the parts to print, in order."""
    from rich.text import Text

    yield Text(comparison.title, style="bold")
    rows = comparison.frame.to_dicts()
    least = {
        column: min((row[column] for row in rows if row[column] is not None), default=None) for column in comparison.least
    }
    shown = [
        [
            _cell(row[column], comparison.units[column]) + (f" {MARK}" if column in least and row[column] == least[column] else "")
            for column, _ in comparison.columns
        ]
        for row in rows
    ]
    heads = [head for _, head in comparison.columns]
    yield table(shown, heads, right=[head for column, head in comparison.columns if comparison.units[column]])
    if comparison.least:
        yield Text(f"{MARK} least of its column", style="dim")
    for note in comparison.notes:
        yield Text(f"· {note}")
    if comparison.formulas:
        yield Text()
        yield Text("How the numbers came about", style="bold")
    for figure in comparison.formulas:
        yield Text(f"{figure.name}\n    {figure.derivation}" + (f"\n    {figure.because}" if figure.because else ""))


def _cell(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if not unit:
        return str(value)
    if unit == "short":
        return format_bytes(value).removesuffix("B").strip()
    if unit == "1":
        return f"{value:.3f}" if isinstance(value, float) else format_count(value)
    return format_quantity(value, unit)
