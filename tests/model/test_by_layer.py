"""Layers of different sizes, what a configuration has that does not count, and refusals of what is not known."""

from __future__ import annotations

import pytest

from tokenwire.errors import InputError
from tokenwire.model import flops_per_token, from_huggingface, layer_parameters, parameters, tensors
from tokenwire.plan import resolve
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.shards import holdings
from tokenwire.plan.training import TrainingConfig

OPENELM = {
    "model_type": "openelm", "vocab_size": 32000, "model_dim": 2048, "head_dim": 64, "num_gqa_groups": 4, "num_transformer_layers": 28,
    "normalize_qk_projections": True, "share_input_output_layers": True, "ffn_multipliers": [0.5, 4.0], "qkv_multipliers": [0.5, 1.0],
}  # fmt: skip

# Runs of blocks (how many, heads a KV head or None for no attention, ffn_mult) of Llama-3_3-Nemotron-Super-49B-v1's config.json.
SUPER = [
    (1, 8, 2.625), (5, 8, 5.25), (2, None, 2.625), (3, 8, 5.25), (1, None, 3.28125), (30, 8, 5.25), (1, None, 1.3125), (2, None, 2.625),
    (1, None, 1.3125), (1, None, 5.25), (1, None, 1.3125), (1, None, 2.625), (3, None, 1.3125), (1, 8, 5.25), (1, None, 1.3125),
    (2, None, 1.0), (1, None, 1.3125), (3, None, 1.0), (2, None, 1.3125), (2, None, 0.5), (2, None, 1.0), (2, None, 0.5), (1, None, 1.0),
    (2, None, 0.5), (9, 8, 5.25),
]  # fmt: skip


def puzzle(runs=SUPER, **fields):
    blocks = [
        {"attention": {"n_heads_in_group": group, "no_op": group is None}, "ffn": {"ffn_mult": mult, "no_op": mult is None}}
        for count, group, mult in runs
        for _ in range(count)
    ]
    own = {"hidden_size": 8192, "num_attention_heads": 64, "vocab_size": 128256, "tie_word_embeddings": False}
    return {"model_type": "nemotron-nas", "num_hidden_layers": len(blocks), **own, "block_configs": blocks, **fields}


def test_a_searched_model_counts_as_published():
    # 49.9 B, as huggingface.co counts the tensors of nvidia/Llama-3_3-Nemotron-Super-49B-v1.
    assert parameters(from_huggingface(puzzle())).total == 49_867_145_216


@pytest.mark.parametrize(("layers", "width", "head", "total"), [(16, 1280, 64, 271_527_168), (20, 1536, 64, 457_179_136),
                                                                (28, 2048, 64, 1_079_891_456), (36, 3072, 128, 3_036_647_424)])  # fmt: skip
def test_openelm_counts_as_published(layers, width, head, total):
    config = OPENELM | {"num_transformer_layers": layers, "model_dim": width, "head_dim": head}
    assert parameters(from_huggingface(config)).total == total


