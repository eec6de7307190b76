"""Random configurations of every ``model_type``, and their parameters as transformers counts them on meta tensors.

``python -m tests.model.random_configs SEED N [MODEL_TYPE ...]`` draws N configurations of each type, prints each that differs, and with
``--write`` appends those of the types that ``huggingface_counts.jsonl`` does not have yet. Needs transformers and torch.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "huggingface_counts.jsonl"

# A size is drawn for every field of these names that the configuration of a type has.
SIZES: dict[str, list[Any]] = {
    "vocab_size": [97, 128, 515], "max_position_embeddings": [64], "n_positions": [64], "num_hidden_layers": [2, 3, 4, 5], "n_layer": [2, 3, 5], "num_layers": [2, 3, 4],
    "n_layers": [2, 3], "intermediate_size": [56, 77, 120], "ffn_dim": [56, 120], "n_inner": [None, 77], "ffn_hidden_size": [56, 120], "moe_intermediate_size": [24, 40],
    "expert_ffn_hidden_size": [24, 40], "shared_expert_intermediate_size": [24, 48], "shared_intermediate_size": [24, 48], "moe_shared_expert_intermediate_size": [24, 48],
    "intermediate_size_mlp": [72, 100], "num_experts": [4, 6, 8], "num_local_experts": [4, 6, 8], "n_routed_experts": [4, 6, 8], "moe_num_experts": [4, 6],
    "num_experts_per_tok": [1, 2, 3], "num_experts_per_token": [1, 2], "moe_topk": [1, 2], "moe_k": [1, 2], "top_k_experts": [1, 2], "n_shared_experts": [1, 2],
    "num_shared_experts": [1, 2], "moe_num_shared_experts": [0, 1, 2], "zero_expert_num": [0, 2, 4], "first_k_dense_replace": [0, 1, 2], "num_dense_layers": [0, 1, 2],
    "decoder_sparse_step": [1, 2], "n_group": [1], "topk_group": [1], "q_lora_rank": [24, 40], "kv_lora_rank": [16, 32], "qk_nope_head_dim": [16, 24], "qk_rope_head_dim": [8, 16],
    "v_head_dim": [12, 16], "index_n_heads": [2, 4], "index_head_dim": [16, 32], "index_topk": [8], "sliding_window": [16], "linear_num_key_heads": [1, 2],
    "linear_num_value_heads": [2, 4], "linear_key_head_dim": [8, 16], "linear_value_head_dim": [8, 12], "linear_conv_kernel_dim": [3, 4], "linear_num_heads": [2, 4],
    "linear_head_dim": [8, 16], "conv_L_cache": [3, 4], "conv1d_width": [3, 4], "lru_width": [None, 96], "mamba_d_state": [8, 16], "mamba_d_conv": [3, 4], "mamba_expand": [2],
    "mamba_n_heads": [4], "n_mamba_heads": [4, 8], "mamba_ngroups": [1, 2], "mamba_n_groups": [1, 2], "state_size": [8, 16], "conv_kernel": [3, 4], "n_groups": [1, 2],
    "ssm_state_size": [8, 16], "mamba_num_heads": [4, 8], "mamba_head_dim": [8, 16], "adapter_rank": [4, 8], "num_mem_blocks": [1, 2], "hidden_size_per_layer_input": [0, 8, 16],
    "vocab_size_per_layer_input": [50, 97], "num_kv_shared_layers": [0, 2], "altup_num_inputs": [2, 4], "laurel_rank": [4, 8], "moe_layer_interval": [1, 2],
    "moe_layer_start_index": [0, 1], "attn_layer_period": [2, 4], "attn_layer_offset": [1], "expert_layer_period": [2], "expert_layer_offset": [1], "block_multiple_of": [16, 32],
    "block_ffn_dim_multiplier": [1.0, 1.5], "interleave_moe_layer_step": [1, 2], "moe_latent_size": [None, 16], "word_embed_proj_dim": [24, 64],
}  # fmt: skip
FLAGS = (
    "tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "qkv_bias", "bias", "use_qk_norm", "qk_layernorm", "attention_out_bias", "lm_head_bias", "conv_bias",
    "mamba_conv_bias", "mamba_proj_bias", "add_bias_linear", "multi_query", "new_decoder_architecture", "parallel_attn", "use_parallel_residual", "enable_bias",
    "layer_norm_elementwise_affine", "do_layer_norm_before", "use_conv_bias", "attention_k_eq_v", "use_double_wide_mlp", "enable_moe_block", "use_shared_attention_adapter",
    "use_qkv_bias", "block_auto_adjust_ff_dim", "use_expert_bias",
)  # fmt: skip
# What a layer can be, where the types of layers are drawn too.
LAYERS = {
    "lfm2": ("layer_types", "conv", "full_attention"), "lfm2_moe": ("layer_types", "conv", "full_attention"), "minimax": ("layer_types", "linear_attention", "full_attention"),
    "kimi_linear": ("layer_types", "linear_attention", "full_attention"), "qwen3_next": ("layer_types", "linear_attention", "full_attention"),
    "qwen3_5_text": ("layer_types", "linear_attention", "full_attention"), "qwen3_5_moe_text": ("layer_types", "linear_attention", "full_attention"),
    "zamba2": ("layers_block_type", "linear_attention", "hybrid"), "recurrent_gemma": ("block_types", "recurrent", "attention"),
    "gemma4_text": ("layer_types", "sliding_attention", "full_attention"), "gemma3n_text": ("layer_types", "sliding_attention", "full_attention"),
    "granitemoehybrid": ("layer_types", "linear_attention", "full_attention"),
}  # fmt: skip
WIDTHS = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "num_global_key_value_heads")


def draw(rng: random.Random, model_type: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of a type, of the fields that ``known`` (its defaults) has."""
    heads = rng.choice([2, 4, 6, 8])
    out: dict[str, Any] = {"model_type": model_type, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    for name, values in SIZES.items():
        if name in known:
            out[name] = rng.choice(values)
    for name in FLAGS:
        if name in known and rng.random() < 0.6:
            out[name] = rng.random() < 0.5
    # Each size of a group under the one name that the type has for it.
    for names, value in ((WIDTHS, rng.choice([4, 8, 12]) * heads * 2), (HEADS, heads), (KV_HEADS, rng.choice([n for n in (1, 2, 3, 4, 6, 8) if heads % n == 0]))):
        out |= {name: value for name in names if name in known}
    if "head_dim" in known and rng.random() < 0.5:
        out["head_dim"] = rng.choice([8, 12, 16])
    if model_type == "gemma4_text":
        out |= {"global_head_dim": rng.choice([16, 24]), "num_experts": 4}
    if model_type == "helium":
        # Its output projection takes the hidden size, so another product of heads could not run.
        out["head_dim"] = out["hidden_size"] // heads
    if model_type == "gpt_neo":
        out |= {"num_layers": 2 * rng.choice([1, 2])}
        out["attention_types"] = [[["global", "local"], out["num_layers"] // 2]]
    if model_type == "bamba":
        out["attn_layer_indices"] = sorted(rng.sample(range(out["num_hidden_layers"]), rng.choice([0, 1, 2])))
    if model_type == "dbrx":
        kv = rng.choice([1, 2])
        out |= {"tie_word_embeddings": False, "num_key_value_heads": None, "attn_config": {"kv_n_heads": kv, "clip_qkv": 8, "rope_theta": 10000.0},
                "ffn_config": {"ffn_hidden_size": 56, "moe_num_experts": rng.choice([4, 6]), "moe_top_k": rng.choice([1, 2]), "hidden_size": out["d_model"]}}
        out.pop("num_key_value_heads")
    if model_type in LAYERS:
        name, *kinds = LAYERS[model_type]
        count = out["num_hidden_layers"]
        each = [*kinds, *(rng.choice(kinds) for _ in range(count))][:count]
        rng.shuffle(each)
        out[name] = each
    return out


def defaults(model_type: str) -> dict[str, Any] | None:
    """Return the fields of a type with their defaults, None where transformers has no such model."""
    from transformers import AutoConfig

    try:
        return json.loads(AutoConfig.for_model(model_type).to_json_string(use_diff=False))
    except (ValueError, KeyError):
        return None


def counted(config: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Return the parameters of a configuration on meta tensors, and the configuration as it is saved; None where it is refused."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        made = AutoConfig.for_model(**json.loads(json.dumps(config)))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(made)
    except Exception:  # whatever a model's own code raises: transformers refuses it
        return None
    return sum(p.numel() for p in model.parameters()), json.loads(made.to_json_string(use_diff=False))


def drawn(seed: int, number: int, model_type: str) -> list[tuple[dict[str, Any], int, dict[str, Any]]]:
    """Return ``number`` configurations that transformers takes, each with its count and as it is saved."""
    known, rng, out = defaults(model_type), random.Random(f"{seed} {model_type}"), []
    if known is None or "text_config" in known:
        return out
    for _ in range(40 * number):
        if len(out) == number:
            break
        config = draw(rng, model_type, known)
        if (found := counted(config)) is not None:
            out.append((config, *found))
    return out


def main(arguments: list[str]) -> None:
    """Compare, or write."""
    from tokenwire.errors import InputError
    from tokenwire.model import from_huggingface, parameters
    from tokenwire.model.families import known_families

    warnings.simplefilter("ignore")
    write = "--write" in arguments
    seed, number, *types = [x for x in arguments if x != "--write"]
    recorded = {json.loads(line)["config"]["model_type"] for line in RECORDED.read_text().splitlines()}
    equal = 0
    for model_type in types or known_families():
        rows = drawn(int(seed), int(number), model_type)
        if len(rows) < int(number):
            print(f"{model_type}: {len(rows)} of {number} drawn")
        for config, count, saved in rows:
            for form, one in (("drawn", config), ("saved", saved)):
                try:
                    found: object = parameters(from_huggingface(one)).total
                except InputError as error:
                    found = error
                if found == count:
                    equal += 1
                else:
                    print(f"{model_type} ({form}): {count} counted, {found} here: {json.dumps(config)}")
        if write and model_type not in recorded:
            with RECORDED.open("a") as file:
                file.writelines(json.dumps({"parameters": count, "config": config}) + "\n" for config, count, _ in rows)
    print(f"{equal} equal")


if __name__ == "__main__":
    main(sys.argv[1:])
