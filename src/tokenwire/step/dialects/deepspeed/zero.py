"""ZeRO: gradients bucket by bucket, the optimizer's few bytes, and the parameters that come back.

Stages 0 to 2 reduce with all_reduce: DeepSpeed sums a whole bucket on every rank, and each keeps its part (its "reduce
scatter" is one of bookkeeping unless ``use_multi_rank_bucket_allreduce`` is off). Stage 1 reduces once a step, stages 2 and 3
in every micro-batch. Source: DeepSpeed 0.19, runtime/zero/stage_1_and_2.py, stage3.py, runtime/engine.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tokenwire.errors import InputError
from tokenwire.model.architecture import Tensor
from tokenwire.plan import Stage
from tokenwire.plan.deepspeed import GPUS_A_NODE
from tokenwire.step.dialects.ddp.buckets import arrival_order
from tokenwire.step.dialects.deepspeed.sizes import Sizes
from tokenwire.step.operation import Op, Operation

_ENGINE = "DeepSpeed runtime/engine.py DeepSpeedEngine"
_12 = "DeepSpeed runtime/zero/stage_1_and_2.py"
_3 = "DeepSpeed runtime/zero/stage3.py"
FALLBACK_ELEMENTS = 500_000_000
"""MEMORY_OPT_ALLREDUCE_SIZE of runtime/engine.py."""
ALIGNMENT = 2
"""nccl_start_alignment_factor: parts of the flat buffer begin at multiples of it."""


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage."""
    if z.config.zero_stage == 0:
        yield from _plain(z, stage)
    elif z.config.zero_stage < 3:
        yield from _stages_1_and_2(z, stage)
    else:
        yield from _stage_3(z, stage)


def padded(elements: int, n: int, alignment: int = 1) -> int:
    """Return elements rounded up so that n equal, aligned parts hold them.

    >>> padded(364770, 8, 2)
    364784
    """
    return math.ceil(elements / (n * alignment)) * n * alignment


def closed_before(sizes: Iterable[int], limit: int) -> list[list[int]]:
    """Return sizes in buckets: a bucket is closed before a tensor that would overfill it.

    >>> closed_before([3, 4, 9, 2, 1], 8)
    [[3, 4], [9], [2, 1]]
    """
    out: list[list[int]] = []
    bucket: list[int] = []
    for size in sizes:
        if bucket and sum(bucket) + size > limit:
            out.append(bucket)
            bucket = []
        bucket.append(size)
    return [*out, bucket] if bucket else out


def _plain(z: Sizes, stage: Stage) -> Iterator[Operation]:
    buckets: list[int] = []
    filled = 0
    held = z.stage_tensors(stage)
    if z.plan.pp > 1 and z.dtype == "bf16":
        # Its optimizer has all gradients in one flat buffer (runtime/bf16_optimizer.py, get_grads_for_reduction).
        filled, held = padded(sum(x.elements for x in held), z.ranks, ALIGNMENT), []
    for tensor in held:
        filled += tensor.elements
        if filled > FALLBACK_ELEMENTS:
            buckets.append(filled)
            filled = 0
    for elements, count in Counter([*buckets, *([filled] if filled else [])]).items():
        yield z.row(
            stage, "all_reduce", "dp_cp", "gradients", count, elements, z.sent, "dp", "gradients", formula="Σ elements",
            values=f"{elements:,}", source=f"{_ENGINE}.buffered_allreduce_fallback",
            why="without ZeRO all gradients are averaged at the end of a step, in pieces of 500 million elements",
        )  # fmt: skip
    if z.plan.pp > 1 and z.dtype == "bf16":
        # The pipeline goes with an optimizer that cuts its state over replicas (runtime/bf16_optimizer.py).
        yield _pipe_sum(z, stage, "gradient norm", "fp32", "DeepSpeed runtime/utils.py get_global_norm_of_tensors")
        yield _updated(z, stage)
    elif z.dtype != "fp32":
        yield _model_sum(z, stage, "overflow", "uint8", "DeepSpeed runtime/utils.py CheckOverflow.has_overflow")
        yield _model_sum(z, stage, "gradient norm", "fp32", "DeepSpeed runtime/utils.py get_grad_norm, of runtime/fp16/fused_optimizer.py")
    elif z.config.gradient_clipping:
        yield _model_sum(z, stage, "gradient norm", "fp32", "DeepSpeed runtime/utils.py clip_grad_norm_")
        yield z.row(stage, "all_reduce", "dp_cp", "optimizer", 1, 1, "fp32", "dp", "gradient norm", formula="1", values="1",
                    source="DeepSpeed runtime/utils.py clip_grad_norm_", why="the norm is averaged, for experts may differ")  # fmt: skip


