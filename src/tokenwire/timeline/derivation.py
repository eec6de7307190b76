"""How the time of a step comes about: its figures with formula and values, and what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tokenwire.fabric import ClusterFacts
from tokenwire.figures import Figure
from tokenwire.plan import Plan
from tokenwire.timeline.accelerator import Accelerator
from tokenwire.units import counted, format_quantity, format_seconds

if TYPE_CHECKING:
    from tokenwire.timeline.step_time import StepTime

_KNOWN = {"measured": "measured at its shape", "near": "read off near shapes that were measured",
          "generic": "by the generic curve, for want of a measurement", "memory": "bound by memory"}  # fmt: skip


_WAYS = {"to_host": "GPU to host", "to_gpu": "host to GPU", "to_nvme": "host to drive", "from_nvme": "drive to host"}


def notes(
    out: StepTime, gpu: Accelerator, facts: ClusterFacts, blocking: bool, shared: Mapping[tuple[str, str, str], float] | None
) -> Iterable[str]:
    """Yield what the prediction rests on."""
    known: dict[str, float] = {}
    for stage in out.stages:
        for how, seconds in stage.known.items():
            known[how] = known.get(how, 0.0) + seconds
    whole = sum(known.values()) or 1.0
    parts = [f"{known[how] / whole:.0%} {text}" for how, text in _KNOWN.items() if known.get(how)]
    yield f"computing on {facts.gpu or gpu.kind.upper()}: {', '.join(parts)}"
    yield from gpu.assumed
    if len(out.stages) > 1:
        yield "a stage waits for its own sends" if blocking else "transfers between stages run beside computing"
    if shared:
        worst = max(shared.items(), key=lambda one: one[1])
        yield f"behind the NICs {worst[0][0]} on {worst[0][1]} is slowest: {worst[1]:.2f} times as long as its NICs need"
    else:
        yield ("groups of a kind share a node's NICs, on which data parallelism goes after all others; the network behind them has room "
               "for all (--network asks it)")  # fmt: skip
    slow = any(one.slower > 1 for one in out.loads)
    if not out.jitter and not slow:
        yield "no kernel varies and no rank is slower than another, unless said (--jitter, --slow)"


def figures(out: StepTime, plan: Plan, gpu: Accelerator, need: Figure) -> Iterable[Figure]:
    """Yield the figures of a step, each with its derivation."""
    busy, m = out.busiest, plan.micro_batches
    pace = max(out.stages, key=lambda s: s.forward + s.backward)
    ideal = m * (pace.forward + pace.backward)
    tokens = plan.training.global_batch * plan.training.sequence_length
    yield Figure("a micro-batch forward", pace.forward, "s", "Σ operators + exposed", "", "tokenwire.timeline.compute", f"stage {pace.stage}, the slowest")
    yield Figure("a micro-batch backward", pace.backward, "s", "Σ operators + recomputed + exposed", "", "tokenwire.timeline.compute", f"stage {pace.stage}")
    yield Figure(
        "pipeline", out.pipeline_seconds, "s", "m·(F+B) + fill and drain",
        f"{m:,}·({format_seconds(pace.forward)} + {format_seconds(pace.backward)}) + {format_seconds(out.pipeline_seconds - ideal)}",
        "tokenwire.timeline.simulation", f"{out.schedule} on {counted(plan.pp, 'stage')}, {m:,} micro-batch" + "es" * (m != 1),
    )  # fmt: skip
    yield Figure(
        "step", out.step_seconds, "s", "pipeline + gradients + optimizer and weights" + (" + jitter" if out.jitter else ""),
        " + ".join(format_seconds(t) for t in (out.pipeline_seconds, out.gradients_seconds, out.optimizer_seconds))
        + (f" + {format_seconds(out.jitter.mean - out.jitter.without)}" if out.jitter else ""), "tokenwire.timeline.step_time",
    )  # fmt: skip
    yield from (Figure(f"{_WAYS[x.direction]}, {x.phase}: {x.what}", x.bytes, "B", x.formula, x.values, x.source, f"stage {x.stage}, per GPU and step")
                for x in out.transfers if x.stage == busy.stage)  # fmt: skip
    if out.transfers:
        host = next(one.host for one in out.loads if one.stage.index == busy.stage)
        yield Figure("exposed copies over the host link", host.exposed, "s", "max(0, bytes/rate - computing) by phase", "", "tokenwire.timeline.host")
        yield Figure("optimizer on the host", host.optimizer, "s", "P on the host/n·GPUs per node/rate + copies", "",
                     "tokenwire.timeline.host (Ren et al. 2021, ZeRO-Offload, table 4)")  # fmt: skip
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
