"""A step in time to read: the seconds and where they go, stage by stage, the pipeline as a picture, a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.report.rooms.time_gantt import gantt, some_stages
from tokenwire.report.terminal import console, folded, table
from tokenwire.units import counted, format_bytes, format_quantity, format_seconds, parse_share

if TYPE_CHECKING:
    from tokenwire.journey import Journey
    from tokenwire.timeline import Path, StepTime
    from tokenwire.timeline.memory import Memory

MOST_ACTIONS = 200_000
"""Actions of all stages up to which a picture or a trace has every micro-batch."""


def timed(
    journey: Journey, slow: Sequence[str] | None = None, attention: str = "flash", jitter: str | None = None, setting: str | None = None,
    *, network: bool = False, whole: bool = False,
) -> StepTime:  # fmt: skip
    """Return a journey's step in time. ``slow`` are texts ``RANK=SHARE``, ``attention`` flash or unfused, ``jitter`` a share, ``setting`` a calibration.

    ``network``: with the links that groups share. ``whole``: with every micro-batch, where they are not too many. Raises ``InputError`` for what these cannot be.
    """
    from tokenwire.timeline import step_time

    if attention not in ("flash", "unfused"):
        raise InputError(f"--attention {attention[:40]}", rule="must be flash or unfused", nearest="--attention flash")
    plan = journey.plan()
    few = 2 * plan.micro_batches * plan.vpp * plan.pp <= MOST_ACTIONS
    shared = None
    if network:
        from tokenwire.timeline.sharing import slowdowns

        shared = slowdowns(journey.traffic())
    return step_time(
        journey.model().architecture, plan, journey.calls(), journey.config.cluster.facts, slow=slow_ranks(slow), shared=shared,
        setting=setting, attention="unfused" if attention == "unfused" else "flash", jitter_share=parse_share(jitter, zero=True) if jitter else 0.0, whole=whole and few,
    )  # fmt: skip


def slow_ranks(given: Sequence[str] | None) -> dict[int, float]:
    """Return ``["3=10%"]`` as a mapping of ranks to shares; one that takes twice as long is slower by 100 %.

    >>> slow_ranks(["3=10%", "4=100%"])
    {3: 0.1, 4: 1.0}
    """
    from tokenwire.timeline.step_time import SLOWEST

    out = {}
    for text in given or ():
        rank, sign, share = text.partition("=")
        if not sign or not rank.strip().isascii() or not rank.strip().isdigit() or len(rank) > 12:
            raise InputError(f"--slow {text[:60]}", rule="must be RANK=SHARE", nearest="--slow 0=10%")
        out[int(rank)] = parse_share(share, below=SLOWEST)
    return out


def facts(step: StepTime, journey: Journey) -> dict[str, Any]:
    """Return the step as plain facts; times in seconds."""
    out: dict[str, Any] = {
        "step_seconds": step.step_seconds, "compute_seconds": step.compute_seconds,
        "exposed_communication_seconds": step.exposed_communication_seconds, "bubble_seconds": step.bubble_seconds,
        "mfu": step.mfu, "tflops_per_gpu": step.tflops_per_gpu, "tokens_per_second": step.tokens_per_second,
    }  # fmt: skip
    memory = _memory(journey)
    if memory is not None:
        out["peak_memory_bytes_by_stage"] = [stage.peak for stage in memory.stages]
    return out | {
        "schedule": step.schedule, "busiest_stage": step.busiest.stage, "send_seconds": step.send_seconds,
        "stages": [
            {"stage": s.stage, "forward_seconds": s.forward, "backward_seconds": s.backward, "compute_seconds": s.compute,
             "optimizer_seconds": s.optimizer, "exposed_seconds": s.exposed, "bubble_seconds": s.bubble, "parts_seconds": s.parts,
             "efficiency_known_seconds": s.known, "communication_seconds": s.said}
            for s in step.stages
        ],
        "transfers": [transfer._asdict() for transfer in step.transfers],
        "critical_path": path_facts(step), "jitter": _jitter(step), "figures": [figure.as_dict() for figure in step.figures],
        "notes": list(step.notes),
    }  # fmt: skip


def _jitter(step: StepTime) -> dict[str, Any] | None:
    shaken = step.jitter
    if shaken is None:
        return None
    return {
        "share": shaken.share, "pipeline_mean_seconds": shaken.mean, "pipeline_median_seconds": shaken.median,
        "pipeline_99_percent_seconds": shaken.worst, "pipeline_without_seconds": shaken.without, "steps_drawn": shaken.steps,
        "replicas": shaken.replicas,
    }  # fmt: skip


def _memory(journey: Journey) -> Memory | None:
    """Return the memory of the ranks, None where the plan's framework or its GPU is not known to the memory room."""
    from tokenwire.timeline.memory import memory, software_on

    try:
        return memory(journey.model().architecture, journey.plan(), software_on(journey.config.cluster.facts))
    except InputError:
        return None


def _memory_row(journey: Journey) -> list[tuple[str, str, str, str]]:
    """Return the row of the worst stage's peak, where it is known."""
    found = _memory(journey)
    if found is None:
        return []
    from tokenwire.timeline.memory.fit import room_of

    peaks, whole = [stage.peak for stage in found.stages], found.capacity
    said = f"stage {peaks.index(max(peaks))}" + (", likely does not fit: see tokenwire memory" if found.reserved > room_of(found) else "")
    return [("peak memory", format_bytes(max(peaks)), _share(max(peaks), whole), said)]


