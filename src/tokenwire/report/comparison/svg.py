"""A chart as SVG: axes, ticks, a legend, bars or lines; text stays text. Sizes are in pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape

from tokenwire.report.comparison.chart import COLOURS, Chart
from tokenwire.units import format_count

WIDTH, HEIGHT = 860, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 50, 90
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM


def svg(chart: Chart) -> str:
    """Return the chart as a whole SVG document.

    >>> from tokenwire.report.comparison.chart import Series
    >>> svg(Chart("T", "bars", "x", "y", ("a",), (Series("s", (3.0,)),))).startswith("<svg")
    True
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(_LEFT, 20, chart.title, size=15),
        *_y_axis(chart),
        *_x_axis(chart),
        *(_lines(chart) if chart.kind == "lines" else _bars(chart)),
        *_legend(chart),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def height_of(value: float, chart: Chart) -> float:
    """Return how many pixels above the x axis a value is drawn; values below the axis are on it.

    >>> height_of(10.0, Chart("", "bars", "", "", ("a", "b"), ())) == _INNER_HEIGHT
    True
    """
    low, high = chart.extent()
    if not chart.log_y:
        return _INNER_HEIGHT * (value - low) / (high - low)
    if value <= low:
        return 0.0
    return _INNER_HEIGHT * (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{turned}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _ticks(chart: Chart) -> list[float]:
    low, high = chart.extent()
    if chart.log_y:
        first, last = round(math.log10(low)), round(math.log10(high))
        return [10.0**power for power in range(first, last + 1, max(1, (last - first) // 8))]
    step = float(10.0 ** math.floor(math.log10(high)))
    while high / step < 4:
        step /= 2
    return [step * n for n in range(int(high / step) + 1)]


def _tick_label(value: float) -> str:
    return format_count(value) if 1 <= value < 1e6 else f"{value:.3g}"


def _y_axis(chart: Chart) -> Iterator[str]:
    floor = _TOP + _INNER_HEIGHT
    for value in _ticks(chart):
        y = floor - height_of(value, chart)
        yield _line(_LEFT, y, _LEFT + _INNER_WIDTH, y, "#dddddd")
        yield _text(_LEFT - 6, y + 4, _tick_label(value), anchor="end")
    yield _text(16, _TOP + _INNER_HEIGHT / 2, chart.y_title, anchor="middle", turn=-90)


def _centre(chart: Chart, index: int) -> float:
    if chart.kind == "lines":
        logs = [math.log10(x) for x in chart.x_values]
        span = (max(logs) - min(logs)) or 1.0
        return _LEFT + 20 + (_INNER_WIDTH - 40) * (logs[index] - min(logs)) / span
    return _LEFT + _INNER_WIDTH * (index + 0.5) / len(chart.places)


def _x_axis(chart: Chart) -> Iterator[str]:
    floor = _TOP + _INNER_HEIGHT
    yield _line(_LEFT, floor, _LEFT + _INNER_WIDTH, floor, "#444444")
    tilted = any(len(place) * 7 > _INNER_WIDTH / max(len(chart.places), 1) for place in chart.places)
    for index, place in enumerate(chart.places):
        x = _centre(chart, index)
        yield _text(x, floor + 18, place, anchor="end" if tilted else "middle", turn=-25 if tilted else 0)
    yield _text(_LEFT + _INNER_WIDTH / 2, HEIGHT - 10, chart.x_title, anchor="middle")


def _bars(chart: Chart) -> Iterator[str]:
    floor = _TOP + _INNER_HEIGHT
    group = _INNER_WIDTH / len(chart.places) * 0.8
    width = group if chart.kind == "stacked" else group / len(chart.series)
    below = [0.0] * len(chart.places)
    for number, series in enumerate(chart.series):
        for index, value in enumerate(series.values):
            if value is None:
                continue
            base = below[index] if chart.kind == "stacked" else 0.0
            foot = height_of(base, chart) if base else 0.0
            tall = height_of(base + value, chart) - foot
            x = _centre(chart, index) - group / 2 + (0 if chart.kind == "stacked" else number * width)
            said = escape(f"{chart.places[index]}, {series.name}: {value:,.4g}")
            yield (
                f'<rect x="{x:.1f}" y="{floor - foot - tall:.1f}" width="{width * 0.94:.1f}" height="{tall:.1f}" '
                f'fill="{_colour(number)}"><title>{said}</title></rect>'
            )
            below[index] = base + value


def _lines(chart: Chart) -> Iterator[str]:
    floor = _TOP + _INNER_HEIGHT
    for number, series in enumerate(chart.series):
        points = [
            (_centre(chart, index), floor - height_of(value, chart), value)
            for index, value in enumerate(series.values)
            if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        yield f'<polyline points="{path}" fill="none" stroke="{_colour(number)}" stroke-width="2"/>'
        for x, y, value in points:
            said = escape(f"{series.name}: {value:,.4g}")
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_colour(number)}"><title>{said}</title></circle>'


def _legend(chart: Chart) -> Iterator[str]:
    x = float(_LEFT)
    for number, series in enumerate(chart.series):
        yield f'<rect x="{x:.1f}" y="30" width="11" height="11" fill="{_colour(number)}"/>'
        yield _text(x + 16, 40, series.name)
        x += 30 + 7.2 * len(series.name)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
