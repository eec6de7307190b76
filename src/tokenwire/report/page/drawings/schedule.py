"""A pipeline's schedule in time: a row a stage, a box a micro-batch's forward or backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenwire.report.page.drawings.ink import FAINT, RULE, box, hue, line, svg, text
from tokenwire.units import format_seconds

WIDTH, _LEFT, _ROW = 760, 76, 34
MOST = 1500
"""Boxes drawn at most."""


class Box(NamedTuple):
    """One action: its row (a stage), when it runs in seconds, its kind (F, B, W ...) and its micro-batch."""

    row: int
    start: float
    end: float
    kind: str
    micro_batch: int


def gantt(boxes: Sequence[Box], rows: int, when: Callable[[float], str] = format_seconds) -> str:
    """Return the boxes over time, and a scale below on which ``when`` says a time.

    >>> gantt([Box(0, 0.0, 1.0, "F", 0), Box(1, 1.0, 2.0, "F", 0)], 2).count("micro-batch 0")
    2
    """
    end = max((one.end for one in boxes), default=0.0) or 1.0
    per = (WIDTH - _LEFT - 10) / end
    kinds = list(dict.fromkeys(one.kind for one in boxes))
    parts = [text(_LEFT - 8, 20 + row * _ROW, f"stage {row}", at="end") for row in range(rows)]
    for one in boxes[:MOST]:
        x, wide = _LEFT + one.start * per, (one.end - one.start) * per
        said = f"{one.kind} of micro-batch {one.micro_batch}: {when(one.start)} to {when(one.end)}"
        parts.append(box(x, 2 + one.row * _ROW, max(wide - 1, 0.6), _ROW - 6, fill=hue(kinds.index(one.kind)), said=said))
        if wide > 20:
            parts.append(text(x + wide / 2, 20 + one.row * _ROW, f"{one.kind}{one.micro_batch}", at="middle", fill="#ffffff", size=11))
    y = rows * _ROW + 8
    parts.append(line(_LEFT, y, WIDTH - 10, y))
    for k in range(5):
        x = _LEFT + (WIDTH - _LEFT - 10) * k / 4
        parts += [line(x, y, x, y + 4, colour=RULE), text(x, y + 17, when(end * k / 4), at="middle" if k < 4 else "end", fill=FAINT, size=11)]
    return svg(WIDTH, y + 24, "the pipeline in time", parts)