def path_facts(step: StepTime) -> dict[str, Any]:
    """Return what lies on the critical path of the pipeline: seconds by stage, by kind, and in transfers."""
    from tokenwire.timeline import critical_path

    path = critical_path(step.run)
    return {"seconds_by_stage": path.by_rank(), "transfer_seconds": path.transfers, "seconds_by_kind": _kinds(step, path)}


def _kinds(step: StepTime, path: Path) -> dict[str, float]:
    """Return the path's seconds by what they are spent on: computing forward and backward, and each class that is waited for."""
    out: dict[str, float] = {}
    for (rank, kind, chunk), seconds in path.actions.items():
        one = step.loads[rank]
        phase = "forward" if kind == "F" else "backward"
        waits = one.waiting[chunk][phase] if kind != "W" else {}
        whole = one.durations(True)[kind, chunk] or 1.0
        for who, waited in waits.items():
            out[who] = out.get(who, 0.0) + seconds * waited / whole
        out[phase] = out.get(phase, 0.0) + seconds * (1 - sum(waits.values()) / whole)
    return out


def write_trace(step: StepTime, path: str, journey: Journey) -> None:
    """Write the step as a trace of JSON events."""
    from tokenwire.files import whole_or_nothing
    from tokenwire.timeline.trace import trace

    about = {"model": journey.model().architecture.name, "gpus": journey.plan().world, "schedule": step.schedule,
             "micro-batches": step.micro_batches, "micro-batches shown": step.run.shown}  # fmt: skip
    with whole_or_nothing(path) as file:
        file.write(json.dumps(trace(step, about), allow_nan=False).encode())


def show(step: StepTime, journey: Journey) -> None:
    """Print the step: where its seconds go, its stages, the pipeline, derivations, notes."""
    plan, whole, busy = journey.plan(), step.step_seconds, step.busiest
    rows = [
        ("computing", format_seconds(step.compute_seconds), _share(step.compute_seconds, whole), f"stage {busy.stage}, which computes most"),
        ("exposed communication", format_seconds(busy.communication), _share(busy.communication, whole), _classes(busy.exposed)),
        ("bubble", format_seconds(busy.bubble), _share(busy.bubble, whole), "waiting for other stages" if plan.pp > 1 else ""),
        ("one step", format_seconds(whole), "100 %", f"{step.tokens_per_second:,.0f} tokens/s"),
        ("of the peak", format_quantity(step.tflops_per_gpu * 1e12, "FLOP/s"), _share(step.mfu, 1.0), "MFU, a GPU"),
        *_memory_row(journey),
    ]  # fmt: skip
    console().print(table(rows, ("", "time", "share", ""), right=("time", "share"),
                          title=f"One step on {counted(plan.world, 'GPU')}, {plan.micro_batches:,} micro-batch" + "es" * (plan.micro_batches != 1)))  # fmt: skip
    rows_ = [
        (f"{s.stage}", format_seconds(s.forward), format_seconds(s.backward), format_seconds(s.compute), format_seconds(s.communication),
         format_seconds(s.bubble), format_seconds(s.optimizer))
        for s in some_stages(step.stages)
    ]  # fmt: skip
    columns = ("stage", "forward", "backward", "computing", "exposed", "bubble", "optimizer")
    console().print(table(rows_, columns, right=columns, title="By stage (forward, backward: one micro-batch)"))
    for line in gantt(step):
        console().print(line)
    console().print()
    for figure in step.figures:
        said = f"{figure.name}: {figure.derivation}" + (f" ({figure.because})" if figure.because else "")
        console().print(folded(said, 80))
    for line in _more(step):
        console().print(folded(line, 80))


def _more(step: StepTime) -> list[str]:
    lines = []
    if len(step.stages) > 1:
        path = path_facts(step)
        most = sorted(path["seconds_by_kind"].items(), key=lambda x: -x[1])
        stages = sorted(path["seconds_by_stage"].items(), key=lambda x: -x[1])[:3]
        said = ", ".join(f"{kind} {format_seconds(seconds)}" for kind, seconds in most)
        where = ", ".join(f"stage {stage} {format_seconds(seconds)}" for stage, seconds in stages)
        lines.append(f"critical path: {said}, transfers {format_seconds(path['transfer_seconds'])}; most of it on {where}")
    if step.jitter:
        shaken = step.jitter
        lines.append(f"jitter of {shaken.share:.1%}: the pipeline takes {format_seconds(shaken.mean)} in the mean, "
                     f"{format_seconds(shaken.worst)} at the 99th percentile, {format_seconds(shaken.without)} without")  # fmt: skip
    return [*lines, *(f"note: {note}" for note in step.notes)]


def _share(part: float, whole: float) -> str:
    return f"{part / whole * 100:.1f} %"


def _classes(exposed: dict[str, float]) -> str:
    return ", ".join(f"{who} {format_seconds(seconds)}" for who, seconds in sorted(exposed.items(), key=lambda x: -x[1])[:3])
