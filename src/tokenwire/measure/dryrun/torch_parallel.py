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

from tokenwire.measure.dryrun.torch_experts import Whole
from tokenwire.measure.dryrun.torch_model import Block, Decoder, FeedForwardBlock, LatentSelfAttention
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.torchtitan import TorchtitanPlan

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Meshes:
    """The meshes that torchtitan asks for by name.

    ``dense`` has the axes pp, dp_replicate, fsdp, tp; ``sparse``, that of the experts, pp, dp_replicate, efsdp, ep, etp.
    """

    data: DeviceMesh
    dense: DeviceMesh
    sparse: DeviceMesh
    loss: DeviceMesh

    @staticmethod
    def of(plan: Plan) -> Meshes:
        """Build the meshes of a plan in the current world."""
        replicate, shard = plan.group_size("dp_replicate"), plan.group_size("dp_shard")
        world = init_device_mesh("cpu", (plan.world,), mesh_dim_names=("world",))
        data = world._unflatten(0, (plan.pp, replicate * shard, plan.cp, plan.tp), ("pp", "batch", "cp", "tp"))
        dense = world._unflatten(0, (plan.pp, replicate, shard * plan.cp, plan.tp), ("pp", "dp_replicate", "fsdp", "tp"))
        experts = (plan.pp, plan.group_size("edp_replicate"), plan.group_size("edp_shard"), plan.ep, plan.etp)
        sparse = world._unflatten(0, experts, ("pp", "dp_replicate", "efsdp", "ep", "etp"))
        return Meshes(data, dense, sparse, data["batch", "cp"]._flatten("loss_mesh"))


def parallelized(model: Decoder, arch: Architecture, plan: Plan, meshes: Meshes, layers_before: int = 0) -> Decoder:
    """Return the model with the plan's parallelism applied in place; ``layers_before`` it were made parallel on this rank."""
    config = plan.config
    assert isinstance(config, TorchtitanPlan)
    if plan.tp > 1:
        _tensor_parallel(model, meshes.dense["tp"], loss_parallel=not config.disable_loss_parallel)
        if arch.tied_embeddings and model.tok_embeddings is not None and model.output is not None:
            # parallelize_module makes a parameter of its own for each module; both are cut by rows, so they stay one.
            model.output.weight = model.tok_embeddings.weight
    if plan.tp > 1 or plan.ep > 1:
        _mixtures(model, plan, meshes)
    if plan.cp > 1:
        from tokenwire.measure.dryrun.torch_context import apply_ring

        apply_ring(model, meshes.data["cp"].get_group(), config.context_parallel_rotate_method)
    if config.activation_checkpoint_mode != "none":
        _checkpoints(model, config, layers_before)
    if config.joins_products:
        from tokenwire.measure.dryrun.torch_async import compile_blocks

        compile_blocks(model)
    if plan.group_size("fsdp") > 1:
        native = plan.group_size("dp_replicate") > 1 and not config.set_all_reduce_hook
        names = ("dp_replicate", "fsdp") if native else ("fsdp",)
        _fully_sharded(model, arch, plan, config, meshes, names)
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


_GATHERED: dict[str, Any] = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}


def _block_plan(block: Block) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(**_GATHERED),
        "ffn_norm": SequenceParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    }
    if isinstance(block.attention, LatentSelfAttention):
        plan |= _latent_plan(block.attention)
    else:
        columns = ("qkv",) if block.attention.a.fused_qkv else ("wq", "wk", "wv")
        plan |= {f"attention.{name}": ColwiseParallel() for name in columns}
        if block.attention.q_norm is not None:
            # The norms see heads as their sequence (torchtitan/models/qwen3/infra/parallelize.py).
            norm = SequenceParallel(sequence_dim=2, use_local_output=True)
            plan |= {"attention.q_norm": norm, "attention.k_norm": norm}
    if isinstance(block.feed_forward, FeedForwardBlock):
        plan |= _feed_forward_plan(block.feed_forward)
    return plan


