"""One pipeline stage in time: what a rank of it computes and waits for in a micro-batch, at the end of the step, and altogether."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tokenwire.fabric import ClusterFacts
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.step.operation import Operation
from tokenwire.step.transfer import Transfer
from tokenwire.timeline.accelerator import Accelerator
from tokenwire.timeline.communication import DATA, Calls, Said, said
from tokenwire.timeline.compute import AttentionKind, Work, chunk_work, held, optimizer_seconds, wide_layers
from tokenwire.timeline.host import HostSeconds, host_seconds
from tokenwire.timeline.muon import muon_seconds
from tokenwire.timeline.overlap import Flags, exposed, unpaired, waits

SPLIT = ("zb-h1", "zbv", "dualpipe", "dualpipev")
"""Schedules that compute gradients of inputs and of weights apart."""


@dataclass(frozen=True)
class StageTime:
    """Seconds of one rank of a stage in a step. ``exposed`` and ``said`` (all that is spoken) are by the same classes (``Said.by_class``).

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
class Tail:
    """Exposed seconds of the end of a step: gradients, weights gathered for the next one, small calls."""

    gradients: float = 0.0
    weights: float = 0.0
    small: float = 0.0


@dataclass(frozen=True)
class Load:
    """What one stage has to do: work and waiting by virtual stage (``waiting[chunk][phase][class]``), the end of the step.

    ``slower`` is the factor by which its slowest rank computes slower.
    """

    stage: Stage
    works: tuple[Work, ...]
    said: Said
    waiting: tuple[dict[str, dict[str, float]], ...]
    tail: Tail
    optimizer: float
    slower: float
    host: HostSeconds = field(default_factory=HostSeconds)

    def durations(self, split: bool) -> dict[tuple[str, int], float]:
        """Return the seconds of each kind of action by virtual stage; ``split``: backward for inputs and weights too."""
        out: dict[tuple[str, int], float] = {}
        for i, (work, wait) in enumerate(zip(self.works, self.waiting, strict=True)):
            forward, backward = sum(wait["forward"].values()), sum(wait["backward"].values())
            out["F", i] = work.forward * self.slower + forward
            out["B", i] = work.backward * self.slower + backward
            if split:
                out["I", i] = (work.input + work.recompute) * self.slower + backward
                out["W", i] = work.weight * self.slower
        return out


def loads_of(
    arch: Architecture, rows: Iterable[Operation], calls: Calls, flag: Flags, attention: AttentionKind, slower: Mapping[int, float]
) -> tuple[Load, ...]:  # fmt: skip
    """Return what each stage has to do, stages that are alike (most of a long pipeline) worked out once; ``rows`` are of all stages.

    ``slower`` are factors by stage where not 1.
    """
    plan = calls.plan
    by_stage: dict[int, list[Operation]] = {stage.index: [] for stage in plan.stages}
    for row in rows:
        by_stage[row.stage].append(row)
    known: dict[Hashable, Load] = {}
    out = []
    for stage in plan.stages:
        own, factor = by_stage[stage.index], slower.get(stage.index, 1.0)
        kind = (factor, *_kind(arch, stage, own, calls))
        if kind not in known:
            known[kind] = load(arch, own, stage, calls, flag, attention, factor)
        out.append(replace(known[kind], stage=stage))
    return tuple(out)


def _kind(arch: Architecture, stage: Stage, rows: Sequence[Operation], calls: Calls) -> tuple[Hashable, ...]:
    """Return what stages have in common that take the same time: their layers, what they say, and where those are whom they say it to."""
    wide = wide_layers(calls.plan, len(arch.layers))
    layers = tuple(tuple((id(arch.layers[i]), i in wide) for i in chunk) for chunk in stage.chunks)
    whom = dict.fromkeys((row.group, row.peer) for row in rows)
    places = tuple(calls.place(group, stage.index, peer) for group, peer in whom)
    return stage.has_embedding, stage.has_head, stage.has_next_tokens, layers, places, tuple(row.call for row in rows)


