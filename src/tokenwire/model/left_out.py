"""What a configuration says that does not count here: other parts of a multimodal model, fields that are unknown, windows.

A field that its family's reader has not asked for is named, unless it stands in ``HARMLESS``: what changes no tensor, no product and
nothing that is sent. Names are those of huggingface/transformers 5 (``configuration_*.py``) and of published ``config.json`` files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenwire.model.architecture import Architecture, LatentAttention, LeftOut
from tokenwire.model.fields import Fields

MOST_NAMED = 40
"""Fields that are named at most."""

HARMLESS = frozenset(["_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "_sliding_window_pattern", "add_cross_attention", "architectures", "attn_implementation", "auto_map", "bad_words_ids", "base_model_pp_plan", "base_model_tp_plan", "begin_suppress_tokens", "chunk_size_feed_forward", "compression_config", "cross_attention_hidden_size", "custom_pipelines", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "id2label", "init_device", "init_std", "initializer_range", "is_causal", "is_decoder", "is_encoder_decoder", "label2id", "length_penalty", "max_length", "min_length", "model_type", "name", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels", "num_return_sequences", "output_attentions", "output_hidden_states", "output_router_logits", "output_scores", "prefix", "problem_type", "pruned_heads", "quantization_config", "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "save_safetensors", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "transformers.js_config", "typical_p", "use_bfloat16", "use_cache", "vocab_file", "attention_multiplier", "attention_softmax_in_fp32", "attn_logit_softcapping", "attn_scale", "attn_temperature_tuning", "classifier_dropout", "clip_qkv", "dim_model_base", "dropout", "embd_pdrop", "attn_pdrop", "resid_pdrop", "embedding_multiplier", "final_logit_softcapping", "final_w_init_variance_scale", "floor_scale", "logit_scale", "logits_scaling", "logits_soft_cap", "low_cpu_mem_usage", "mup_attn_multiplier", "mup_embedding_multiplier", "mup_use_scaling", "mup_width_multiplier", "max_window_layers", "no_rope_layer_interval", "no_rope_layers", "num_logits_to_keep", "original_max_position_embeddings", "partial_rotary_factor", "pretraining_tp", "query_pre_attn_scalar", "rescale_prenorm_residual", "residual_in_fp32", "residual_multiplier", "rope_interleave", "rope_local_base_freq", "rope_parameters", "rope_pct", "rope_scaling", "rope_theta", "rope_embedding_base", "rope_position_scale", "rope_freq_constant", "rope_max_length", "rotary_dim", "rotary_emb_base", "rotary_pct", "scale_attention_softmax_in_fp32", "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "scale_depth", "scale_emb", "scale_embedding", "seq_length", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "swiglu_alpha", "swiglu_limit", "use_mem_rope", "use_long_context", "gegelu_limit", "gegelu_pad_to_256", "w_init_variance_scale", "altup_active_idx", "altup_coef_clip", "altup_correct_scale", "activation_sparsity_pattern", "default_theta", "mrope_section", "normalization_layer_name", "ntk_alpha", "hidden_act", "hidden_activation", "activation_function", "activation", "afn", "mamba_hidden_act", "mlp_hidden_act", "ffn_act_fn", "gate_act", "mlp_activation", "aux_loss_alpha", "ep_size", "moe_loss_weight", "moe_normalize_expert_weights", "moe_norm_min", "moe_renormalize", "moe_router_activation_func", "moe_shared_expert_overlap", "n_group", "norm_topk_prob", "num_expert_group", "normalize_router_weights", "routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "scoring_func", "score_function", "seq_aux", "topk_group", "topk_method", "use_grouped_topk", "shared_moe_mode", "block_size", "chunk_size", "conv_use_xavier_init", "full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor", "layernorm_full_attention_alpha", "layernorm_full_attention_beta", "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta", "postnorm", "mlp_alpha_factor", "mlp_beta_factor", "mamba_chunk_size", "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "mamba_headdim", "mixer_rms_eps", "time_step_floor", "time_step_init_scheme", "time_step_limit", "time_step_max", "time_step_min", "time_step_scale", "use_associative_scan", "use_mamba_kernels", "use_mem_eff_path", "theta", "use_unified_attn", "zero_expert_type", "attn_method", "attention_hidden_size", "hybrid_layer_ids", "kv_channels", "num_query_groups", "expansion_ratio", "no_bias", "norm_type", "learned_pos_emb", "embedding_fraction", "num_heads_key_value", "use_conv_bias", "model_max_length", "apply_residual_connection_post_layernorm", "n_ctx", "blocksparse_block_size", "blocksparse_homo_head_pattern", "blocksparse_num_local_blocks", "blocksparse_triton_kernel_block_size", "blocksparse_vert_stride", "moe_router_enable_expert_bias", "block_mlp_init_scale", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "block_norm_eps", "block_dim", "num_hidden_layers_per_stage", "use_pos_enc", "conv_dim", "conv_dim_out", "mtp_use_dedicated_embeddings", "mlp_type", "attn_output_gate", "mamba_proj_bias"])  # fmt: skip
"""Fields that change no size."""

_ENDINGS = ("_token_id", "_token_ids", "_token_index", "_tokens_id", "_dropout", "_dropout_prob", "_eps", "_epsilon", "_init_std")

_OF_LATENT = frozenset({"head_dim", "qk_head_dim", "num_key_value_heads"})
"""What latent attention does not use: its heads are made of other sizes."""

_WINDOWS = frozenset({"sliding_window", "use_sliding_window", "sliding_window_pattern", "attention_chunk_size", "attention_types",
                      "attention_layers", "window_size", "layer_types"})  # fmt: skip
"""Fields that say which tokens attention looks at."""

_AROUND = frozenset({"multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size", "vision_feature_layer", "downsample_ratio",
                     "vision_feature_select_strategy", "image_seq_length", "mm_tokens_per_image", "vision_soft_tokens_per_image",
                     "audio_soft_tokens_per_image", "projection_hidden_size", "projection_layer_norm_eps", "image_grid_pinpoints",
                     "use_image_newline_parameter"})  # fmt: skip
"""What lies between the encoders of a multimodal model and its text."""


def fields_left_out(fields: Fields, arch: Architecture) -> tuple[LeftOut, ...]:
    """Return the fields of a text model that nothing has asked for and that are not known to change nothing."""
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in arch.kinds)
    return tuple(_named(fields, _OF_LATENT if latent else frozenset()))


def parts_left_out(fields: Mapping[str, Any], text: str) -> tuple[LeftOut, ...]:
    """Return what a multimodal configuration has besides the part named ``text``: encoders, and what projects from them.

    >>> [part.field for part in parts_left_out({"model_type": "x", "text_config": {}, "vision_config": {"depth": 2}}, "text_config")]
    ['vision_config']
    """
    own = Fields({name: value for name, value in fields.items() if name not in (text, "tie_word_embeddings")})
    return tuple(_named(own, _AROUND))


def _named(fields: Fields, harmless: frozenset[str]) -> Iterator[LeftOut]:
    count = 0
    for field, value in fields.unread().items():
        name = field.rpartition(".")[2]
        if value is None or value is False or value in ("", [], {}) or name in HARMLESS or name in harmless or name.endswith(_ENDINGS):
            continue
        count += 1
        if count > MOST_NAMED:
            return
        yield _left_out(field[:80], name, value)


def _left_out(field: str, name: str, value: Any) -> LeftOut:
    if name.endswith("_config") and isinstance(value, Mapping):
        layers = next((value[key] for key in ("num_hidden_layers", "depth", "num_layers") if isinstance(value.get(key), int)), None)
        of = f" of {layers:,} layers" if layers is not None else ""
        return LeftOut(field, "part", f"a part{of}, and what projects from it into the text part: not counted")
    if name in _WINDOWS:
        return LeftOut(field, "effect", "attention to a window counts as attention to all tokens")
    return LeftOut(field, "unknown", "not read: sizes may differ")
