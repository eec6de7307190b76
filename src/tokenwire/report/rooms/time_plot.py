"""A step as a picture: a row a stage, a bar an action of the pipeline and of the end of the step; SVG."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenwire.report.drawn import check_ending, write_drawings
from tokenwire.report.rooms.time_gantt import some_stages
from tokenwire.units import format_seconds

if TYPE_CHECKING:
    from tokenwire.timeline import StepTime
    from tokenwire.timeline.stage_time import Load

WIDTH, LEFT, ROW = 1000, 80, 26
COLOURS = {"F": "#4f81bd", "B": "#9bbb59", "I": "#9bbb59", "W": "#c3d69b", "gradients": "#c0504d", "optimizer": "#8064a2", "weights": "#f79646"}
NAMES = {"F": "forward", "B": "backward", "W": "backward for weights", "gradients": "gradients", "optimizer": "optimizer", "weights": "weights, norms"}
MOST_BARS = 20_000
"""Bars of a picture; of a longer step its beginning is drawn."""


def write_plot(step: StepTime, path: str) -> None:
    """Write the picture, whole or not at all. Raises ``InputError`` for an ending that is not drawn."""
    check_ending(path)
    write_drawings(path, "One step in time", [(svg(step), "")])


def svg(step: StepTime) -> str:
    """Return the step as SVG."""
    stages, run = some_stages(step.loads), step.run
    end = step.step_seconds - run.left_out * run.pace
    if len(run.ended) > MOST_BARS:
        end *= MOST_BARS / len(run.ended)
    height = 70 + ROW * len(stages) + 50
    scale = (WIDTH - LEFT - 20) / end
    title = f"One step: {format_seconds(step.step_seconds)}, {step.schedule}, {step.micro_batches:,} micro-batches"
    if end < step.step_seconds:
        title += f" (the first {format_seconds(end)})" if not run.left_out else f" ({run.shown:,} of them shown)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{html.escape(title)}</title>", f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="24" font-size="15">{html.escape(title)}</text>',
    ]  # fmt: skip
    for row, one in enumerate(stages):
        y = 50 + ROW * row
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">stage {one.stage.index}</text>')
        for kind, start, stop, said in _bars(step, one):
            if start < end:
                parts.append(
                    f'<rect x="{LEFT + start * scale:.2f}" y="{y}" width="{max((min(stop, end) - start) * scale, 0.2):.2f}" height="{ROW - 5}" '
                    f'fill="{COLOURS[kind]}" stroke="white" stroke-width="0.3"><title>{html.escape(said)}</title></rect>'
                )
    parts += _axis(end, scale, 50 + ROW * len(stages))
    parts += _legend({kind for one in stages for kind, *_ in _bars(step, one)}, height - 14)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(step: StepTime, one: Load) -> Iterator[tuple[str, float, float, str]]:
    run = step.run
    for x in run.of_rank(one.stage.index):
        action, start, stop = run.graph.actions[x], run.started[x], run.ended[x]
        kind = NAMES["B" if action.kind == "I" else action.kind]
        yield action.kind, start, stop, f"{kind} of micro-batch {action.micro_batch}, {format_seconds(stop - start)}"
    left_out = run.left_out * run.pace
    at = step.pipeline_seconds + step.gradients_seconds - left_out
    for kind, start, seconds in (
        ("gradients", run.ends[one.stage.index] - left_out, one.tail.gradients), ("optimizer", at, one.optimizer),
        ("weights", at + one.optimizer, one.tail.weights + one.tail.small),
    ):  # fmt: skip
        if seconds:
            yield kind, start, start + seconds, f"{NAMES[kind]}, {format_seconds(seconds)}"


def _axis(end: float, scale: float, y: float) -> Iterator[str]:
    for k in range(6):
        x = LEFT + k / 5 * end * scale
        text = format_seconds(k / 5 * end) if k else "0"
        yield f'<text x="{x:.1f}" y="{y + 14}" text-anchor="{"end" if k == 5 else "middle"}">{text}</text>'


def _legend(kinds: set[str], y: float) -> Iterator[str]:
    x = LEFT
    for kind, name in NAMES.items():
        if kind in kinds or (kind == "B" and "I" in kinds):
            yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLOURS[kind]}"/>'
            yield f'<text x="{x + 16}" y="{y}">{name}</text>'
            x += 30 + 8 * len(name)
