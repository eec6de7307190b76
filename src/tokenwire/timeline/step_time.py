"""One training step in time: what each stage computes, says and waits for, and how long the step takes.

    step = max over stages (end of its pipeline + gradients that nothing hides) + max over stages (optimizer + weights gathered + norms)

The norm of all gradients makes every rank wait for the last one, so the two parts add. compute, exposed and bubble are of the stage
that computes most and sum to the step: bubble is what is left, the time in which it waits for other stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.figures import Figure
from tokenwire.model import flops_per_token
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.timeline.accelerator import Accelerator, accelerator
from tokenwire.timeline.communication import Said, said
from tokenwire.timeline.compute import AttentionKind, Work, chunk_work, optimizer_seconds
from tokenwire.timeline.overlap import Flags, exposed, flags, waits
from tokenwire.timeline.simulation import Run, pipeline
from tokenwire.units import format_quantity, format_seconds

if TYPE_CHECKING:
    import polars as pl

SPLIT = ("zb-h1", "zbv", "dualpipe", "dualpipev")
"""Schedules that compute gradients of inputs and of weights apart."""


@dataclass(frozen=True)
class StageTime:
    """Seconds of one rank of a stage in a step. ``exposed`` by class; ``gradients`` and ``gathers`` are of the end of the step.

    ``forward`` and ``backward`` are of one micro-batch through all its virtual stages, with what they wait for.
    """

    stage: int
    forward: float
    backward: float
    compute: float
    optimizer: float
    exposed: dict[str, float]
    bubble: float
    parts: dict[str, float]
    known: dict[str, float]
    flops: float
    said: dict[str, float]

    @property
    def communication(self) -> float:
        """Return all seconds in which the rank only waits for its own communication."""
        return sum(self.exposed.values())


@dataclass(frozen=True)
class StepTime:
    """A step: seconds, its stages, its pipeline as it ran (``run``), and figures with derivations."""

    step_seconds: float
    stages: tuple[StageTime, ...]
    run: Run
    schedule: str
    micro_batches: int
    send_seconds: float
    tail_seconds: tuple[tuple[str, float], ...]
    mfu: float
    tflops_per_gpu: float
    tokens_per_second: float
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]

    @property
    def busiest(self) -> StageTime:
        """Return the stage that computes most, by which compute, exposed and bubble are told."""
        return max(self.stages, key=lambda stage: stage.compute + stage.optimizer)

    @property
    def compute_seconds(self) -> float:
        """Return the seconds that a rank of the busiest stage computes, optimizer and recomputation with it."""
        return self.busiest.compute + self.busiest.optimizer

    @property
    def exposed_communication_seconds(self) -> float:
        """Return the seconds in which that rank only waits for its own communication."""
        return self.busiest.communication

    @property
    def bubble_seconds(self) -> float:
        """Return the seconds in which that rank waits for other stages."""
        return self.busiest.bubble

    def table(self) -> pl.DataFrame:
        """Return a row a stage, all in seconds a step but ``forward`` and ``backward`` (of a micro-batch)."""
        import polars as pl

        names = sorted({name for stage in self.stages for name in stage.exposed})
        return pl.DataFrame([
            {"stage": s.stage, "forward": s.forward, "backward": s.backward, "compute": s.compute, "optimizer": s.optimizer,
             **{f"exposed_{name}": s.exposed.get(name, 0.0) for name in names}, "bubble": s.bubble,
             **{f"part_{name}": value for name, value in s.parts.items()}}
            for s in self.stages
        ])  # fmt: skip


def schedule_of(plan: Plan) -> str:
    """Return the name of the plan's pipeline schedule."""
    name = getattr(plan.config, "pipeline_parallel_schedule", None)
    if name is not None and plan.pp > 1:
        known = {"Interleaved1F1B": "interleaved-1f1b", "InterleavedZeroBubble": "zb-h1", "ZBVZeroBubble": "zbv",
                 "DualPipeV": "dualpipev", "GPipe": "gpipe", "LoopedBFS": "interleaved-1f1b"}  # fmt: skip
        return known.get(name, "1f1b")
    return "interleaved-1f1b" if plan.vpp > 1 else "1f1b"


