"""Megatron-Core's own configuration and model of an architecture, for one virtual stage of one rank. Needs torch.

Layers are those of its local specification, with stand-ins (``megatron_standins``) for what Transformer Engine would bring. Of
latent attention the projections down are whole on every rank, as in the specification of Transformer Engine.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch

from tokenwire.measure.dryrun.megatron_standins import (
    CoreAttention,
    NormedColumnParallelLinear,
    PlainNorm,
    WholeLinear,
)
from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
)
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def transformer_config(arch: Architecture, plan: Plan) -> Any:
    """Return Megatron's TransformerConfig for the model and plan (MLATransformerConfig with latent attention)."""
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    config = plan.config
    assert isinstance(config, MegatronPlan)
    mixer = arch.layers[0].mixer
    assert isinstance(mixer, (Attention, LatentAttention))
    experts = [layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, Experts)]
    dense = [layer.feed_forward for layer in arch.layers if isinstance(layer.feed_forward, FeedForward)]
    gated = (dense or experts)[0].gated
    bias = mixer.output_bias or any(f.bias for f in dense)
    precision = TORCH_DTYPES[plan.training.precision]
    latent = isinstance(mixer, LatentAttention)
    attention = _latent(mixer) if isinstance(mixer, LatentAttention) else _grouped(mixer, bias)
    return (MLATransformerConfig if latent else TransformerConfig)(
        num_layers=len(arch.layers), hidden_size=arch.hidden_size, num_attention_heads=mixer.heads,
        ffn_hidden_size=(dense[0].width if dense else experts[0].width), gated_linear_unit=gated,
        activation_func=torch.nn.functional.silu if gated else torch.nn.functional.gelu,
        add_bias_linear=bias, bias_activation_fusion=False, normalization="RMSNorm" if arch.norm.kind == "rms" else "LayerNorm",
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
        calculate_per_token_loss=config.calculate_per_token_loss, mtp_num_layers=config.mtp_num_layers,
        **attention, **_experts(experts, config),
    )  # fmt: skip


def _grouped(a: Attention, bias: bool) -> dict[str, Any]:
    return {"num_query_groups": a.kv_heads, "kv_channels": a.head_dim, "qk_layernorm": a.qk_norm != "none",
            "add_qkv_bias": a.qkv_bias and not bias}  # fmt: skip


def _latent(a: LatentAttention) -> dict[str, Any]:
    return {"q_lora_rank": a.q_lora_rank, "kv_lora_rank": a.kv_lora_rank, "qk_head_dim": a.qk_nope_head_dim,
            "qk_pos_emb_head_dim": a.qk_rope_head_dim, "v_head_dim": a.v_head_dim, "qk_layernorm": True, "rope_type": "rope"}  # fmt: skip


def _experts(experts: list[Experts], config: MegatronPlan) -> dict[str, Any]:
    if not experts:
        return {"moe_token_dispatcher_type": "alltoall"}
    x = experts[0]
    return {
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


def _layout(config: MegatronPlan) -> str | list[list[str]] | None:
    said = config.pipeline_model_parallel_layout
    return said if said is None or isinstance(said, str) else [list(row) for row in said]


def stage_model(arch: Architecture, plan: Plan, transformer: Any, chunk: int) -> Any:
    """Return the GPTModel of this rank's virtual stage ``chunk``."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    stage = parallel_state.get_pipeline_model_parallel_rank()
    specs = [_layer_spec(arch.layers[index], transformer) for index in plan.stages[stage].chunks[chunk]]
    virtual = chunk if plan.vpp > 1 else None
    last = specs[-1] if specs else _layer_spec(arch.layers[-1], transformer)
    # What is whole on every rank is known by the class of Transformer Engine's linear layer.
    with mock.patch.object(multi_latent_attention, "TELinear", WholeLinear):
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
    latent, qk_norm = isinstance(layer.mixer, LatentAttention), transformer.qk_layernorm
    spec = get_gpt_layer_local_spec(experts, False, qk_layernorm=qk_norm and not latent, multi_latent_attention=latent,
                                    normalization=transformer.normalization)  # fmt: skip
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = PlainNorm
    attention = spec.submodules.self_attention.submodules
    attention.core_attention = CoreAttention
    if latent:
        attention.linear_q_down_proj = attention.linear_kv_down_proj = WholeLinear
        attention.linear_q_up_proj = attention.linear_kv_up_proj = NormedColumnParallelLinear
    elif qk_norm:
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
