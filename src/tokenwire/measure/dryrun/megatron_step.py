"""Building Megatron-Core's model, buffers and optimizer for one rank, and running one step. Needs torch.

Recipe: megatron-core's own entry points (parallel_state.initialize_model_parallel, GPTModel, DistributedDataParallel,
get_megatron_optimizer, get_forward_backward_func, finalize_model_grads).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch

from tokenwire.measure.dryrun.megatron_calls import Call, Phase, recorder
from tokenwire.measure.dryrun.megatron_cpu import fake_world, on_cpu, restored_reduction
from tokenwire.measure.dryrun.megatron_standins import CoreAttention, PlainNorm
from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, Layer
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan

_TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def run(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return the calls of one step (and of construction, phase ``setup``) by ``rank``."""
    phase = Phase()
    calls: list[Call] = []
    with fake_world(rank, plan.world), on_cpu(), restored_reduction(), recorder(phase, calls, plan, rank):
        one_step = _built(arch, plan, phase)
        construction = list(calls)
        config = plan.config
        assert isinstance(config, MegatronPlan)
        if config.overlap_param_gather or config.overlap_grad_reduce:
            # With overlap the first step differs (nothing to gather yet): the second is like all that follow.
            one_step()
        calls.clear()
        one_step()
    return [*construction, *calls]


def _built(arch: Architecture, plan: Plan, phase: Phase) -> Callable[[], None]:
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
        param_and_grad_buffer,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.optimizer import MixedPrecisionOptimizer
    from megatron.core.pipeline_parallel import p2p_communication, schedules
    from megatron.core.transformer.module import Float16Module

    config = plan.config
    assert isinstance(config, MegatronPlan)
    parallel_state.initialize_model_parallel(
        config.tp, config.pp, config.vpp if config.vpp > 1 else None, context_parallel_size=config.cp,
        expert_model_parallel_size=config.ep, expert_tensor_parallel_size=plan.etp,
        num_distributed_optimizer_instances=config.num_distributed_optimizer_instances, create_gloo_process_groups=False,
        get_embedding_ranks=lambda ranks: [ranks[i] for i in plan.embedding_stages or sorted({0, len(ranks) - 1})],
    )  # fmt: skip
    precision = plan.training.precision
    transformer = transformer_config(arch, plan)
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=config.grad_reduce_in_fp32, overlap_grad_reduce=config.overlap_grad_reduce,
        overlap_param_gather=config.overlap_param_gather, use_distributed_optimizer=config.use_distributed_optimizer,
        num_distributed_optimizer_instances=config.num_distributed_optimizer_instances, bucket_size=config.ddp_bucket_size,
        pad_buckets_for_high_nccl_busbw=config.pad_buckets_for_high_nccl_busbw,
        average_in_collective=config.average_in_collective,
        reduce_scatter_with_fp32_accumulation=config.reduce_scatter_with_fp32_accumulation,
    )  # fmt: skip
    models = []
    for chunk in range(config.vpp):
        model = _model(arch, plan, transformer, chunk)
        wrapped = Float16Module(transformer, model) if precision != "fp32" else model
        models.append(DistributedDataParallel(transformer, ddp, wrapped, disable_bucketing=chunk > 0))
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="sgd" if plan.training.optimizer == "sgd" else "adam", lr=1e-4, bf16=precision == "bf16",
            fp16=precision == "fp16", params_dtype=_TORCH[precision], clip_grad=0.0,
            use_distributed_optimizer=config.use_distributed_optimizer, log_num_zeros_in_grad=config.log_num_zeros_in_grad,
            initial_loss_scale=1.0, overlap_param_gather=config.overlap_param_gather,
        ),
        models, use_gloo_process_groups=False,
    )  # fmt: skip

    def finalize(*args: Any, **kwargs: Any) -> None:
        with phase.during("gradients"):
            finalize_model_grads(*args, **kwargs)

    transformer.finalize_model_grads_func = finalize
    transformer.grad_scale_func = optimizer.scale_loss
    transformer.timers = None
    if config.overlap_grad_reduce:
        transformer.no_sync_func = [m.no_sync for m in models] if len(models) > 1 else models[0].no_sync
    if config.overlap_param_gather and config.vpp > 1:
        transformer.param_sync_func = [m.start_param_sync for m in models]

    def one_step() -> None:
        for model in models:
            model.zero_grad_buffer()
        optimizer.zero_grad()
        iterators: Any = [_data(plan) for _ in models] if len(models) > 1 else _data(plan)
        schedules.get_forward_backward_func()(
            forward_step_func=partial(_forward, plan), data_iterator=iterators, model=models,
            num_microbatches=plan.micro_batches, seq_length=plan.training.sequence_length,
            micro_batch_size=plan.training.micro_batch, forward_only=False,
        )  # fmt: skip
        with phase.during("optimizer"):
            optimizer.step()

    def one_step_noted() -> None:
        with contextlib.ExitStack() as stack:
            for name, when in (("forward_step", "forward"), ("backward_step", "backward")):
                stack.enter_context(mock.patch.object(schedules, name, _in_phase(getattr(schedules, name), phase, when)))
            for name in ("_batched_p2p_ops", "_p2p_ops"):
                patched = _noting_direction(getattr(p2p_communication, name), phase)
                stack.enter_context(mock.patch.object(p2p_communication, name, patched))
            sync = param_and_grad_buffer._ParamAndGradBucketGroup
            stack.enter_context(mock.patch.object(sync, "start_grad_sync", _in_phase(sync.start_grad_sync, phase, "gradients")))
            shapes = p2p_communication.P2PCommunicator
            stack.enter_context(mock.patch.object(shapes, "_communicate_shapes", _known_shapes(shapes._communicate_shapes, arch, plan, phase)))
            # Received numbers are arbitrary; an overflow in them must not skip the step.
            check = MixedPrecisionOptimizer._unscale_main_grads_and_check_for_nan
            stack.enter_context(mock.patch.object(
                MixedPrecisionOptimizer, "_unscale_main_grads_and_check_for_nan", lambda self: check(self) and False
            ))  # fmt: skip
            # Outside forward and backward of a micro-batch only parameters are gathered ahead of the forward.
            with phase.during("forward"):
                one_step()

    return one_step_noted