def _latent_plan(attention: LatentSelfAttention) -> dict[str, Any]:
    # torchtitan/models/deepseek_v3/infra/parallelize.py, apply_non_moe_tp: what compresses is on every rank.
    whole, columns = Whole(local=False), ColwiseParallel(use_local_output=False)
    heads = (Shard(1), Shard(1), Shard(1))
    plan: dict[str, Any] = {
        "attention.wkv_a": whole, "attention.kv_norm": whole, "attention.wkv_b": columns,
        "attention.inner_attention": PrepareModuleInput(input_layouts=heads, desired_input_layouts=heads, use_local_output=True),
    }  # fmt: skip
    if attention.a.q_lora_rank is None:
        return plan | {"attention.wq": columns}
    return plan | {"attention.wq_a": whole, "attention.q_norm": whole, "attention.wq_b": columns}


def _feed_forward_plan(feed: FeedForwardBlock) -> dict[str, Any]:
    gated = feed.f.gated
    up = ("w13",) if gated and feed.f.fused else ("w1", "w3") if gated else ("w1",)
    return {
        "feed_forward": PrepareModuleInput(**_GATHERED),
        **{f"feed_forward.{name}": ColwiseParallel() for name in up},
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    }


def _mixtures(model: Decoder, plan: Plan, meshes: Meshes) -> None:
    from tokenwire.measure.dryrun.torch_experts import Mixture, parallelize

    tp = meshes.dense["tp"] if plan.tp > 1 else None
    ep = meshes.sparse["ep"] if plan.ep > 1 else None
    both = meshes.sparse["ep", "etp"] if plan.ep > 1 and plan.tp > 1 and plan.etp > 1 else None
    for module in model.modules():
        if isinstance(module, Mixture):
            parallelize(module, tp, ep, both)


def _checkpoints(model: Decoder, config: TorchtitanPlan, before: int) -> None:
    # torchtitan/distributed/activation_checkpoint.py, apply_ac: full, every n-th block, or by operator.
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    given: dict[str, Any] = {"preserve_rng_state": False, "early_stop": config.early_stop}
    by_operator = config.activation_checkpoint_mode == "selective" and config.selective_ac_option == "op"
    if by_operator:
        given["context_fn"] = _by_operator
    every = 1 if by_operator or config.activation_checkpoint_mode == "full" else int(config.selective_ac_option)
    for place, name in enumerate(list(model.layers), start=before + 1):
        if place % every == 0:
            model.layers[name] = checkpoint_wrapper(model.layers[name], **given)


def _by_operator() -> Any:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    functional = torch.ops._c10d_functional
    saved = {functional.reduce_scatter_tensor.default, functional.all_to_all_single.default, torch.ops.aten.mm.default}

    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if func in saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _fully_sharded(
    model: Decoder, arch: Architecture, plan: Plan, config: TorchtitanPlan, meshes: Meshes, names: tuple[str, ...]
) -> None:
    from tokenwire.measure.dryrun.torch_switches import set_once

    policy = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[config.param_dtype(plan.training)], reduce_dtype=TORCH_DTYPES[config.reduce_dtype()]
    )
    given: dict[str, Any] = {"mesh": meshes.dense[names], "mp_policy": policy}
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
        if plan.ep > 1:
            _sharded_experts(block, plan, {**given, "mesh": meshes.sparse[(*names[:-1], "efsdp")]}, reshard)
        fully_shard(block, **given, reshard_after_forward=reshard)
    # The root's own choice: FSDP2 keeps it gathered unless it is told otherwise.
    if config.fsdp_wrap == "blocks" and asked != "default":
        given["reshard_after_forward"] = always
    fully_shard(model, **given)
    set_once(model, config, meshes.dense["dp_replicate"].get_group(), meshes.sparse["dp_replicate"].get_group())


def _sharded_experts(block: Any, plan: Plan, given: dict[str, Any], reshard: bool) -> None:
    from tokenwire.measure.dryrun.torch_experts import Mixture

    for module in block.modules():
        if isinstance(module, Mixture):
            # Where more ranks share the experts than there are experts, their second dimension is cut.
            short = plan.group_size("edp_shard") * plan.ep > module.e.count
            placement = (lambda _: Shard(1)) if short else None
            fully_shard(module.experts, **given, reshard_after_forward=reshard, shard_placement_fn=placement)