def step_time(
    arch: Architecture, plan: Plan, rows: pl.DataFrame | Iterable[Mapping[str, Any]], facts: ClusterFacts, *,
    gpu: Accelerator | None = None, slow: Mapping[int, float] | None = None, attention: AttentionKind = "flash",
    whole: bool = False,
) -> StepTime:  # fmt: skip
    """Return how long one step of a plan takes on a cluster; ``rows`` is the step table (``tokenwire.step``).

    ``gpu`` None: the cluster's own. ``slow`` maps a rank to the share by which it computes slower (0.1: 10 %). ``attention``:
    flash, or with its scores written out. ``whole``: every micro-batch is run, for a picture of all of them. Raises ``InputError`` for an unknown GPU, or a rank or share that cannot be.
    """
    gpu = gpu or accelerator(facts.gpu, facts.peak_flops)
    slower = _slower(plan, slow or {})
    by_stage = _by_stage(rows, plan)
    flag, name, m = flags(plan.config), schedule_of(plan), plan.micro_batches
    works: list[list[Work]] = []
    spoken: list[Said] = []
    for stage in plan.stages:
        works.append([chunk_work(arch, plan, gpu, stage, chunk, attention) for chunk in range(len(stage.chunks))])
        spoken.append(said(by_stage.get(stage.index, ()), plan, stage.index, facts, gpu))
    waiting = [[_waits(works[s.index], spoken[s.index], s, c, flag, plan, gpu) for c in range(len(s.chunks))] for s in plan.stages]
    durations = [_durations(name, works[i], waiting[i], slower.get(i, 1.0)) for i in range(plan.pp)]
    send = max((x.send for x in spoken), default=0.0)
    group = getattr(plan.config, "microbatch_group_size_per_vp_stage", None) if name == "interleaved-1f1b" else None
    run = pipeline(name, plan.pp, m, plan.vpp if plan.pp > 1 else 1, durations, send, group, whole=whole)
    optimizers = [optimizer_seconds(arch, plan, gpu, stage) * slower.get(stage.index, 1.0) for stage in plan.stages]
    tails = [_tail(spoken[i], flag, durations[i]) for i in range(plan.pp)]
    pipe_end = max(end + tails[i]["gradients"] for i, end in enumerate(run.ends))
    last = max(optimizers[i] + tails[i]["weights"] + tails[i]["small"] for i in range(plan.pp))
    step = pipe_end + last
    stages = tuple(
        _stage(i, m, works[i], waiting[i], spoken[i], tails[i], optimizers[i], step, slower.get(i, 1.0)) for i in range(plan.pp)
    )
    tokens = plan.training.global_batch * plan.training.sequence_length
    need = flops_per_token(arch, plan.training.sequence_length)
    rate = need.value * tokens / (step * plan.world)
    out = StepTime(
        step, stages, run, name, m, send, (("pipeline", run.makespan), ("gradients", pipe_end - run.makespan), ("optimizer", last)),
        rate / gpu.peak("bf16"), rate / 1e12, tokens / step, (), tuple(_notes(stages, gpu, facts)),
    )  # fmt: skip
    return replace(out, figures=tuple(_figures(out, plan, gpu, need)))


def _slower(plan: Plan, slow: Mapping[int, float]) -> dict[int, float]:
    out: dict[int, float] = {}
    for rank, share in slow.items():
        if not 0 <= rank < plan.world:
            raise InputError(f"slow rank {rank:,}", rule=f"the plan has ranks 0 to {plan.world - 1:,}",
                             nearest=str(min(max(rank, 0), plan.world - 1)))  # fmt: skip
        if not 0 <= share < 100:
            raise InputError(f"slow by {share:g}", rule="a share is 0 or more (10 %: 0.1)", nearest="10%")
        stage = plan.stage_of(rank)
        out[stage] = max(out.get(stage, 1.0), 1.0 + share)
    return out


def _by_stage(rows: Any, plan: Plan) -> dict[int, list[dict[str, Any]]]:
    given = rows.iter_rows(named=True) if hasattr(rows, "iter_rows") else rows
    out: dict[int, list[dict[str, Any]]] = {stage.index: [] for stage in plan.stages}
    for row in given:
        out[row["stage"]].append(row)
    return out


def _waits(
    works: list[Work], spoken: Said, stage: Stage, chunk: int, flag: Flags, plan: Plan, gpu: Accelerator
) -> dict[str, dict[str, float]]:
    units = len(stage.chunks[chunk]) + (stage.has_embedding and chunk == 0) + (stage.has_head and chunk == len(stage.chunks) - 1)
    return {
        phase: waits(spoken.action.get((chunk, phase), {}), phase, works[chunk], flag, plan.tp, units, gpu.beside)
        for phase in ("forward", "backward")
    }


def _durations(name: str, works: list[Work], waiting: list[dict[str, dict[str, float]]], slower: float) -> dict[tuple[str, int], float]:
    out: dict[tuple[str, int], float] = {}
    for i, (work, wait) in enumerate(zip(works, waiting, strict=True)):
        forward, backward = sum(wait["forward"].values()), sum(wait["backward"].values())
        out["F", i] = work.forward * slower + forward
        out["B", i] = work.backward * slower + backward
        if name in SPLIT:
            out["I", i] = (work.input + work.recompute) * slower + backward
            out["W", i] = work.weight * slower
    return out


def _tail(spoken: Said, flag: Flags, durations: dict[tuple[str, int], float]) -> dict[str, float]:
    """Return the exposed seconds of the end of the step: gradients, weights gathered for the next step, small calls."""
    out = {"gradients": 0.0, "weights": 0.0, "small": 0.0}
    sums: dict[str, list[float]] = {"gradients": [0.0, 0.0], "weights": [0.0, 0.0]}
    for op, who, phase, count, each in spoken.tail:
        if phase == "gradients" and who in ("dp", "fsdp", "ep"):
            kind = "gradients"
        elif phase == "gradients":
            out["gradients"] += count * each
            continue
        elif phase == "optimizer" and op in ("all_gather", "broadcast"):
            kind = "weights"
        else:
            out["small"] += count * each
            continue
        sums[kind][0] += count * each
        sums[kind][1] += count
    first, last = durations["F", 0], durations["B", 0]
    hidden = {"gradients": (flag.gradients, last), "weights": (flag.weights, first)}
    for kind, (seconds, calls) in sums.items():
        beside, work = hidden[kind]
        out[kind] += exposed(seconds, work, round(calls)) if beside else seconds
    return out