def _in_phase(function: Callable[..., Any], phase: Phase, name: str) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with phase.during(name):
            return function(*args, **kwargs)

    return inside


def _noting_direction(function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
    def noted(**tensors: Any) -> Any:
        phase.of_tensor.clear()
        for name in ("tensor_send_next", "tensor_recv_prev", "tensor_send_prev", "tensor_recv_next"):
            if tensors.get(name) is not None:
                forward = name in ("tensor_send_next", "tensor_recv_prev")
                phase.of_tensor[tensors[name].data_ptr()] = "forward" if forward else "backward"
        return function(**tensors)

    return noted


def _known_shapes(function: Callable[..., Any], arch: Architecture, plan: Plan, phase: Phase) -> Callable[..., Any]:
    # What would be received is not there: the shape is that of every stage, or wider after multi-token prediction.
    parts = plan.cp * (plan.tp if plan.sequence_parallel else 1)
    shape = [plan.training.sequence_length // parts, plan.training.micro_batch, arch.hidden_size]
    further = next((stage.index for stage in plan.stages if stage.has_next_tokens), plan.pp)
    wide = [shape[0] * (1 + (plan.config.mtp_num_layers or 0)), *shape[1:]]  # type: ignore[attr-defined]
    here = plan.stage_of(torch.distributed.get_rank())

    def known(communicator: Any, send_next: Any, send_prev: Any, recv_prev: Any, recv_next: Any) -> Any:
        # In the order in which Megatron lists them.
        asked = ((send_prev is not None, "backward"), (recv_prev, "forward"), (send_next is not None, "forward"),
                 (recv_next, "backward"))  # fmt: skip
        phase.coming.extend(name for wanted, name in asked if wanted)
        function(communicator, send_next, send_prev, recv_prev, recv_next)
        return wide if here > further else shape, wide if here >= further else shape

    return known


def transformer_config(arch: Architecture, plan: Plan) -> Any:
    """Return Megatron's TransformerConfig for the model and plan. Raises ``InputError`` for what it has no words for."""
    from megatron.core.transformer import TransformerConfig

    config = plan.config
    assert isinstance(config, MegatronPlan)
    mixer, feed = arch.layers[0].mixer, arch.layers[0].feed_forward
    assert isinstance(mixer, Attention)
    experts = [layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, Experts)]
    dense = [layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, FeedForward)]
    gated = (dense or experts)[0].gated
    bias = mixer.output_bias or any(f.bias for f in dense)
    precision = _TORCH[plan.training.precision]
    more: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall"}
    if experts:
        x = experts[0]
        more = {
            "num_moe_experts": x.count, "moe_router_topk": x.active, "moe_ffn_hidden_size": x.width,
            "moe_token_dispatcher_type": config.moe_token_dispatcher_type,
            "moe_router_load_balancing_type": config.moe_router_load_balancing_type,
            "moe_aux_loss_coeff": config.moe_aux_loss_coeff, "moe_z_loss_coeff": config.moe_z_loss_coeff,
            "moe_router_dtype": config.moe_router_dtype, "moe_router_pre_softmax": x.active == 1,
            "moe_router_num_groups": config.moe_router_num_groups, "moe_router_group_topk": config.moe_router_group_topk,
            "moe_router_enable_expert_bias": config.moe_router_enable_expert_bias,
            "moe_router_score_function": "sigmoid" if config.moe_router_enable_expert_bias else "softmax",
            "moe_expert_capacity_factor": config.moe_expert_capacity_factor,
            "moe_pad_expert_input_to_capacity": config.moe_pad_expert_input_to_capacity,
            "moe_shared_expert_intermediate_size": x.shared.width if x.shared else None,
        }  # fmt: skip
    del feed
    return TransformerConfig(
        num_layers=len(arch.layers), hidden_size=arch.hidden_size, num_attention_heads=mixer.heads,
        num_query_groups=mixer.kv_heads, kv_channels=mixer.head_dim,
        ffn_hidden_size=(dense[0].width if dense else experts[0].width), gated_linear_unit=gated,
        activation_func=torch.nn.functional.silu if gated else torch.nn.functional.gelu,
        add_bias_linear=bias, add_qkv_bias=mixer.qkv_bias and not bias, bias_activation_fusion=False,
        normalization="RMSNorm" if arch.norm.kind == "rms" else "LayerNorm", qk_layernorm=mixer.qk_norm != "none",
        tensor_model_parallel_size=config.tp, pipeline_model_parallel_size=config.pp,
        virtual_pipeline_model_parallel_size=config.vpp if config.vpp > 1 else None, context_parallel_size=config.cp,
        expert_model_parallel_size=config.ep, expert_tensor_parallel_size=plan.etp,
        sequence_parallel=plan.sequence_parallel, params_dtype=precision,
        pipeline_dtype=precision, bf16=precision is torch.bfloat16, fp16=precision is torch.float16,
        use_cpu_initialization=True, perform_initialization=False, gradient_accumulation_fusion=False,
        hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False, masked_softmax_fusion=False,
        persist_layer_norm=False, apply_rope_fusion=False, batch_p2p_sync=False,
        cross_entropy_loss_fusion=config.cross_entropy_loss_fusion, cross_entropy_fusion_impl=config.cross_entropy_fusion_impl,
        num_layers_in_first_pipeline_stage=config.decoder_first_pipeline_num_layers,
        num_layers_in_last_pipeline_stage=config.decoder_last_pipeline_num_layers,
        account_for_embedding_in_pipeline_split=config.account_for_embedding_in_pipeline_split,
        account_for_loss_in_pipeline_split=config.account_for_loss_in_pipeline_split,
        pipeline_model_parallel_layout=_layout(config),
        microbatch_group_size_per_vp_stage=config.microbatch_group_size_per_vp_stage,
        variable_seq_lengths=config.variable_seq_lengths, recompute_granularity=config.recompute_granularity,
        recompute_method=config.recompute_method, recompute_num_layers=config.recompute_num_layers,
        recompute_modules=list(config.recompute_modules), distribute_saved_activations=config.distribute_saved_activations,
        calculate_per_token_loss=config.calculate_per_token_loss, mtp_num_layers=config.mtp_num_layers, **more,
    )  # fmt: skip


