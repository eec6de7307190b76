"""How large a cluster may grow before its network costs more than is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.fabric.config import MOST_GPUS
from tokenwire.model.architecture import Architecture
from tokenwire.needs.shares import asked
from tokenwire.needs.timed import Timed
from tokenwire.plan import Plan, resolve
from tokenwire.plan.training import TrainingConfig
from tokenwire.step import calls_of


@dataclass(frozen=True)
class Size:
    """A plan on a cluster of so many GPUs: seconds of its step, MFU; ``batch``: fixed or growing.

    ``share`` is what the network costs of the step, its latency with it: against a step in which what leaves a node takes no time.
    """

    batch: str
    gpus: int
    global_batch: int
    seconds: float
    share: float
    mfu: float


def largest(arch: Architecture, plan: Plan, facts: ClusterFacts, x: float) -> tuple[Size, ...]:
    """Return the plan with ever more replicas, doubled, as long as the network costs at most ``x`` of the step and there is work for all.

    Twice: the batch of the whole cluster stays as it is, or that of each replica does. The last of each is the largest. Raises ``InputError`` for a share below 0.1 % or above 99.9 %.
    """
    asked("exposed", x, "10%")
    out: list[Size] = []
    for batch in ("fixed", "growing"):
        gpus = plan.world
        while gpus <= MOST_GPUS:
            one = _sized(arch, plan, facts, gpus, batch)
            if one is None or one.share > x:
                break
            out.append(one)
            gpus *= 2
    return tuple(out)


def _sized(arch: Architecture, plan: Plan, facts: ClusterFacts, gpus: int, batch: str) -> Size | None:
    whole = plan.training.global_batch * (gpus // plan.world if batch == "growing" else 1)
    training = TrainingConfig(**{**plan.training.model_dump(), "global_batch": whole})
    try:
        more = resolve(plan.config, training, arch, gpus)
    except InputError:
        return None  # no work for so many replicas
    there = facts.model_copy(update={"nodes": max(1, gpus // facts.gpus_per_node)})
    timed = Timed(arch, more, calls_of(arch, more), there)
    step = timed.step()
    return Size(batch, gpus, whole, step.step_seconds, timed.costs(), step.mfu)
