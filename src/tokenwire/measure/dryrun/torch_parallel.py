"""A decoder made parallel as torchtitan does it: tensor parallelism, activation checkpoints, FSDP2 or DDP, in that order.

Follows pytorch/torchtitan v0.2.2, torchtitan/models/llama3/infra/parallelize.py (parallelize_llama) and
torchtitan/distributed/parallel_dims.py (ParallelDims); what runs is torch's own ``parallelize_module`` and
``fully_shard``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tokenwire.measure.dryrun.torch_model import Block, Decoder
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.torchtitan import TorchtitanPlan

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Meshes:
    """The meshes that torchtitan asks for by name; ``dense`` has the axes pp, dp_replicate, fsdp, tp."""

    data: DeviceMesh
    dense: DeviceMesh
    loss: DeviceMesh

    @staticmethod
    def of(plan: Plan) -> Meshes:
        """Build the meshes of a plan in the current world."""
        replicate, shard = plan.group_size("dp_replicate"), plan.group_size("dp_shard")
        world = init_device_mesh("cpu", (plan.world,), mesh_dim_names=("world",))
        data = world._unflatten(0, (plan.pp, replicate * shard, plan.cp, plan.tp), ("pp", "batch", "cp", "tp"))
        dense = world._unflatten(0, (plan.pp, replicate, shard * plan.cp, plan.tp), ("pp", "dp_replicate", "fsdp", "tp"))
        return Meshes(data, dense, data["batch", "cp"]._flatten("loss_mesh"))


def parallelized(model: Decoder, arch: Architecture, plan: Plan, meshes: Meshes) -> Decoder:
    """Return the model with the plan's parallelism applied in place."""
    config = plan.config
    assert isinstance(config, TorchtitanPlan)
    if plan.tp > 1:
        _tensor_parallel(model, meshes.dense["tp"], loss_parallel=not config.disable_loss_parallel)
        if arch.tied_embeddings and model.tok_embeddings is not None and model.output is not None:
            # parallelize_module makes a parameter of its own for each module; both are cut by rows, so they stay one.
            model.output.weight = model.tok_embeddings.weight
    if plan.cp > 1:
        from tokenwire.measure.dryrun.torch_context import apply_ring

        apply_ring(model, meshes.data["cp"].get_group(), config.context_parallel_rotate_method)
    if config.activation_checkpoint_mode != "none":
        _checkpoints(model, config)
    if plan.group_size("fsdp") > 1:
        names = ("dp_replicate", "fsdp") if plan.group_size("dp_replicate") > 1 else ("fsdp",)
        _fully_sharded(model, arch, plan, config, meshes.dense[names] if len(names) > 1 else meshes.dense["fsdp"])
    return model


def _tensor_parallel(model: Decoder, mesh: DeviceMesh, *, loss_parallel: bool) -> None:
    plan: dict[str, Any] = {}
    if model.tok_embeddings is not None:
        plan["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if model.norm is not None:
        plan["norm"] = SequenceParallel()
    if model.output is not None:
        layout = Shard(-1) if loss_parallel else Replicate()
        plan["output"] = ColwiseParallel(
            input_layouts=Shard(1), output_layouts=layout, use_local_output=not loss_parallel
        )
    parallelize_module(model, mesh, plan)
    for block in model.layers.values():
        assert isinstance(block, Block)
        parallelize_module(block, mesh, _block_plan(block))


def _block_plan(block: Block) -> dict[str, Any]:
    fused, gated = block.attention.a.fused_qkv, block.feed_forward.f.gated
    columns = [f"attention.{name}" for name in (("qkv",) if fused else ("wq", "wk", "wv"))]
    up = ("w13",) if gated and block.feed_forward.f.fused else ("w1", "w3") if gated else ("w1",)
    columns += [f"feed_forward.{name}" for name in up]
    gathered = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    return {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(**gathered),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(**gathered),
        **{name: ColwiseParallel() for name in columns},
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    }


def _checkpoints(model: Decoder, config: TorchtitanPlan) -> None:
    # torchtitan/distributed/activation_checkpoint.py, apply_ac: full, every n-th block, or by operator.
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for place, name in enumerate(list(model.layers), start=1):
        if config.activation_checkpoint_mode == "full":
            wrapped = checkpoint_wrapper(model.layers[name], preserve_rng_state=False)
        elif config.selective_ac_option == "op":
            wrapped = checkpoint_wrapper(model.layers[name], context_fn=_by_operator, preserve_rng_state=False)
        elif place % int(config.selective_ac_option) == 0:
            wrapped = checkpoint_wrapper(model.layers[name], preserve_rng_state=False)
        else:
            continue
        model.layers[name] = wrapped


def _by_operator() -> Any:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    saved = {torch.ops._c10d_functional.reduce_scatter_tensor.default, torch.ops.aten.mm.default}

    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if func in saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _fully_sharded(model: Decoder, arch: Architecture, plan: Plan, config: TorchtitanPlan, mesh: DeviceMesh) -> None:
    policy = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[config.param_dtype(plan.training)], reduce_dtype=TORCH_DTYPES[config.reduce_dtype()]
    )
    given: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    always, asked = config.fsdp_reshard_after_forward == "always", config.fsdp_reshard_after_forward
    reshard = plan.pp == 1 if asked == "default" else always
    if config.fsdp_wrap == "torchtitan":
        embedding = [module for module in (model.tok_embeddings, model.positions) if module is not None]
        head = [module for module in (model.norm, model.output) if module is not None]
        if embedding and head and arch.tied_embeddings:
            fully_shard([*embedding, *head], **given, reshard_after_forward=always)
        else:
            if embedding:
                fully_shard(embedding if len(embedding) > 1 else embedding[0], **given, reshard_after_forward=reshard)
            if head:
                fully_shard(head, **given, reshard_after_forward=always)
    for block in model.layers.values():
        fully_shard(block, **given, reshard_after_forward=reshard)
    # The root's own choice: FSDP2 keeps it gathered unless it is told otherwise.
    if config.fsdp_wrap == "blocks" and asked != "default":
        given["reshard_after_forward"] = always
    fully_shard(model, **given)