def _layout(config: MegatronPlan) -> str | list[list[str]] | None:
    said = config.pipeline_model_parallel_layout
    return said if said is None or isinstance(said, str) else [list(row) for row in said]


def _model(arch: Architecture, plan: Plan, transformer: Any, chunk: int) -> Any:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    stage = parallel_state.get_pipeline_model_parallel_rank()
    specs = [_layer_spec(arch.layers[index], transformer) for index in plan.stages[stage].chunks[chunk]]
    virtual = chunk if plan.vpp > 1 else None
    last = specs[-1] if specs else _layer_spec(arch.layers[-1], transformer)
    return GPTModel(
        transformer, TransformerBlockSubmodules(layer_specs=specs, layer_norm=PlainNorm), plan.vocabulary_size,
        arch.max_positions if arch.positions == "learned" else plan.training.sequence_length,
        pre_process=stage == 0 and chunk == 0, post_process=stage == plan.pp - 1 and chunk == plan.vpp - 1,
        share_embeddings_and_output_weights=arch.tied_embeddings,
        position_embedding_type={"learned": "learned_absolute", "rotary": "rope"}.get(arch.positions, "none"),
        vp_stage=virtual, mtp_block_spec=_next_token_spec(last, transformer, virtual),
    )  # fmt: skip


