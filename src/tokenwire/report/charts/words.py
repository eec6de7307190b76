"""The laws of a text as pictures: how often each type occurs by its rank (Zipf), how many types come with the words (Heaps)."""

from __future__ import annotations

from tokenwire.errors import InputError
from tokenwire.report.charts.axis import named, sampled
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.text import Text, forms, statistics
from tokenwire.text.statistics import PowerLaw, growth


def charts(text: Text) -> tuple[Chart, Chart]:
    """Return both laws of a text, what was counted beside the fitted line. Raises ``InputError`` for a text without words."""
    counted = statistics(text, most_common=len(text.content))
    if not counted.words:
        raise InputError(f"--plot of {text.name}"[:120], rule="has no words to draw", nearest="a text with words")
    seen = growth(forms(text.content))
    return (
        _law(f"Zipf: {text.name}", "rank of the type, the most common first", "times that it occurs in the text",
             [count for _, count in counted.most_common], counted.zipf, -1),
        _law(f"Heaps: {text.name}", "words read", "types (different words) among them", seen, counted.heaps, 1),
    )  # fmt: skip


def _law(title: str, x_title: str, y_title: str, values: list[int], fit: PowerLaw | None, sign: int) -> Chart:
    at = sampled(len(values))
    series = [Series("counted", tuple(float(values[n - 1]) for n in at))]
    if fit:
        said = f"{fit.scale:,.3g} · x^{sign * fit.exponent:.3f} (R² = {fit.r2:.3f})"
        series.append(Series(said, tuple(fit.scale * n ** (sign * fit.exponent) for n in at)))
    return Chart(title, "lines", x_title, y_title, named(at), tuple(series), tuple(float(n) for n in at))
