"""The pipeline of a step as text: a line a stage, a letter for what a slice of time is spent on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from tokenwire.units import format_seconds

if TYPE_CHECKING:
    from tokenwire.timeline import StepTime
    from tokenwire.timeline.stage_time import Load

T = TypeVar("T")
MOST_STAGES = 16
WIDTH = 66


def some_stages(stages: Sequence[T]) -> list[T]:
    """Return all stages, or the first, the last and some between them where there are many.

    >>> some_stages(range(31))
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]
    """
    n = len(stages)
    if n <= MOST_STAGES:
        return list(stages)
    return [stages[round(i * (n - 1) / (MOST_STAGES - 1))] for i in range(MOST_STAGES)]


def gantt(step: StepTime, width: int = WIDTH) -> list[str]:
    """Return the pipeline as lines. A step of many micro-batches is shown by its beginning and its end."""
    run = step.run
    end = step.step_seconds - run.left_out * run.pace  # what was run and is not the whole step ends as the whole step does
    window = max(stage.forward + stage.backward for stage in step.stages) * width / 8
    if not run.left_out and end <= 2 * window:
        lines = [*_picture(step, 0.0, end, width), _scale(0.0, step.step_seconds, width)]
    else:
        lines = ["the beginning", *_picture(step, 0.0, window, width), _scale(0.0, window, width), "the end"]
        lines += [*_picture(step, end - window, end, width), _scale(step.step_seconds - window, step.step_seconds, width)]
    split = any("W" in line[10:] for line in lines if line.startswith("stage"))
    backward = "I and W backward for inputs and weights" if split else "B backward"
    return [*lines, f"F forward, {backward}, g gradients, o optimizer and weights, · waiting"]


def _picture(step: StepTime, start: float, end: float, width: int) -> list[str]:
    times = [start + (column + 0.5) * (end - start) / width for column in range(width)]
    return [f"stage {one.stage.index:>3} {_line(step, one, times)}" for one in some_stages(step.loads)]


def _line(step: StepTime, one: Load, times: Sequence[float]) -> str:
    run, places = step.run, step.run.of_rank(one.stage.index)
    starts = run.started[places.start : places.stop]
    left_out = run.left_out * run.pace
    done = run.ends[one.stage.index] - left_out
    optimizer = step.pipeline_seconds + step.gradients_seconds - left_out
    line = ""
    for at in times:
        x = places.start + bisect_right(starts, at) - 1
        if x >= places.start and at < run.ended[x]:
            line += run.graph.actions[x].kind
        elif optimizer <= at < optimizer + one.optimizer + one.tail.weights + one.tail.small:
            line += "o"
        else:
            line += "g" if done <= at < done + one.tail.gradients else "·"
    return line


def _scale(start: float, end: float, width: int) -> str:
    left, right = format_seconds(start), format_seconds(end)
    return " " * 10 + left + right.rjust(width - len(left))