def _layer_spec(layer: Layer, transformer: Any) -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    experts = layer.feed_forward.count if isinstance(layer.feed_forward, Experts) else None
    qk_norm = transformer.qk_layernorm
    spec = get_gpt_layer_local_spec(experts, False, qk_layernorm=qk_norm, normalization=transformer.normalization)
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = PlainNorm
    attention = spec.submodules.self_attention.submodules
    attention.core_attention = CoreAttention
    if qk_norm:
        attention.q_layernorm = attention.k_layernorm = PlainNorm
    return spec


def _next_token_spec(layer: Any, transformer: Any, virtual: int | None) -> Any:
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec_for_backend

    if transformer.mtp_num_layers is None:
        return None
    block = get_gpt_mtp_block_spec_for_backend(transformer, layer, LocalSpecProvider(), vp_stage=virtual)
    for spec in block.layer_specs if block is not None else ():
        spec.submodules.enorm = spec.submodules.hnorm = spec.submodules.layer_norm = PlainNorm
    return block


def _data(plan: Plan) -> Iterator[torch.Tensor]:
    while True:
        length = plan.training.sequence_length // plan.cp
        yield torch.zeros(plan.training.micro_batch, length, dtype=torch.int64)


def _forward(plan: Plan, iterator: Any, model: Any, *unused: Any) -> Any:
    tokens = next(iterator)
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    output = model(tokens, positions, None, labels=tokens, loss_mask=torch.ones(tokens.shape))

    def loss(out: torch.Tensor) -> Any:
        total = out.float().sum()
        return total, torch.tensor(tokens.numel(), dtype=torch.int), {}

    if not plan.config.calculate_per_token_loss:  # type: ignore[attr-defined]
        return output, lambda out: (out.float().mean(), {})
    return output, loss
