"""FSDP2 and HSDP: parameters are gathered unit by unit, gradients scattered, and summed over replicas.

Counts follow torch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (pre_forward, post_forward, pre_backward,
post_backward): a unit is gathered before its forward, gathered again before its backward where it was let go, and its
gradients are reduced after its backward. A pipeline keeps units gathered over its micro-batches and reduces once
(torch/distributed/pipelining/stage.py, backward_maybe_with_nosync). What FSDP2's switches change: ``TorchtitanPlan``.
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
    n, dtype = z.plan.group_size(unit.group), z.config.param_dtype(z.plan.training)
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
    reduced, (scattered, summed) = z.config.reduce_dtype(), reduce_ops(z, n)
    yield z.row(
        stage, "reduce_scatter", unit.group, "gradients", unit.copies * _times(z, "reduce_scatter"), unit.elements, reduced, "fsdp",
        f"gradients of {unit.name}", source=_COLLECTIVES,
        why=f"gradients are reduced in {reduced} (reduce_dtype) by {scattered}, each rank keeping those of its own rows", **shown,
    )  # fmt: skip
    replicate = "dp_replicate" if unit.group == "fsdp" else "edp_replicate"
    why = f"HSDP: replicas of the shard group agree on their gradients ({summed})"
    if z.config.set_all_reduce_hook:
        why = "a hook on the unit (set_all_reduce_hook) sums what reduce_scatter left over the replicas"
    yield z.row(
        stage, "all_reduce", replicate, "gradients", unit.copies * _times(z, "all_reduce"), unit.elements // n, reduced, "dp",
        f"gradient shards of {unit.name}", formula="Σ ceil(d0/n)·rest", values=f"{unit.elements:,}/{n}", source=_COLLECTIVES,
        why=why, layers=unit.layers, role=unit.role,
    )  # fmt: skip


def _times(z: Sizes, op: str) -> int:
    return z.plan.micro_batches if z.config.reduces_each(op) else 1


def reduce_ops(z: Sizes, shards: int) -> tuple[str, str]:
    """Return the reduction operations of reduce_scatter and of the all_reduce between replicas (_get_gradient_divide_factors).

    In fp16 FSDP divides by itself, before and after; else NCCL does, in either call.
    """
    factor, replicas = z.config.set_gradient_divide_factor, 1 if z.config.set_all_reduce_hook else z.replicas
    if z.config.reduce_dtype() == "fp16":
        return "SUM", "SUM"
    if factor is None:
        return ("AVG", "AVG") if shards * replicas > 1 else ("SUM", "SUM")
    return "AVG" if factor == shards else f"PREMUL_SUM(1/{factor:g})", "SUM"


def gathers(z: Sizes, stage: Stage, unit: Unit) -> tuple[int, int]:
    """Return how often a unit is gathered for forward and for backward in a step.

    A unit that a backward leaves gathered (with a pipeline, or without ``set_reshard_after_backward``) needs no gather for the
    forward that follows; a forward lets it go where it is ``resharded``.
    """
    order = one_forward_one_backward(z, stage) if z.plan.pp > 1 else "FB" * z.plan.micro_batches
    forward = backward = 0
    held = False
    for action in order:
        if action == "F":
            forward += not held
            held = not unit.resharded
        else:
            fetched = not held and unit.in_backward
            backward += fetched
            held = (held or fetched) and z.config.kept_after_backward
    return forward, backward


def one_forward_one_backward(z: Sizes, stage: Stage) -> str:
    """Return the order of forwards and backwards of a stage under a schedule of one stage a rank, as F and B."""
    m = z.plan.micro_batches
    warm = m if z.config.pipeline_parallel_schedule == "GPipe" else min(m, z.plan.pp - stage.index)
    return "F" * warm + "BF" * (m - warm) + "B" * warm