def test_a_stage_holds_its_own_layers():
    arch = from_huggingface(puzzle([(2, 8, 5.25), (1, None, 1.0), (1, None, None)]))
    plan = resolve(MegatronPlan(pp=2, tp=2), TrainingConfig(global_batch=4, micro_batch=1, sequence_length=128), arch, 4)
    held = [sum(holdings(arch, plan, rank)["elements"]) for rank in (0, 2)]
    norms = [2 * 2 * 8192, 8192 + 8192]
    layers = [2 * layer_parameters(arch, arch.layers[0]), layer_parameters(arch, arch.layers[2])]
    assert layer_parameters(arch, arch.layers[3]) == 0
    rows = plan.vocabulary_size // 2 * 8192
    # Products are cut in two, norms (of the last stage the final one too) are not.
    own = [(layers[0] - norms[0]) // 2 + norms[0] + rows, (layers[1] - 8192) // 2 + norms[1] + rows]
    assert held == own


def test_a_matrix_in_place_of_a_part_counts_its_products():
    config = puzzle([(1, 8, 5.25)])
    config["block_configs"] = [{"attention": {"replace_with_linear": True}, "ffn": {"replace_with_linear": True}}]
    arch = from_huggingface(config)
    h = 8192
    assert layer_parameters(arch, arch.layers[0]) == 2 * h * h + 2 * h
    assert flops_per_token(arch, 4096).value == 6 * (2 * h * h + 128256 * h)
    with pytest.raises(InputError, match="a layer of linear is not predicted; nearest that works: tp = 1"):
        resolve(MegatronPlan(tp=2), TrainingConfig(global_batch=2, micro_batch=1, sequence_length=128), arch, 2)


def test_a_block_that_is_not_known_is_refused():
    config = puzzle([(1, 8, 5.25)])
    config["block_configs"][0]["ffn"]["moe"] = {"num_local_experts": 8}
    with pytest.raises(InputError, match=r"block_configs\[0\] ffn.moe = a mapping: is no field of a block that is known"):
        from_huggingface(config)


def test_fields_by_layer():
    config = {"model_type": "llama", "num_hidden_layers": 3, "vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4,
              "intermediate_size": 128, "per_layer_config": {"1": {"intermediate_size": 32, "num_key_value_heads": 2}, "2": {"skip": ["mlp"]}}}  # fmt: skip
    layers = from_huggingface(config).layers
    assert [layer.feed_forward and layer.feed_forward.width for layer in layers] == [128, 32, None]
    assert [layer.mixer.kv_heads for layer in layers] == [4, 2, 4]
    assert [layer.norms for layer in layers] == [2, 2, 1]
    for wrong in ({"3": {}}, {"0": {"hidden": 3}}, {"0": 3}, {"0": {"skip": ["all"]}}, {"x": {}}, {"0": {"num_hidden_layers": 2}}):
        with pytest.raises(InputError):
            from_huggingface(config | {"per_layer_config": wrong})


def test_what_is_left_out_is_named():
    text = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "bos_token_id": 1, "rms_norm_eps": 1e-6}
    assert from_huggingface(text).left_out == ()
    arch = from_huggingface(text | {"ple_width": 64, "some_flag": False})
    assert [(one.field, one.kind) for one in arch.left_out] == [("ple_width", "unknown")]
    both = {"model_type": "mistral3", "text_config": text, "vision_config": {"num_hidden_layers": 24}, "spatial_merge_size": 2, "image_token_index": 10}
    named = from_huggingface(both).left_out
    assert [(one.field, one.kind) for one in named] == [("vision_config", "part")]
    assert "24 layers" in named[0].what
    plan = resolve(MegatronPlan(), TrainingConfig(global_batch=2, micro_batch=1, sequence_length=128), from_huggingface(both), 2)
    assert any("vision_config" in note for note in plan.notes)


@pytest.mark.parametrize(("name", "near"), [("lama", "llama"), ("qwen3-moe", "qwen3_moe"), ("opanelm-x", ""), ("qwen4", ""), ("xlstm", ""), ("nemotron-x", "")])
def test_a_name_alike_is_offered_for_a_slip_alone(name, near):
    with pytest.raises(InputError) as refused:
        from_huggingface({"model_type": name})
    assert f"unknown model_type {name!r}" in str(refused.value)
    assert "experts, active_experts, expert_feed_forward" in str(refused.value)
    assert ("nearest" in str(refused.value)) == bool(near)
    assert near in str(refused.value)


def test_layers_that_need_others_are_not_cut():
    gemma = from_huggingface({"model_type": "gemma3n_text", "num_hidden_layers": 10, "num_kv_shared_layers": 5})
    training = TrainingConfig(global_batch=2, micro_batch=1, sequence_length=128)
    for key in ("pp", "tp", "cp"):
        with pytest.raises(InputError, match=f"nearest that works: {key} = 1"):
            resolve(MegatronPlan(**{key: 2}), training, gemma, 2)
    assert sum(t.elements for t in tensors(gemma, "megatron")) == parameters(gemma).total


def test_sparse_attention_by_hand():
    # One layer of DeepSeek V3.2 against V3: the indexer's products and scores more, the tokens looked at fewer.
    both = [from_huggingface({"model_type": name, "num_hidden_layers": 1, "num_nextn_predict_layers": 0}) for name in ("deepseek_v3", "deepseek_v32")]
    s, k, a, d = 8192, 2048, 128, 128 + 64 + 128
    index = 64 * 128 * 1536 + 7168 * (128 + 64) + 64 * 128 * s / 2
    looked_at = k - k * k / (2 * s)
    v3, v32 = (flops_per_token(arch, s).value for arch in both)
    assert v32 - v3 == 6 * (index + a * d * (looked_at - s / 2))
    assert parameters(both[1]).total - parameters(both[0]).total == 64 * 128 * 1536 + 7168 * (128 + 64) + 2 * 128