def load(
    arch: Architecture, rows: Iterable[Operation], stage: Stage, calls: Calls, flag: Flags, attention: AttentionKind,
    slower: float,
) -> Load:  # fmt: skip
    """Return what a stage has to do; ``rows`` are its rows of the step table."""
    plan, gpu = calls.plan, calls.gpu
    works = tuple(chunk_work(arch, plan, gpu, stage, chunk, attention) for chunk in range(len(stage.chunks)))
    spoken = said(rows, stage.index, calls)
    waiting = tuple(_waits(work, spoken, stage, chunk, flag, plan, gpu) for chunk, work in enumerate(works))
    first = works[0].forward * slower + sum(waiting[0]["forward"].values())
    last = works[0].backward * slower + sum(waiting[0]["backward"].values())
    if spoken.across & DATA:
        first, last = max(0.0, first - spoken.network(0, "forward")), max(0.0, last - spoken.network(0, "backward"))
    return Load(
        stage, works, spoken, waiting, _tail(spoken, flag, first, last), (optimizer_seconds(arch, plan, gpu, stage) + muon_seconds(arch, plan, gpu, stage)) * slower, slower
    )  # fmt: skip


def _waits(
    work: Work, spoken: Said, stage: Stage, chunk: int, flag: Flags, plan: Plan, gpu: Accelerator
) -> dict[str, dict[str, float]]:
    units = len(stage.chunks[chunk]) + (stage.has_embedding and chunk == 0) + (stage.has_head and chunk == len(stage.chunks) - 1)
    return {
        phase: waits(spoken.action.get((chunk, phase), {}), phase, work, flag, plan.tp, units, gpu.beside,
                     spoken.network(chunk, phase) if spoken.across & DATA else 0.0, unpaired(plan) if flag.experts else 0.0)
        for phase in ("forward", "backward")
    }  # fmt: skip


def _tail(spoken: Said, flag: Flags, first: float, last: float) -> Tail:
    """Return what is exposed at the end: gradients behind the ``last`` backward, weights behind the ``first`` forward."""
    hidden = {"gradients": (flag.gradients, last), "weights": (flag.weights, first)}
    found = {}
    for kind, (calls, seconds) in spoken.tail.items():
        beside, work = hidden.get(kind, (False, 0.0))
        found[kind] = exposed(seconds, work, calls) if beside else seconds
    return Tail(**found)


def beside_host(arch: Architecture, one: Load, transfers: Iterable[Transfer], plan: Plan, facts: ClusterFacts) -> Load:
    """Return the load with what the host adds: copies (``transfers`` of all stages), and the share of the optimizer that runs there."""
    off, m = plan.config.offload(), plan.micro_batches
    if not off.any:
        return one
    mine = held(arch, plan, one.stage)
    here = [x for x in transfers if x.stage == one.stage.index]
    updated = off.optimizer * sum(
        count / plan.config.sharding(plan, expert=expert).optimizer for count, expert in ((mine.dense, False), (mine.experts, True))
    )
    computing = {"forward": m * one.slower * sum(work.forward for work in one.works),
                 "backward": m * one.slower * sum(work.backward for work in one.works)}  # fmt: skip
    host = host_seconds(here, plan, facts, computing, updated)
    return replace(one, host=host, optimizer=one.optimizer * (1 - off.optimizer) + host.optimizer)


def stage_time(one: Load, micro_batches: int, step: float) -> StageTime:
    """Return the seconds of a stage in a step of ``step`` seconds: what is left over is its bubble."""
    m = micro_batches
    compute = m * one.slower * sum(work.total for work in one.works)
    waited: dict[str, float] = defaultdict(float)
    for wait in one.waiting:
        for phase in wait.values():
            for who, seconds in phase.items():
                waited[who] += m * seconds
    if one.host.exposed:
        waited["host link"] += one.host.exposed
    for who, seconds in (("gradients", one.tail.gradients), ("weights", one.tail.weights), ("small", one.tail.small)):
        if seconds:
            waited[who] += seconds
    parts: dict[str, float] = defaultdict(float)
    known: dict[str, float] = defaultdict(float)
    for work in one.works:
        for sums, values in ((parts, work.parts), (known, work.known)):
            for what, seconds in values.items():
                sums[what] += m * one.slower * seconds
    forward = sum(w.forward * one.slower + sum(wait["forward"].values()) for w, wait in zip(one.works, one.waiting, strict=True))
    backward = sum(w.backward * one.slower + sum(wait["backward"].values()) for w, wait in zip(one.works, one.waiting, strict=True))
    bubble = step - compute - one.optimizer - sum(waited.values())
    bubble = bubble if bubble > 1e-12 * step else 0.0  # what rounding leaves is no waiting
    return StageTime(
        one.stage.index, forward, backward, compute, one.optimizer, dict(waited), bubble, dict(parts), dict(known),
        m * sum(work.flops for work in one.works), one.said.by_class,
    )  # fmt: skip
