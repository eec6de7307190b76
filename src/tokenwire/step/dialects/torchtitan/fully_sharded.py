"""FSDP2 and HSDP: parameters are gathered unit by unit, gradients scattered, and summed over replicas.

Counts follow torch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (pre_forward, post_forward, pre_backward,
post_backward): a unit is gathered before its forward, gathered again before its backward where it was let go, and its
gradients are reduced after its backward. A pipeline keeps units gathered over its micro-batches and reduces once
(torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.dialects.torchtitan.units import Unit, units
from tokenwire.step.operation import Operation

_GROUP = "torch fsdp/_fully_shard/_fsdp_param_group.py"
_COLLECTIVES = "torch fsdp/_fully_shard/_fsdp_collectives.py foreach_reduce"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none without sharding."""
    if not z.sharded:
        return
    for unit in units(z, stage):
        yield from _rows(z, stage, unit)


def _rows(z: Sizes, stage: Stage, unit: Unit) -> Iterator[Operation]:
    n, m, dtype = z.plan.group_size(unit.group), z.plan.micro_batches, z.config.param_dtype(z.plan.training)
    runs = gathers(z, stage, unit)
    shown = {
        "formula": "Σ n·ceil(d0/n)·rest", "values": f"{unit.exact:,} padded to {n} equal parts = {unit.elements:,}",
        "layers": unit.layers, "role": unit.role,
    }  # fmt: skip
    yield z.row(
        stage, "all_gather", unit.group, "forward", unit.copies * runs[0], unit.elements, dtype, "fsdp",
        f"parameters of {unit.name}", source=f"{_GROUP} FSDPParamGroup.pre_forward",
        why="each rank holds 1/n of the rows of every parameter and needs all of them to compute", **shown,
    )  # fmt: skip
    yield z.row(
        stage, "all_gather", unit.group, "backward", unit.copies * runs[1], unit.elements, dtype, "fsdp",
        f"parameters of {unit.name}, again", source=f"{_GROUP} FSDPParamGroup.pre_backward",
        why="they were let go after forward (reshard_after_forward) and backward needs them once more", **shown,
    )  # fmt: skip
    reductions = unit.copies * (m if reduces_each(z) else 1)
    reduced = z.config.reduce_dtype()
    yield z.row(
        stage, "reduce_scatter", unit.group, "gradients", reductions, unit.elements, reduced, "fsdp",
        f"gradients of {unit.name}", source=_COLLECTIVES,
        why=f"gradients are summed in {reduced} (reduce_dtype), each rank keeping those of its own rows", **shown,
    )  # fmt: skip
    replicate = "dp_replicate" if unit.group == "fsdp" else "edp_replicate"
    yield z.row(
        stage, "all_reduce", replicate, "gradients", reductions, unit.elements // n, reduced, "dp",
        f"gradient shards of {unit.name}", formula="Σ ceil(d0/n)·rest", values=f"{unit.elements:,}/{n}", source=_COLLECTIVES,
        why="HSDP: replicas of the shard group agree on their gradients", layers=unit.layers, role=unit.role,
    )  # fmt: skip


def gathers(z: Sizes, stage: Stage, unit: Unit) -> tuple[int, int]:
    """Return how often a unit is gathered for forward and for backward in a step.

    With a pipeline a unit stays gathered after a backward until the last one, so a forward that follows a backward needs no
    gather, and lets the unit go again where it is ``resharded``.
    """
    m = z.plan.micro_batches
    if z.plan.pp == 1:
        return m, m if unit.resharded else 0
    if not unit.resharded:
        return 1, 0
    forward = backward = 0
    held = False
    for action in one_forward_one_backward(z, stage):
        if action == "F":
            forward += not held
            held = False
        else:
            backward += not held
            held = True
    return forward, backward


def one_forward_one_backward(z: Sizes, stage: Stage) -> str:
    """Return the order of forwards and backwards of a stage under a schedule of one stage a rank, as F and B."""
    m = z.plan.micro_batches
    warm = m if z.config.pipeline_parallel_schedule == "GPipe" else min(m, z.plan.pp - stage.index)
    return "F" * warm + "BF" * (m - warm) + "B" * warm


def reduces_each(z: Sizes) -> bool:
    """Return whether gradients are reduced in each micro-batch rather than once a step."""
    return z.plan.pp == 1 and z.config.set_requires_gradient_sync
