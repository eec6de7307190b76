"""A chart as SVG: axes, ticks, a legend, bars or lines; text stays text. Sizes are in pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape

from tokenwire.report.comparison.chart import COLOURS, Chart, step_of
from tokenwire.units import format_count

WIDTH = 860
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 50, 20
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - _LEFT - _RIGHT, 340
_LEGEND_ROW, _LETTER, _TURN = 17, 7, 25
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DOTS = 40
"""Points of a line up to which each is drawn as a dot."""


def svg(chart: Chart) -> str:
    """Return the chart as a whole SVG document.

    >>> from tokenwire.report.comparison.chart import Series
    >>> svg(Chart("T", "bars", "x", "y", ("a",), (Series("s", (3.0,)),))).startswith("<svg")
    True
    """
    lower = _LEGEND_ROW * max((row for _, row in _legend_places(chart)), default=0)
    height = _TOP + lower + _INNER_HEIGHT + _below(chart) + _BOTTOM
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(chart.title)}</title>", f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 20, chart.title, size=15), *_legend(chart), f'<g transform="translate(0 {lower})">', *_y_axis(chart), *_x_axis(chart),
        *(_lines(chart) if chart.kind == "lines" else _bars(chart)), "</g>", "</svg>",
    ]) + "\n"  # fmt: skip


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
    step = step_of(high)
    return [step * n for n in range(round(high / step) + 1)]


def _tick_label(value: float) -> str:
    if value == 0 or 1 <= value < 1e6:
        return format_count(value)
    power = round(math.log10(value), 6)
    if 1e-3 <= value < 1 or not power.is_integer():
        return f"{value:.3g}"
    return "10" + str(int(power)).translate(_RAISED)


def _y_axis(chart: Chart) -> Iterator[str]:
    floor = _TOP + _INNER_HEIGHT
    for value in _ticks(chart):
        y = floor - height_of(value, chart)
        yield _line(_LEFT, y, _LEFT + _INNER_WIDTH, y, "#dddddd")
        yield _text(_LEFT - 6, y + 4, _tick_label(value), anchor="end")
    yield _text(16, _TOP + _INNER_HEIGHT / 2, chart.y_title, anchor="middle", turn=-90)


def _centre(chart: Chart, index: int) -> float:
    if chart.kind == "lines":
        at = [math.log10(x) if chart.log_x else x for x in chart.x_values]
        span = (max(at) - min(at)) or 1.0
        return _LEFT + 20 + (_INNER_WIDTH - 40) * (at[index] - min(at)) / span
    return _LEFT + _INNER_WIDTH * (index + 0.5) / len(chart.places)


def _named(chart: Chart) -> list[tuple[int, str]]:
    # Of the places of a line so many are named as stand beside each other; bars all have their names.
    named = [(index, place) for index, place in enumerate(chart.places) if place]
    if chart.kind != "lines" or not named:
        return named
    wide = _LETTER * (max(len(place) for _, place in named) + 2)
    return named[:: max(1, math.ceil(len(named) * wide / _INNER_WIDTH))]


def _turned(chart: Chart) -> bool:
    return chart.kind != "lines" and any(len(place) * _LETTER > _INNER_WIDTH / len(chart.places) for place in chart.places)


def _below(chart: Chart) -> int:
    # Names that are turned need room for their length.
    longest = max((len(place) for _, place in _named(chart)), default=0)
    return round(40 + (longest * _LETTER * math.sin(math.radians(_TURN)) if _turned(chart) else 0))


def _x_axis(chart: Chart) -> Iterator[str]:
    floor, turned = _TOP + _INNER_HEIGHT, _turned(chart)
    yield _line(_LEFT, floor, _LEFT + _INNER_WIDTH, floor, "#444444")
    for index, place in _named(chart):
        x = _centre(chart, index)
        yield _line(x, floor, x, floor + 4, "#444444")
        yield _text(x, floor + 18, place, anchor="end" if turned else "middle", turn=-_TURN if turned else 0)
    yield _text(_LEFT + _INNER_WIDTH / 2, floor + _below(chart), chart.x_title, anchor="middle")


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
        for x, y, value in points if len(points) <= DOTS else ():
            said = escape(f"{series.name}: {value:,.4g}")
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_colour(number)}"><title>{said}</title></circle>'


def _legend_places(chart: Chart) -> list[tuple[float, int]]:
    # x and row of each series: what would leave the picture begins the next row.
    x, row, places = float(_LEFT), 0, []
    for series in chart.series:
        wide = 30 + 7.2 * len(series.name)
        if x > _LEFT and x + wide > WIDTH:
            x, row = float(_LEFT), row + 1
        places.append((x, row))
        x += wide
    return places


def _legend(chart: Chart) -> Iterator[str]:
    for number, (series, (x, row)) in enumerate(zip(chart.series, _legend_places(chart), strict=True)):
        y = 30 + _LEGEND_ROW * row
        yield f'<rect x="{x:.1f}" y="{y}" width="11" height="11" fill="{_colour(number)}"/>'
        yield _text(x + 16, y + 10, series.name)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
