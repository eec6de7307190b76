"""DistributedDataParallel: what each rank says at construction and in an optimizer step.

Judged by torch 2.13 over gloo (tests/step/test_torch_ddp.py). The table is of a step after the first: before it all
gradients are one bucket, after it buckets are made anew in the order in which gradients arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tokenwire.model.architecture import Architecture, Tensor
from tokenwire.model.tensors import tensors
from tokenwire.plan import Plan
from tokenwire.plan.ddp import DdpPlan
from tokenwire.step.dialects.ddp import dist_muon
from tokenwire.step.dialects.ddp.buckets import arrival_order, assigned
from tokenwire.step.operation import Operation
from tokenwire.units import ITEM_BYTES

_DDP = "torch nn/parallel/distributed.py DistributedDataParallel"
_REDUCER = "torch csrc/distributed/c10d/reducer.cpp"
BROADCAST_BYTES = 250 * 2**20
"""DistributedDataParallel's broadcast_bucket_size."""


def operations(arch: Architecture, plan: Plan) -> Iterable[Operation]:
    """Yield the rows of the one stage there is."""
    config = plan.config
    assert isinstance(config, DdpPlan)
    if plan.training.optimizer == "dist_muon":
        yield from dist_muon.operations(arch, plan, config, "dp")
        return
    yield from construction(arch, plan, config, "dp")
    yield from step(arch, plan, config, "dp")


def bucket_elements(arch: Architecture, config: DdpPlan) -> list[int]:
    """Return the elements of each gradient bucket, in the order in which they are reduced."""
    held = list(tensors(arch))
    size, limits = ITEM_BYTES[config.dtype], config.bucket_limits()
    if config.find_unused_parameters and not config.static_graph:
        # Not made anew: in order of registration, the last bucket first.
        return [sum(x.elements for x in bucket) for bucket in reversed(assigned(held, size, limits))]
    return [sum(x.elements for x in bucket) for bucket in assigned(arrival_order(arch, held), size, limits)]


def construction(arch: Architecture, plan: Plan, config: DdpPlan, group: str) -> Iterator[Operation]:
    """Yield what is said once: shapes verified, parameters broadcast, buckets agreed on after the first step."""
    held, n = list(tensors(arch)), plan.group_size(group)

    def row(op: str, elements: int, dtype: str, what: str, formula: str, values: str, source: str, why: str,
            count: int = 1) -> Operation:  # fmt: skip
        return Operation(0, op, group, n, "setup", count, elements, dtype, "dp", what, formula=formula, values=values,  # type: ignore[arg-type]
                         source=source, why=why)  # fmt: skip

    verify = f"{_REDUCER} verify_params_across_processes"
    yield row("all_gather", n, "int64", "number of parameter tensors", "D", f"{n}", verify, "all ranks must hold the same model")
    shapes = 2 * sum(len(x.shape) for x in held)
    yield row("broadcast", shapes, "int64", "shapes and strides of parameters", "2·Σ dimensions", f"{shapes}", verify,
              "all ranks compare with those of rank 0")  # fmt: skip
    item = ITEM_BYTES[config.dtype]
    # Without broadcast_buffers they are left as they are from the beginning (_sync_module_states).
    sent = config.buffers if config.broadcast_buffers else 0
    together = sent > 0 and config.dtype == "fp32"
    buffers = [Tensor("buffers", "buffers", (sent,))] if together else []
    pieces = assigned([*held, *buffers], item, (BROADCAST_BYTES, BROADCAST_BYTES))
    for elements, count in Counter(sum(x.elements for x in piece) for piece in pieces).items():
        yield row("broadcast", elements, config.dtype, "parameters and buffers" if together else "parameters", "Σ elements",
                  f"{elements:,}", f"{_DDP}._sync_module_states",
                  "all ranks start from the parameters of rank 0, sent in pieces of 250 MiB", count)  # fmt: skip
    if sent and not together:
        yield row("broadcast", sent, "fp32", "buffers", "elements", f"{sent:,}", f"{_DDP}._sync_module_states",
                  "all ranks start from the buffers of rank 0")  # fmt: skip
    if not config.find_unused_parameters or config.static_graph:
        buckets, rebuild = len(bucket_elements(arch, config)), f"{_REDUCER} Reducer::sync_bucket_indices"
        yield row("broadcast", len(held) + 1, "int32", "order of gradients", "P + 1", f"{len(held)} + 1", rebuild,
                  "after the first step buckets follow the order in which gradients arrived on rank 0")  # fmt: skip
        yield row("broadcast", buckets, "int32", "sizes of buckets", "buckets", f"{buckets}", rebuild,
                  "all ranks must cut their gradients in the same places")  # fmt: skip


def step(arch: Architecture, plan: Plan, config: DdpPlan, group: str) -> Iterator[Operation]:
    """Yield what is said in a step: buffers before a forward, gradients bucket by bucket."""
    n, m = plan.group_size(group), plan.micro_batches
    reductions = 1 if config.no_sync else m
    if config.broadcast_buffers and config.buffers:
        yield Operation(0, "broadcast", group, n, "forward", reductions, config.buffers, "fp32", "dp", "buffers",
                        formula="elements", values=f"{config.buffers:,}", source=f"{_DDP}._sync_buffers",
                        why="rank 0's buffers hold for all before a forward that follows a reduction")  # fmt: skip
    first, later = (f"{limit / 2**20:g} MiB" for limit in config.bucket_limits())
    for elements, count in Counter(bucket_elements(arch, config)).items():
        yield Operation(0, "all_reduce", group, n, "gradients", reductions * count, elements, config.sent_dtype, "dp",
                        "gradient bucket", formula="Σ elements of the bucket", values=f"{elements:,}",
                        source=f"{_REDUCER} Reducer::all_reduce_bucket; compute_bucket_assignment_by_size",
                        why=f"gradients are averaged as they arrive, in buckets closed at {first} (the first) and {later}")  # fmt: skip
    if config.find_unused_parameters and not config.static_graph:
        used = len(tensors(arch))
        yield Operation(0, "all_reduce", group, n, "gradients", reductions, used, "int32", "dp", "which parameters were used",
                        formula="P", values=f"{used}", source=f"{_REDUCER} Reducer::all_reduce_local_used_map",
                        why="a parameter that no rank used keeps its old gradient")  # fmt: skip