def _stage(
    i: int, m: int, works: list[Work], waiting: list[dict[str, dict[str, float]]], spoken: Said, tail: dict[str, float],
    optimizer: float, step: float, slower: float,
) -> StageTime:  # fmt: skip
    compute = m * slower * sum(work.total for work in works)
    waited: dict[str, float] = {}
    for wait in waiting:
        for phase in wait.values():
            for who, seconds in phase.items():
                waited[who] = waited.get(who, 0.0) + m * seconds
    for who, seconds in (("gradients", tail["gradients"]), ("weights", tail["weights"]), ("small", tail["small"])):
        if seconds:
            waited[who] = waited.get(who, 0.0) + seconds
    sums: dict[str, dict[str, float]] = {"parts": {}, "known": {}}
    for work in works:
        for key, values in (("parts", work.parts), ("known", work.known)):
            for what, seconds in values.items():
                sums[key][what] = sums[key].get(what, 0.0) + m * slower * seconds
    forward = sum(work.forward * slower + sum(wait["forward"].values()) for work, wait in zip(works, waiting, strict=True))
    backward = sum(work.backward * slower + sum(wait["backward"].values()) for work, wait in zip(works, waiting, strict=True))
    return StageTime(
        i, forward, backward, compute, optimizer, waited, max(0.0, step - compute - optimizer - sum(waited.values())),
        sums["parts"], sums["known"], m * sum(work.flops for work in works), spoken.by_class,
    )  # fmt: skip


def _notes(stages: tuple[StageTime, ...], gpu: Accelerator, facts: ClusterFacts) -> Iterable[str]:
    known: dict[str, float] = {}
    for stage in stages:
        for how, seconds in stage.known.items():
            known[how] = known.get(how, 0.0) + seconds
    whole = sum(known.values()) or 1.0
    said_as = {"measured": "measured at its shape", "near": "read off near shapes that were measured",
               "generic": "by the generic curve, for want of a measurement", "memory": "bound by memory"}  # fmt: skip
    parts = [f"{known[how] / whole:.0%} {text}" for how, text in said_as.items() if known.get(how)]
    yield f"computing on {facts.gpu}: {', '.join(parts)}"
    if gpu.sustained != 1.0:
        yield f"kernels run at {gpu.sustained:.0%} of their speed alone, as long runs on this machine showed"
    yield "the CPU is never late, no rank is slower than another unless said, and a transfer between stages takes no GPU time"


def _figures(out: StepTime, plan: Plan, gpu: Accelerator, need: Figure) -> Iterable[Figure]:
    busy, m = out.busiest, plan.micro_batches
    pace = max(out.stages, key=lambda s: s.forward + s.backward)
    ideal = m * (pace.forward + pace.backward)
    tokens = plan.training.global_batch * plan.training.sequence_length
    yield Figure("a micro-batch forward", pace.forward, "s", "Σ operators + exposed", "", "tokenwire.timeline.compute", f"stage {pace.stage}, the slowest")
    yield Figure("a micro-batch backward", pace.backward, "s", "Σ operators + recomputed + exposed", "", "tokenwire.timeline.compute", f"stage {pace.stage}")
    yield Figure(
        "pipeline", out.run.makespan, "s", "m·(F+B) + fill and drain",
        f"{m:,}·({format_seconds(pace.forward)} + {format_seconds(pace.backward)}) + {format_seconds(out.run.makespan - ideal)}",
        "tokenwire.timeline.simulation", f"{out.schedule} on {plan.pp:,} stages, {m:,} micro-batches",
    )  # fmt: skip
    (_, pipe), (_, gradients), (_, last) = out.tail_seconds
    yield Figure(
        "step", out.step_seconds, "s", "pipeline + gradients + optimizer and weights",
        f"{format_seconds(pipe)} + {format_seconds(gradients)} + {format_seconds(last)}", "tokenwire.timeline.step_time",
    )  # fmt: skip
    yield Figure(
        "exposed communication", busy.communication, "s", "Σ classes",
        " + ".join(f"{who} {format_seconds(seconds)}" for who, seconds in sorted(busy.exposed.items(), key=lambda x: -x[1])[:4]),
        "tokenwire.timeline.overlap", f"stage {busy.stage}, which computes most",
    )  # fmt: skip
    yield Figure(
        "MFU", out.mfu, "%", "FLOPs a token · tokens / (step · GPUs · peak)",
        f"{format_quantity(need.value, 'FLOP')}·{tokens:,} / ({format_seconds(out.step_seconds)}·{plan.world:,}"
        f"·{format_quantity(gpu.peak('bf16'), 'FLOP/s')})", need.source,
    )  # fmt: skip