def _stages_1_and_2(z: Sizes, stage: Stage) -> Iterator[Operation]:
    held, stage_1 = z.stage_tensors(stage), z.config.zero_stage == 1
    total = sum(x.elements for x in held)
    flat = padded(total, z.ranks, ALIGNMENT)
    order = held if stage_1 else arrival_order(z.arch, held)
    shares = z.config.reduces_to_owners
    for elements, count in Counter(reduced_pieces(z, held, order, flat // z.ranks)).items():
        yield z.row(
            stage, "reduce" if shares else "all_reduce", "dp_cp", "gradients", count * (1 if stage_1 else z.plan.micro_batches), elements,
            z.sent, "dp", "gradient bucket", formula="Σ elements of the bucket" + (" that a rank owns" if shares else ""),
            values=f"{elements:,} (limit {z.config.reduce_bucket_size:,})",
            source=f"{_12} " + ("allreduce_no_retain" if shares else "allreduce_and_copy_with_multiple_ranks"),
            why=("each part of a bucket is summed on the rank that owns it" if shares
                 else "a bucket holds parts of several ranks, so all sum it and each keeps its own part")
            + ("" if stage_1 else "; in every micro-batch, for only the own part is kept"),
        )  # fmt: skip
    yield from _overflow_and_norm(z, stage)
    yield _updated(z, stage)


def _updated(z: Sizes, stage: Stage) -> Operation:
    total = sum(x.elements for x in z.stage_tensors(stage))
    flat = padded(total, z.ranks, ALIGNMENT)
    return z.row(
        stage, "all_gather", "dp_cp", "optimizer", 1, flat, z.dtype, "dp", "updated parameters",
        formula="ceil(Ψ/2n)·2n", values=f"{total:,} padded to {flat:,}",
        source="DeepSpeed runtime/utils.py all_gather_into_tensor_dp_groups",
        why="each rank has updated its part of the flat parameters; all need the whole",
    )  # fmt: skip


def reduced_pieces(z: Sizes, held: list[Tensor], order: list[Tensor], part: int) -> list[int]:
    """Return the elements of each reduction of stages 1 and 2, in order.

    A bucket is cut where the parts of ranks (``part`` elements each) meet, and pieces are sent together until they exceed the
    bucket size: that happens only to a tensor larger than the bucket. Reductions to the rank that owns a piece are apart for each.
    """
    starts, at = {}, 0
    for tensor in _flattened(held, z.ranks) if z.config.round_robin_gradients else held:
        starts[tensor.name] = at
        at += tensor.elements
    limit = z.config.reduce_bucket_size
    out: list[int] = []
    for bucket in _filled(order, limit):
        if not z.config.cuts_buckets:
            out.append(sum(x.elements for x in bucket))
            continue
        sent: dict[int, int] = {}
        for owner, piece in _pieces(((starts[x.name], x.elements) for x in bucket), part):
            to = owner if z.config.reduces_to_owners else 0
            sent[to] = sent.get(to, 0) + piece
            if sent[to] > limit:
                out.append(sent.pop(to))
        out += sent.values()
    return out


def _flattened(held: list[Tensor], ranks: int) -> list[Tensor]:
    # round_robin_gradients: tensors 0, n, 2n, ... come first (_round_robin_reorder), so that owners alternate in arrival.
    return [tensor for first in range(min(ranks, len(held))) for tensor in held[first::ranks]]


def _filled(order: list[Tensor], limit: int) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = []
    filled = 0
    for tensor in order:
        if not buckets or filled + tensor.elements > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(tensor)
        filled += tensor.elements
    return buckets


def _pieces(spans: Iterable[tuple[int, int]], part: int) -> Iterator[tuple[int, int]]:
    # (owner, elements); neighbouring pieces of one owner are joined.
    before, joined = -1, 0
    for start, elements in spans:
        at, end = start, start + elements
        while at < end:
            owner = at // part
            size = min(end, (owner + 1) * part) - at
            if owner != before and joined:
                yield before, joined
                joined = 0
            before = owner
            joined += size
            at += size
    if joined:
        yield before, joined


def _overflow_and_norm(z: Sizes, stage: Stage) -> Iterator[Operation]:
    for what, dtype, source, why in (
        ("overflow", "uint8", f"{_12} has_overflow", "one rank's overflow makes all skip the step"),
        ("gradient norm", "fp32", f"{_12} get_grad_norm_direct", "each rank has the norm of its part of the gradients"),
    ):
        if what == "overflow" and z.dtype == "fp32":
            continue  # runtime/engine.py, _configure_zero_optimizer: check_grad_overflow is of 16 bits only
        yield z.row(stage, "all_reduce", "dp_cp", "optimizer", 1, 1, dtype, "dp", what, formula="1", values="1", source=source, why=why)
        yield _pipe_sum(z, stage, what, dtype, source)


def _pipe_sum(z: Sizes, stage: Stage, what: str, dtype: str, source: str) -> Operation:
    # DeepSpeed takes the stages of a pipe for ranks of a divided model.
    return z.row(stage, "all_reduce", "pp", "optimizer", 1, 1, dtype, "pp", what, formula="1", values="1", source=source,
                 why="stages hold different parameters, and all step, or skip the step, together")  # fmt: skip


def _model_sum(z: Sizes, stage: Stage, what: str, dtype: str, source: str) -> Operation:
    # Without ZeRO ranks of Ulysses are ranks of a divided model too.
    if z.plan.cp == 1:
        return _pipe_sum(z, stage, what, dtype, source)
    return z.row(stage, "all_reduce", "cp", "optimizer", 1, 1, dtype, "cp", what, formula="1", values="1", source=source,
                 why="DeepSpeed takes sequence-parallel ranks for ranks of a divided model")  # fmt: skip


def _stage_3(z: Sizes, stage: Stage) -> Iterator[Operation]:
    order = _weights_first(arrival_order(z.arch, z.stage_tensors(stage)))
    # On one node nothing is quantised (stage3.py, __avg_scatter_grads).
    if z.config.zero_quantized_gradients and z.plan.world // GPUS_A_NODE > 1:
        yield from _quantised(z, stage, order)
    else:
        yield from _scattered(z, stage, closed_before((x.elements for x in order), z.config.reduce_bucket_size))
    if z.dtype == "fp16":
        yield z.row(stage, "all_reduce", "dp_cp", "optimizer", 1, 1, "uint8", "dp", "overflow", formula="1", values="1",
                    source=f"{_3} has_overflow", why="one rank's overflow makes all skip the step")  # fmt: skip
    on_host = z.config.offload_optimizer != "none"
    yield z.row(
        stage, "all_reduce", "dp_cp", "optimizer", 1, 1, "fp32" if on_host else "fp64", "dp", "gradient norm", formula="1", values="1",
        source=f"{_3} " + ("complete_grad_norm_calculation_for_cpu_offload" if on_host else "get_grad_norm_direct"), why="each rank has the norm of its part of the gradients",
    )  # fmt: skip


def _weights_first(order: list[Tensor]) -> list[Tensor]:
    # ZeRO-3 has a product of its own, whose weight's gradient comes before its bias's (runtime/zero/linear.py).
    out = list(order)
    for i, (bias, weight) in enumerate(pairwise(order)):
        if bias.name.endswith(".bias") and weight.name == f"{bias.name.removesuffix('.bias')}.weight":
            out[i : i + 2] = [weight, bias]
    return out


def _scattered(z: Sizes, stage: Stage, buckets: list[list[int]]) -> Iterator[Operation]:
    n, limit = z.ranks, z.config.reduce_bucket_size
    whole = z.config.contiguous_gradients and not z.config.reduce_scatter
    summed = Counter(sum(bucket) for bucket in buckets if whole and sum(bucket) <= limit)
    cut = Counter(sum(padded(size, n) for size in bucket) for bucket in buckets if not (whole and sum(bucket) <= limit))
    for elements, count in cut.items():
        yield z.row(
            stage, "reduce_scatter", "dp_cp", "gradients", z.plan.micro_batches * count, elements, z.sent, "dp", "gradient bucket",
            formula="Σ n·ceil(elements/n)", values=f"{elements:,} (limit {limit:,})",
            source=f"{_3} __avg_scatter_grads; runtime/comm/coalesced_collectives.py reduce_scatter_coalesced",
            why="in every micro-batch each rank keeps its part of every tensor's gradient",
        )  # fmt: skip
    for elements, count in summed.items():
        yield z.row(
            stage, "all_reduce", "dp_cp", "gradients", z.plan.micro_batches * count, elements, z.sent, "dp", "gradient bucket",
            formula="Σ elements", values=f"{elements:,} (limit {limit:,})", source=f"{_3} __avg_scatter_contiguous_grads",
            why="reduce_scatter = false: in every micro-batch all ranks sum the whole bucket, and each keeps its part",
        )  # fmt: skip


def _quantised(z: Sizes, stage: Stage, order: list[Tensor]) -> Iterator[Operation]:
    m, local = z.plan.micro_batches, GPUS_A_NODE
    nodes = z.plan.world // local if z.plan.world % local == 0 else 0
    fallback: Counter[int] = Counter()
    rows: Counter[tuple[Op, str, int, str, str]] = Counter()
    for tensor in order:
        if nodes <= 1 or len(tensor.shape) == 1 or tensor.elements % (2 * z.plan.world):
            fallback[padded(tensor.elements, z.ranks)] += 1
            continue
        groups = max(tensor.shape[0], tensor.shape[1], z.plan.world)
        if groups % z.plan.world:
            raise InputError("zero_quantized_gradients = true", where="[plan]", nearest="zero_quantized_gradients = false",
                             rule=f"its {groups:,} scales of {tensor.name} do not divide over {z.plan.world:,} ranks")  # fmt: skip
        # Two numbers of 4 bits travel in a byte.
        rows["all_to_all", "qgz_node", tensor.elements // 2, "int8", "gradients within the node"] += 1
        rows["all_to_all", "qgz_node", groups, "fp32", "scales of gradients within the node"] += 1
        rows["all_to_all", "qgz_across", tensor.elements // 2 // local, "int8", "gradients between nodes"] += 1
        rows["all_to_all", "qgz_across", groups // local, "fp32", "scales of gradients between nodes"] += 1
    source = "DeepSpeed runtime/comm/coalesced_collectives.py all_to_all_quant_reduce"
    for (op, group, elements, dtype, what), count in rows.items():
        yield z.row(stage, op, group, "gradients", m * count, elements, dtype, "dp", what, formula="elements/2; elements/16",
                    values=f"{elements:,}", source=source,
                    why="qgZ: 4-bit gradients go to the owner's rail inside the node, are summed, and cross nodes once")  # fmt: skip
    for elements, count in fallback.items():
        yield z.row(stage, "reduce_scatter", "dp_cp", "gradients", m * count, elements, z.sent, "dp", "gradients not quantised",
                    formula="n·ceil(elements/n)", values=f"{elements:,}", source=source,
                    why="vectors and tensors that 2·world does not divide go without quantisation")  # fmt: skip
