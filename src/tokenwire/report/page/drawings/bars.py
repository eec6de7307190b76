"""Horizontal bars with their names and values, and one bar cut into shares."""

from __future__ import annotations

from collections.abc import Sequence

from tokenwire.report.page.drawings.ink import FAINT, box, hue, svg, text

WIDTH = 720
_BAR, _STEP = 18, 26


def bars(rows: Sequence[tuple[str, float, str]], title: str) -> str:
    """Return a bar a row: name, length, and the value as people read it.

    >>> bars([("tp", 3.0, "3 B"), ("dp", 1.0, "1 B")], "by group").count("<rect")
    2
    """
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    left = 20 + 7 * max((len(name) for name, _, _ in rows), default=0)
    room = WIDTH - left - 20 - 7.5 * max((len(said) for _, _, said in rows), default=0)
    parts = []
    for number, (name, value, said) in enumerate(rows):
        y, long = 6 + number * _STEP, room * value / most
        parts += [text(left - 8, y + 13, name, at="end"), box(left, y, max(long, 1.0 if value else 0.0), _BAR, fill=hue(0), said=f"{name}: {said}"),
                  text(left + long + 6, y + 13, said, fill=FAINT)]  # fmt: skip
    return svg(WIDTH, 10 + len(rows) * _STEP, title, parts)


def shares(rows: Sequence[tuple[str, float, str]], title: str) -> str:
    """Return one bar whose pieces are the rows, and a legend below it.

    >>> shares([("layers", 3.0, "3"), ("head", 1.0, "1")], "parameters").count("<rect")
    4
    """
    total = sum(value for _, value, _ in rows) or 1.0
    parts, x = [], 0.0
    for number, (name, value, said) in enumerate(rows):
        long = WIDTH * value / total
        parts.append(box(x, 0, max(long - 1, 0.5), 30, fill=hue(number), said=f"{name}: {said}, {value / total:.1%}"))
        if long > 46:
            parts.append(text(x + long / 2, 20, f"{value / total:.1%}", at="middle", fill="#ffffff"))
        y = 48 + 18 * number
        parts += [box(0, y - 10, 11, 11, fill=hue(number)), text(18, y, f"{name}: {said}, {value / total:.1%}")]
        x += long
    return svg(WIDTH, 46 + 18 * len(rows), title, parts)
