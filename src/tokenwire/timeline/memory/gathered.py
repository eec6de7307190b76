"""Parameters that sharded frameworks gather to compute with, and gradients on their way to be reduced.

FSDP2 gathers a block at a time in the dtype of its products, the next one while this one runs, so two stand, and frees them after
use (``fsdp_reshard_after_forward``; without it all stay until they went backward). Norm and head are a group of their own that
stays from the forward to the backward. In the backward the gradients of one block are reduced, in fp32, while the next runs.
ZeRO-3 gathers a layer and up to ``stage3_prefetch_bucket_size`` elements of the next ones; ZeRO reduces in buckets.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.tensors import tensors
from tokenwire.plan import Stage
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layers import layer_activations, layer_input
from tokenwire.timeline.memory.part import ALWAYS, STANDING, Part
from tokenwire.timeline.memory.passing import recomputed
from tokenwire.timeline.memory.states import local_elements
from tokenwire.units import ITEM_BYTES

FSDP = "torch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
MEGATRON = "Megatron-LM, megatron/core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py"
ZERO = "DeepSpeed 0.19, deepspeed/runtime/zero"


def gathered(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield what stands of gathered parameters and of gradients that are being reduced."""
    if frame.dialect == "torchtitan" and frame.plan.group_size("fsdp") > 1:
        yield from _fsdp(frame, stage)
    elif frame.dialect == "deepspeed":
        yield from _zero(frame, stage)
    elif frame.sharding_strategy == "optim_grads_params":
        yield from _megatron_fsdp(frame, stage)


def layer_elements(frame: Frame, stage: Stage) -> list[int]:
    """Return the parameters of each layer of a stage on a rank before data parallelism cuts them."""
    out = dict.fromkeys(stage.layers, 0)
    for tensor in tensors(frame.arch, "megatron"):
        if tensor.layer in out:
            out[tensor.layer] += local_elements(frame, tensor)
    return list(out.values())


def _fsdp(frame: Frame, stage: Stage) -> Iterator[Part]:
    config, plan = frame.plan.config, frame.plan
    e, r = int(ITEM_BYTES[config.param_dtype(plan.training)]), int(ITEM_BYTES[config.reduce_dtype()])  # type: ignore[attr-defined]
    layers = layer_elements(frame, stage)
    block, head = max(layers, default=0), plan.vocabulary_size * frame.arch.hidden_size // plan.tp if stage.has_head else 0
    more = {"B": block, "H": head, "r": r, "e": e}
    reshard = frame.option("fsdp_reshard_after_forward")
    if plan.micro_batches > 1 and (plan.pp > 1 or not frame.option("set_requires_gradient_sync")):
        # A pipeline reduces once, after its last micro-batch (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
        yield frame.part("gradients", "whole gradients, not reduced before the last micro-batch", "r·P", r * _whole(frame, stage, layers, head),
                         more={"P": _whole(frame, stage, layers, head), "r": r}, moments=STANDING, source=FSDP)  # fmt: skip
    kept = plan.micro_batches > 1 and not frame.option("set_reshard_after_backward")
    if kept or reshard == "never" or (reshard == "default" and plan.pp > 1):
        whole = _whole(frame, stage, layers, 0)
        yield frame.part("buffers", "parameters of embedding and all blocks, gathered", "e·P", e * whole, more={"P": whole, "e": e},
                         moments=STANDING, source=FSDP)  # fmt: skip
    else:
        for moment in ("forward", "backward"):
            # One block ahead, or as many as a block names; there are no more than the stage has.
            units = min(1 + max(int(frame.option(f"set_modules_to_{moment}_prefetch")), 1), max(len(layers), 2))
            yield frame.part("buffers", f"parameters of a block, gathered, and of the next, {moment}", f"{units}·e·B", units * e * block,
                             more=more, moments=(moment,), source=FSDP)  # fmt: skip
        yield frame.part("buffers", "parameters of the last block, gathered again", "e·B", e * block, more=more, moments=("head",), source=FSDP)
    if head:
        yield frame.part("buffers", "parameters of the head, gathered", "e·H", e * head, more=more, moments=("loss", "head"), source=FSDP)
    # The last layer goes backward while the head's gradient is reduced; the one before it, while that of a block is.
    freed = layer_activations(frame, frame.arch.layers[stage.layers[-1]]).total if stage.layers else 0
    if recomputed(frame, stage):
        freed = layer_input(frame)
    formula, size = max(("r·H", r * head), ("(e+r)·B-kept", (e + r) * block - freed), key=lambda item: item[1])
    yield frame.part("buffers", "gradients being reduced", formula, size, more=more, moments=("backward",), source=FSDP)


def _whole(frame: Frame, stage: Stage, layers: list[int], head: int) -> int:
    embedding = frame.plan.vocabulary_size * frame.arch.hidden_size // frame.plan.tp
    positions = frame.arch.max_positions * frame.arch.hidden_size if frame.arch.positions == "learned" else 0
    return sum(layers) + head + (embedding + positions if stage.has_embedding else 0)


def _megatron_fsdp(frame: Frame, stage: Stage) -> Iterator[Part]:
    # Its units are the layers; what stands outside of them stays whole from the forward to the end of the backward.
    layers, e = layer_elements(frame, stage), frame.item
    block, outside = max(layers, default=0), _whole(frame, stage, [], 0)
    if stage.has_head and not frame.arch.tied_embeddings:
        outside += frame.plan.vocabulary_size * frame.arch.hidden_size // frame.plan.tp
    more = {"B": block, "H": outside, "e": e}
    # Gathered while others run, they are asked for again as the optimizer has stepped.
    standing = ALWAYS if frame.option("overlap_param_gather") else STANDING
    yield frame.part("buffers", "parameters of embedding and head, gathered", "e·H", e * outside, more=more, moments=standing, source=MEGATRON)
    yield frame.part("buffers", "parameters of a layer, gathered, and of the next", "2·e·B", 2 * e * block, more=more, moments=STANDING, source=MEGATRON)
    yield frame.part("buffers", "gradients of a layer, being reduced, fp32", "4·B", 4 * block, more=more, moments=("backward",), source=MEGATRON)


def _zero(frame: Frame, stage: Stage) -> Iterator[Part]:
    layers = layer_elements(frame, stage)
    zero, total = frame.option("zero_stage"), sum(layers)
    if zero == 3:
        live = min(max(layers, default=0) + frame.option("stage3_prefetch_bucket_size"), frame.option("stage3_max_live_parameters"), total)
        yield frame.part("buffers", "parameters of a layer and of the next ones, gathered", "n·e", live * frame.item, more={"n": live},
                         moments=STANDING, source=f"{ZERO}/partitioned_param_coordinator.py")  # fmt: skip
    if zero:
        buckets = 2 if frame.option("overlap_comm") or (frame.option("overlap_comm") is None and zero == 3) else 1
        size = min(frame.option("reduce_bucket_size"), total)
        yield frame.part("buffers", "buckets of gradients that are reduced", f"{buckets}·n·e", buckets * size * frame.item, more={"n": size},
                         source=f"{ZERO}/stage_1_and_2.py, setup_buckets (overlap_comm has two)")  # fmt: skip
