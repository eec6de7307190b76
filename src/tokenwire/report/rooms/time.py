"""A step in time to read: the seconds and where they go, stage by stage, the pipeline as a picture, a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.report.terminal import console, table
from tokenwire.units import format_seconds, parse_share

if TYPE_CHECKING:
    from tokenwire.journey import Journey
    from tokenwire.timeline import StepTime

MOST_ACTIONS = 400_000
"""Actions of all stages up to which a picture or a trace has every micro-batch."""
MOST_STAGES = 16
WIDTH = 66


def timed(journey: Journey, slow: Sequence[str] | None = None, attention: str = "flash", *, whole: bool = False) -> StepTime:
    """Return a journey's step in time. ``slow`` are texts ``RANK=SHARE``, ``attention`` flash or unfused.

    Raises ``InputError`` for what these cannot be.
    """
    from tokenwire.timeline import step_time

    if attention not in ("flash", "unfused"):
        raise InputError(f"--attention {attention[:40]}", rule="must be flash or unfused", nearest="--attention flash")
    plan = journey.plan()
    few = 2 * plan.micro_batches * plan.vpp * plan.pp <= MOST_ACTIONS
    return step_time(
        journey.model().architecture, plan, journey.step(), journey.config.cluster.facts, slow=slow_ranks(slow),
        attention="unfused" if attention == "unfused" else "flash", whole=whole and few,
    )  # fmt: skip


def slow_ranks(given: Sequence[str] | None) -> dict[int, float]:
    """Return ``["3=10%"]`` as a mapping of ranks to shares.

    >>> slow_ranks(["3=10%"])
    {3: 0.1}
    """
    out = {}
    for text in given or ():
        rank, sign, share = text.partition("=")
        if not sign or not rank.strip().isdigit() or len(rank) > 12:
            raise InputError(f"--slow {text[:60]}", rule="must be RANK=SHARE", nearest="--slow 0=10%")
        out[int(rank)] = parse_share(share)
    return out


def facts(step: StepTime, journey: Journey) -> dict[str, Any]:
    """Return the step as plain facts; times in seconds."""
    out: dict[str, Any] = {
        "step_seconds": step.step_seconds, "compute_seconds": step.compute_seconds,
        "exposed_communication_seconds": step.exposed_communication_seconds, "bubble_seconds": step.bubble_seconds,
        "mfu": step.mfu, "tflops_per_gpu": step.tflops_per_gpu, "tokens_per_second": step.tokens_per_second,
    }  # fmt: skip
    peaks = _memory(journey)
    if peaks is not None:
        out["peak_memory_bytes_by_stage"] = peaks
    return out | {
        "schedule": step.schedule, "busiest_stage": step.busiest.stage, "send_seconds": step.send_seconds,
        "stages": [
            {"stage": s.stage, "forward_seconds": s.forward, "backward_seconds": s.backward, "compute_seconds": s.compute,
             "optimizer_seconds": s.optimizer, "exposed_seconds": s.exposed, "bubble_seconds": s.bubble, "parts_seconds": s.parts,
             "efficiency_known_seconds": s.known, "communication_seconds": s.said}
            for s in step.stages
        ],
        "critical_path": path_facts(step), "figures": [figure.as_dict() for figure in step.figures], "notes": list(step.notes),
    }  # fmt: skip


def _memory(journey: Journey) -> list[int] | None:
    """Return the peak bytes by stage, None where no room tells them."""
    from importlib import import_module, util

    if util.find_spec("tokenwire.timeline.memory") is None:
        return None
    peak_by_stage = getattr(import_module("tokenwire.timeline.memory"), "peak_by_stage", None)
    if peak_by_stage is None:
        return None
    return [int(size) for size in peak_by_stage(journey.model().architecture, journey.plan())]


def path_facts(step: StepTime) -> dict[str, Any]:
    """Return what lies on the critical path of the micro-batches that were run: seconds by stage, and in transfers."""
    from tokenwire.timeline.simulation import critical_path

    by_stage: dict[int, float] = {}
    sent = 0.0
    spans = [{action: end - start for action, start, end in actions} for actions in step.run.actions]
    for rank, action, waited in critical_path(step.run, step.send_seconds):
        by_stage[rank] = by_stage.get(rank, 0.0) + spans[rank][action]
        sent += waited
    return {"micro_batches": step.run.shown, "seconds_by_stage": by_stage, "transfer_seconds": sent}


def write_trace(step: StepTime, path: str, journey: Journey) -> None:
    """Write the step as a trace of JSON events."""
    from tokenwire.files import whole_or_nothing
    from tokenwire.timeline.trace import trace

    plan = journey.plan()
    about = {"model": journey.model().architecture.name, "gpus": plan.world, "schedule": step.schedule,
             "micro-batches": plan.micro_batches, "micro-batches shown": step.run.shown}  # fmt: skip
    with whole_or_nothing(path) as file:
        file.write(json.dumps(trace(step, about), allow_nan=False).encode())


def show(step: StepTime, journey: Journey) -> None:
    """Print the step: where its seconds go, its stages, the pipeline, derivations, notes."""
    plan = journey.plan()
    whole = step.step_seconds
    busy = step.busiest
    rows = [
        ("computing", format_seconds(step.compute_seconds), _share(step.compute_seconds, whole), f"stage {busy.stage}, which computes most"),
        ("exposed communication", format_seconds(busy.communication), _share(busy.communication, whole), _classes(busy.exposed)),
        ("bubble", format_seconds(busy.bubble), _share(busy.bubble, whole), "waiting for other stages" if plan.pp > 1 else ""),
        ("one step", format_seconds(whole), "100 %", f"{step.tokens_per_second:,.0f} tokens/s"),
        ("of the peak", f"{step.tflops_per_gpu:,.0f} TFLOP/s", f"{step.mfu:.1%}".replace("%", " %"), "MFU, a GPU"),
    ]  # fmt: skip
    console().print(table(rows, ("", "time", "share", ""), right=("time", "share"),
                          title=f"One step on {plan.world:,} GPUs, {plan.micro_batches:,} micro-batches"))  # fmt: skip
    shown = _some(step)
    rows_ = [
        (f"{s.stage}", format_seconds(s.forward), format_seconds(s.backward), format_seconds(s.compute), format_seconds(s.communication),
         format_seconds(s.bubble), format_seconds(s.optimizer))
        for s in shown
    ]  # fmt: skip
    columns = ("stage", "forward", "backward", "computing", "exposed", "bubble", "optimizer")
    console().print(table(rows_, columns, right=columns, title="By stage (forward, backward: one micro-batch)"))
    for line in gantt(step):
        console().print(line)
    console().print()
    for figure in step.figures:
        console().print(f"{figure.name}: {figure.derivation}" + (f" ({figure.because})" if figure.because else ""))
    path = path_facts(step)
    if plan.pp > 1:
        most = sorted(path["seconds_by_stage"].items(), key=lambda x: -x[1])[:3]
        said = ", ".join(f"stage {stage} {format_seconds(seconds)}" for stage, seconds in most)
        console().print(f"critical path: {said}, transfers {format_seconds(path['transfer_seconds'])} ({path['micro_batches']:,} micro-batches)")
    for note in step.notes:
        console().print(f"note: {note}")


def _some(step: StepTime) -> list[Any]:
    n = len(step.stages)
    if n <= MOST_STAGES:
        return list(step.stages)
    return [step.stages[round(i * (n - 1) / (MOST_STAGES - 1))] for i in range(MOST_STAGES)]


def gantt(step: StepTime, width: int = WIDTH) -> list[str]:
    """Return the pipeline as text, a line a stage, a letter for what a slice of time is spent on.

    A step of many micro-batches is shown by its beginning and its end.
    """
    run, tail = step.run, step.step_seconds - dict(step.tail_seconds)["pipeline"]
    drawn = max(actions[-1][2] for actions in run.actions)
    pace = max(stage.forward + stage.backward for stage in step.stages)
    window = pace * width / 8
    if run.shown == step.micro_batches and drawn + tail <= 2 * window:
        lines = [*_picture(step, 0.0, drawn + tail, width), _scale(0.0, step.step_seconds, width)]
    else:
        # What was run and is not the whole step ends as the whole step does.
        later = step.step_seconds - (drawn + tail)
        end = drawn + tail
        lines = ["the beginning", *_picture(step, 0.0, window, width), _scale(0.0, window, width), "the end"]
        lines += [*_picture(step, end - window, end, width), _scale(end - window + later, step.step_seconds, width)]
    split = any("W" in line[10:] for line in lines if line.startswith("stage"))
    backward = "I and W backward for inputs and weights" if split else "B backward"
    return [*lines, f"F forward, {backward}, g gradients, o optimizer and weights, · waiting"]


def _picture(step: StepTime, start: float, end: float, width: int) -> list[str]:
    """Return the lines of the stages between two moments of what was run."""
    from bisect import bisect_right

    run = step.run
    drawn = max(actions[-1][2] for actions in run.actions)
    optimizer = drawn + dict(step.tail_seconds)["gradients"]
    lines = []
    for stage in _some(step):
        actions = run.actions[stage.stage]
        starts, line = [begin for _, begin, _ in actions], ""
        for column in range(width):
            at = start + (column + 0.5) * (end - start) / width
            i = bisect_right(starts, at) - 1
            if i >= 0 and at < actions[i][2]:
                line += actions[i][0].kind
            elif at >= optimizer:
                line += "o"
            elif actions[-1][2] <= at < actions[-1][2] + stage.exposed.get("gradients", 0.0):
                line += "g"
            else:
                line += "·"
        lines.append(f"stage {stage.stage:>3} {line}")
    return lines


def _scale(start: float, end: float, width: int) -> str:
    left, right = format_seconds(start), format_seconds(end)
    return " " * 10 + left + right.rjust(width - len(left))


def _share(part: float, whole: float) -> str:
    return f"{part / whole * 100:.1f} %"


def _classes(exposed: dict[str, float]) -> str:
    return ", ".join(f"{who} {format_seconds(seconds)}" for who, seconds in sorted(exposed.items(), key=lambda x: -x[1])[:3])
