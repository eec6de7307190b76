"""Which plans suit a cluster: sizes of tensor, pipeline and context parallelism, timed on its network, with the memory that they need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.model.architecture import Architecture
from tokenwire.needs.timed import Timed
from tokenwire.plan import Plan, read_plan, resolve
from tokenwire.step import calls_of
from tokenwire.timeline.memory import memory, software_on
from tokenwire.timeline.memory.fit import reserved_at, room_of
from tokenwire.timeline.memory.skew import skews

MOST = 64
"""Plans that are timed."""


@dataclass(frozen=True)
class Candidate:
    """A plan by its sizes: seconds of a step, the network's share of it, MFU, peak bytes of the worst stage (None: not known), if it fits."""

    tp: int
    pp: int
    cp: int
    dp: int
    seconds: float
    share: float
    mfu: float
    peak: int | None
    fits: bool | None


def plans_of(arch: Architecture, plan: Plan, facts: ClusterFacts) -> tuple[Candidate, ...]:
    """Return plans with the options of ``plan`` and other sizes, those that fit first, fastest first.

    Tensor parallelism stays in the node; sizes are powers of two; sequence parallelism goes with tensor parallelism in Megatron.
    """
    found = [_timed(arch, other, facts) for other in itertools.islice(_others(arch, plan, facts.gpus_per_node), MOST)]
    return tuple(sorted(found, key=lambda one: (one.fits is False, one.seconds)))


def _others(arch: Architecture, plan: Plan, gpus_per_node: int) -> Iterator[Plan]:
    powers = [1 << k for k in range(plan.world.bit_length())]
    given = plan.config.model_dump(exclude_unset=True)
    for tp, pp, cp in itertools.product(powers, powers, powers):
        if tp > gpus_per_node or tp * pp * cp > plan.world or cp > 8 or pp > len(arch.layers):
            continue
        sizes = {"tp": tp, "pp": pp, "cp": cp, "vpp": plan.vpp if pp > 1 else 1}
        if plan.config.dialect == "megatron":
            sizes["sequence_parallel"] = tp > 1
        try:
            yield resolve(read_plan({**given, **sizes}), plan.training, arch, plan.world)
        except InputError:
            continue  # heads, layers or batch do not divide


def _timed(arch: Architecture, plan: Plan, facts: ClusterFacts) -> Candidate:
    timed = Timed(arch, plan, calls_of(arch, plan), facts)
    step = timed.step()
    peak, fits = _memory(arch, plan, facts)
    return Candidate(
        plan.tp, plan.pp, plan.cp, plan.dp, step.step_seconds, timed.costs(), step.mfu, peak, fits
    )  # fmt: skip


def _memory(arch: Architecture, plan: Plan, facts: ClusterFacts) -> tuple[int | None, bool | None]:
    try:
        found = memory(arch, plan, software_on(facts))
    except InputError:
        return None, None
    return found.worst.peak, reserved_at(arch, plan, found, skews(arch, plan)[0]) <= room_of(found)
