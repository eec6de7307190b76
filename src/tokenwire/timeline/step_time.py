"""One training step in time: what each stage computes, says and waits for, and how long the step takes.

    step = max over stages (end of its pipeline + gradients that nothing hides) + max over stages (optimizer + weights gathered + norms)

The norm of all gradients makes every rank wait for the last one, so the two parts add. compute, exposed and bubble are of the stage
that computes most and sum to the step: bubble is what is left, the time in which it waits for other stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.figures import Figure
from tokenwire.model import flops_per_token
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.described import unpredicted
from tokenwire.step import transfers_of
from tokenwire.step.operation import Operation
from tokenwire.step.transfer import Transfer
from tokenwire.timeline.accelerator import Accelerator, accelerator_of
from tokenwire.timeline.calibration import calibrated, named, precision_of, usual
from tokenwire.timeline.communication import Calls
from tokenwire.timeline.compute import AttentionKind
from tokenwire.timeline.derivation import figures, notes
from tokenwire.timeline.exchange import once
from tokenwire.timeline.jitter import Jitter, jitter
from tokenwire.timeline.overlap import blocking, flags
from tokenwire.timeline.simulation import Run, pipeline
from tokenwire.timeline.stage_time import SPLIT, Load, StageTime, beside_host, loads_of, stage_time

if TYPE_CHECKING:
    import polars as pl

SLOWEST = 100
"""Share by which no rank is slower: one that takes 101 times as long has failed."""


@dataclass(frozen=True)
class StepTime:
    """A step: seconds, its stages, its pipeline as it ran (``run``), and figures with derivations.

    ``pipeline_seconds`` is until the last rank has done its last backward, ``gradients_seconds`` what gradients add to it,
    ``optimizer_seconds`` the optimizer with all that comes after it. ``transfers`` are the copies between GPU and host that offload brings.
    """

    step_seconds: float
    pipeline_seconds: float
    gradients_seconds: float
    optimizer_seconds: float
    stages: tuple[StageTime, ...]
    loads: tuple[Load, ...] = field(repr=False)
    run: Run = field(repr=False)
    schedule: str
    micro_batches: int
    send_seconds: float
    mfu: float
    tflops_per_gpu: float
    tokens_per_second: float
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    jitter: Jitter | None = None
    transfers: tuple[Transfer, ...] = ()

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
        parts = sorted({name for stage in self.stages for name in stage.parts})
        return pl.DataFrame([
            {"stage": s.stage, "forward": s.forward, "backward": s.backward, "compute": s.compute, "optimizer": s.optimizer,
             **{f"exposed_{name}": s.exposed.get(name, 0.0) for name in names}, "bubble": s.bubble,
             **{f"part_{name}": s.parts.get(name, 0.0) for name in parts}}
            for s in self.stages
        ])  # fmt: skip


def step_time(
    arch: Architecture, plan: Plan, rows: Iterable[Operation], facts: ClusterFacts, *,
    gpu: Accelerator | None = None, setting: str | None = None, slow: Mapping[int, float] | None = None, attention: AttentionKind = "flash",
    jitter_share: float = 0.0, shared: Mapping[tuple[str, str, str], float] | None = None, whole: bool = False,
) -> StepTime:  # fmt: skip
    """Return how long one step of a plan takes on a cluster; ``rows`` is what it says (``tokenwire.step.calls_of``).

    ``gpu`` None: the cluster's own, calibrated as ``setting`` says (None: as is usual for the plan). ``slow`` maps a rank to the share by which it computes slower (0.1: 10 %, 1: twice as long). ``attention``:
    flash, or with its scores written out. ``shared``: factors by which calls are slower for links that they share (``sharing``). ``jitter_share``: how much each action varies (standard deviation). ``whole``: every
    micro-batch is run, for a picture of all of them. Raises ``InputError`` for an unknown GPU, a rank or a share that cannot be.
    """
    gpu = gpu or _gpu(arch, plan, facts, setting)
    flag, name, m = flags(plan.config), plan.schedule.name, plan.micro_batches
    calls = Calls(plan, facts, gpu, shared, lambda place: once(arch, plan, place))
    rows = tuple(rows)
    transfers = transfers_of(arch, plan, rows)
    loads = tuple(beside_host(arch, one, transfers, plan, facts) for one in loads_of(arch, rows, calls, flag, attention, _slower(plan, slow or {})))
    durations = [one.durations(name in SPLIT) for one in loads]
    send = max((one.said.send for one in loads), default=0.0)
    holds = blocking(plan.config, name)
    run = pipeline(name, plan.pp, m, plan.vpp if plan.pp > 1 else 1, durations, send, plan.schedule.group, blocking=holds, whole=whole)
    pipe_end = max(end + one.tail.gradients + one.host.exposed for one, end in zip(loads, run.ends, strict=True))
    last = max(one.optimizer + one.tail.weights + one.tail.small for one in loads)
    shaken = None
    if jitter_share:
        shaken = jitter(run, durations, send, _share(jitter_share), together=plan.tp * plan.cp * plan.ep, replicas=plan.dp, blocking=holds)
    step = pipe_end + last + (shaken.mean - shaken.without if shaken else 0.0)
    # What is trained, with a module of multi-token prediction for every further token.
    trained = replace(plan.config.trained(arch), mtp_layers=getattr(plan.config, "mtp_num_layers", None) or 0)
    need = flops_per_token(trained, plan.training.sequence_length)
    tokens = plan.training.global_batch * plan.training.sequence_length
    rate = need.value * tokens / (step * plan.world)
    out = StepTime(
        step, run.makespan, pipe_end - run.makespan, last, tuple(stage_time(one, m, step) for one in loads), loads, run, name, m, send,
        rate / gpu.peak("bf16"), rate / 1e12, tokens / step, jitter=shaken, transfers=transfers,
    )  # fmt: skip
    return replace(out, figures=tuple(figures(out, plan, gpu, need)), notes=(*notes(out, gpu, facts, holds, shared), *unpredicted(arch)))


_calibrated = lru_cache(maxsize=64)(calibrated)
"""One object a setting: what is known of its kernels is found again without comparing all of it."""


def _gpu(arch: Architecture, plan: Plan, facts: ClusterFacts, setting: str | None) -> Accelerator:
    plain = accelerator_of(facts)
    return _calibrated(plain, usual(plain, arch, plan) if setting is None else named(setting), precision_of(plan))


def _share(jitter_share: float) -> float:
    if not 0 <= jitter_share <= 1:
        raise InputError(f"jitter of {jitter_share:g}", rule="must lie between 0 and 1 (5 %: 0.05)", nearest="0.05")
    return jitter_share


def _slower(plan: Plan, slow: Mapping[int, float]) -> dict[int, float]:
    out: dict[int, float] = {}
    for rank, share in slow.items():
        if not 0 <= rank < plan.world:
            raise InputError(f"slow rank {rank:,}", rule=f"the plan has ranks 0 to {plan.world - 1:,}",
                             nearest=str(min(max(rank, 0), plan.world - 1)))  # fmt: skip
        if not 0 <= share < SLOWEST:
            raise InputError(f"slow by {share:g}", rule=f"a share is 0 or more and below {SLOWEST} (10 %: 0.1)", nearest="10%")
        stage = plan.stage_of(rank)
        out[stage] = max(out.get(stage, 1.0), 1.0 + share)
    return out

