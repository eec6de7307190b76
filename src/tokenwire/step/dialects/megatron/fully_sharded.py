"""Megatron-FSDP with ``optim_grads_params``: parameters are gathered layer by layer, gradients scattered in every micro-batch.

A layer (of attention, experts or state space) is a unit: gathered before its forward, let go after it, gathered again before its backward; its
gradients are scattered right after that. What stands in no layer (embedding, last norm, head, what a module of multi-token prediction has beside its
layers) is gathered once a step and stays; its gradients are scattered in every micro-batch too. Experts have groups of their own, and so
have parameters kept in fp8. Between instances (``num_distributed_optimizer_instances``) the scattered gradients are added once a step.
Sizes are those of the parameters; what the framework pads its buffers with is left out.
Rules: NVIDIA/Megatron-LM, megatron/core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py (_register_fsdp_hooks) and
param_and_grad_buffer.py (_get_parameter_groups); units: mcore_fsdp_adapter.py (FullyShardedDataParallel).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tokenwire.model.architecture import Tensor
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.gradients import apart, pieces, shard_group
from tokenwire.step.dialects.megatron.low_precision import kept_in_fp8
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_SOURCE = "Megatron-LM megatron/core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py"


class Bucket(NamedTuple):
    """Parameters that are gathered and scattered by one call: of a unit or of none, how often the unit runs in a micro-batch."""

    unit: bool
    expert: bool
    fp8: bool
    runs: int
    elements: int


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none without Megatron-FSDP."""
    if not sizes.config.use_megatron_fsdp:
        return
    for bucket, copies in Counter(_buckets(sizes, stage)).items():
        yield from _rows(sizes, stage, bucket, copies)


def _buckets(z: Sizes, stage: Stage) -> Iterator[Bucket]:
    outside: Counter[tuple[bool, bool]] = Counter()
    for chunk in range(len(stage.chunks)):
        for piece in pieces(z, stage, chunk):
            own: Counter[tuple[bool, bool, int]] = Counter()
            for tensor, elements, _ in piece.parameters:
                kind = apart(z, tensor), kept_in_fp8(z, tensor)
                if in_a_unit(tensor):
                    own[*kind, _runs(z, tensor)] += elements
                else:
                    outside[kind] += elements
            yield from (
                Bucket(True, expert, fp8, runs, elements) for (expert, fp8, runs), elements in own.items()
            )
    yield from (Bucket(False, expert, fp8, 1, elements) for (expert, fp8), elements in outside.items())


def in_a_unit(tensor: Tensor) -> bool:
    """Return whether a tensor belongs to a layer that is a unit."""
    return tensor.layer is not None and tensor.part != "mtp"


def _runs(z: Sizes, tensor: Tensor) -> int:
    # A module of multi-token prediction that is run for every further token is gathered for each.
    again = tensor.layer is not None and tensor.layer >= z.own and z.config.mtp_use_repeated_layer
    return z.next_tokens if again else 1


def _rows(z: Sizes, stage: Stage, bucket: Bucket, copies: int) -> Iterator[Operation]:
    group, m = shard_group(z, bucket.expert), z.plan.micro_batches
    n, name = (
        z.plan.group_size(group),
        "a layer" if bucket.unit else "embedding, head and norms outside of layers",
    )
    name += ", experts" if bucket.expert else ""
    elements = -(-bucket.elements // n) * n

    def row(
        op: Op, said_in: str, phase: Phase, count: int, size: int, dtype: str, what: str, why: str
    ) -> Operation:
        return z.row(
            stage.index, op, said_in, phase, count, size, what, formula="parameters, to equal parts", values=f"{bucket.elements:,}", dtype=dtype,
            parallelism="fsdp", source=_SOURCE, why=why, layers=copies if bucket.unit else 0,
            role="layers" if bucket.unit else "embedding",
        )  # fmt: skip

    held = "fp8" if bucket.fp8 else z.dtype
    times = copies * bucket.runs * m if bucket.unit else 1
    yield row(
        "all_gather",
        group,
        "forward",
        times,
        elements,
        held,
        f"parameters of {name}",
        "each rank holds a part of every parameter",
    )
    if bucket.unit:
        yield row(
            "all_gather",
            group,
            "backward",
            times,
            elements,
            held,
            f"parameters of {name}, again",
            "they were let go after the forward",
        )
    yield row("reduce_scatter", group, "gradients", copies * m, elements, z.gradient_dtype, f"gradients of {name}",
              "gradients are cut as parameters are, so each micro-batch's are scattered")  # fmt: skip
    outer = "edp_replicate" if bucket.expert else "dp_replicate"
    if z.config.num_distributed_optimizer_instances > 1:
        yield row("all_reduce", outer, "gradients", copies, elements // n, z.gradient_dtype, f"parts of gradients of {name}, between instances",
                  "each instance added only its own replicas")  # fmt: skip
