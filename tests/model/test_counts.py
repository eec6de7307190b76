"""Parameter counts: by hand, against Hugging Face's own models, and published figures."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.model import from_huggingface, parameter_figures, parameters, preset, presets, tensors
from tokenwire.model.families import known_families


def _huggingface() -> dict[str, list[dict]]:
    # Counted on meta tensors of transformers 5.24 and 5.25 (random_configs.py): AutoModelForCausalLM.from_config, each parameter once.
    out = defaultdict(list)
    for line in (Path(__file__).parent / "huggingface_counts.jsonl").read_text().splitlines():
        row = json.loads(line)
        out[row["config"]["model_type"]].append(row)
    return out


HUGGINGFACE = _huggingface()


def test_the_built_in_model_by_hand():
    # h = 256, 8 layers, V = 1000, 256 positions, head tied.
    # layer: qkv 256·768 + 768, out 256·256 + 256, up 256·1024 + 1024, down 1024·256 + 256, norms 4·256
    layer = 256 * 768 + 768 + 256 * 256 + 256 + 256 * 1024 + 1024 + 1024 * 256 + 256 + 4 * 256
    count = parameters(preset("dante", 1000))
    assert (count.embedding, count.position, count.layers, count.head, count.other) == (
        256_000, 65_536, 8 * layer, 0, 512,
    )  # fmt: skip
    assert count.total == count.active == 6_640_128


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("gpt2", 124_439_808),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        # "31.6B", "120.6B", "550B" (NVIDIA 2025, 2026); to the parameter as transformers 5.25 counts them on meta tensors.
        ("nemotron-3-nano", 31_577_937_344),
        ("nemotron-3-super", 120_668_687_360),
        ("nemotron-3-ultra", 549_308_968_960),
    ],
)
def test_published_totals(name, total):
    assert parameters(preset(name)).total == total


def test_counts_of_real_architectures(root):
    rows = json.loads((root / "validation" / "data" / "param_counts.json").read_text())
    assert len(rows) >= 16
    counted = {name: parameters(from_huggingface(row["config"])).total for name, row in rows.items()}
    assert counted == {name: row["params"] for name, row in rows.items()}


@pytest.mark.parametrize("family", sorted(HUGGINGFACE))
def test_a_family_counts_as_hugging_face(family):
    for row in HUGGINGFACE[family]:
        assert parameters(from_huggingface(row["config"])).total == row["parameters"], row["config"]


def test_every_family_is_compared():
    # kimi_k2 is deepseek_v3 by another name, phi4 is phi3, the others are wrappers of a text model; tests/model/test_by_layer.py has two.
    named = {"kimi_k2", "phi4", "llama4", "gemma3n", "gemma4", "qwen3_5", "qwen3_5_moe"}
    assert set(known_families()) - set(HUGGINGFACE) <= named | {"arctic", "openelm", "nemotron-nas", *(config["model_type"] for config, _ in REMOTE)}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("family", sorted(HUGGINGFACE))
def test_a_random_configuration_counts_as_transformers(family):
    pytest.importorskip("transformers")
    from tests.model.random_configs import drawn

    rows = drawn(20261207, 1, family)
    assert rows
    for config, count, saved in rows:
        assert parameters(from_huggingface(config)).total == count, config
        # As transformers itself would save it.
        assert parameters(from_huggingface(saved)).total == count, saved


REMOTE = [
    # internlm2-7b, Baichuan2-7B and 13B, chatglm3-6b: as their modeling code builds them from their config.json on huggingface.co.
    ({"model_type": "internlm2", "vocab_size": 92544, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "bias": False}, 7_737_708_544),
    ({"model_type": "baichuan", "vocab_size": 125696, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
      "num_attention_heads": 32, "max_position_embeddings": 4096}, 7_505_973_248),
    ({"model_type": "baichuan", "vocab_size": 125696, "hidden_size": 5120, "intermediate_size": 13696, "num_hidden_layers": 40,
      "num_attention_heads": 40, "model_max_length": 4096}, 13_896_668_160),
    ({"model_type": "chatglm", "padded_vocab_size": 65024, "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28, "kv_channels": 128,
      "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True}, 6_243_584_000),
    # Phi-3-small-8k-instruct: 7.39 B; MiniMax-Text-01: 456 B, as huggingface.co counts their tensors.
    ({"model_type": "phi3small", "vocab_size": 100352, "hidden_size": 4096, "ff_intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8}, 7_392_272_384),
    ({"model_type": "minimax_text_01", "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 9216, "num_hidden_layers": 80, "num_local_experts": 32, "vocab_size": 200064, "attn_type_list": [*[0] * 7, 1] * 10},
     456_089_655_296),
    # A DeciLM by hand: KV heads by layer, the rest as Llama.
    ({"model_type": "deci", "num_hidden_layers": 2, "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
      "num_key_value_heads_per_layer": [4, 1], "tie_word_embeddings": False},
     2 * (2 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 64 * 64 + 2 * 64 * 16 + 2 * 100 * 64 + 64),
]  # fmt: skip


@pytest.mark.parametrize(("config", "total"), REMOTE)
def test_families_whose_code_comes_with_their_weights(config, total):
    assert parameters(from_huggingface(config)).total == total


def test_arctic_by_hand():
    # Snowflake 2024: "480B", of which 17B are active: 10B dense and two of 128 experts of 3.66B
    count = parameters(
        from_huggingface(
            {"model_type": "arctic", "vocab_size": 32000, "hidden_size": 7168, "intermediate_size": 4864, "num_hidden_layers": 35,
             "num_attention_heads": 56, "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 2,
             "moe_layer_frequency": 1, "parallel_attn_mlp_res": True}
        )
    )  # fmt: skip
    expert, dense, attention = 3 * 7168 * 4864, 3 * 7168**2, 2 * 7168**2 + 2 * 7168 * 1024
    layer = 128 * expert + 128 * 7168 + dense + attention + 3 * 7168
    assert count.total == 35 * layer + 2 * 32000 * 7168 + 7168
    assert round(count.total / 1e9) == 479
    assert round(35 * expert / 1e9, 2) == 3.66
    assert round(count.active / 1e9) == 17


def test_active_parameters_leave_the_idle_experts_out():
    # Mixtral 8x7B: 6 of 8 experts of 3·4096·14336 are idle in each of 32 layers.
    count = parameters(preset("mixtral-8x7b"))
    assert count.total - count.active == 32 * 6 * 3 * 4096 * 14336
    # "671B total, 37B active" (DeepSeek-AI 2024), "235B, 22B active" (Qwen Team 2025), "1T, 32B" (Kimi Team 2025)
    assert round(parameters(preset("deepseek-v3")).active / 1e9) == 38
    assert round(parameters(preset("qwen3-235b-a22b")).active / 1e9) == 22
    assert round(parameters(preset("kimi-k2")).active / 1e9) == 33


def test_next_token_layers_are_apart():
    with_mtp = parameters(preset("deepseek-v3"))
    h = 7168
    # One more layer with experts, its three norms, and the projection of 2h to h.
    assert with_mtp.mtp == 11_507_286_016 + 3 * h + 2 * h * h
    assert sum(t.elements for t in tensors(preset("deepseek-v3"))) == with_mtp.total + with_mtp.mtp


@pytest.mark.parametrize("name", presets())
def test_presets_add_up(name):
    arch = preset(name, 1000)
    count = parameters(arch)
    assert count.total == sum(
        t.elements for t in tensors(arch) if t.layer is None or t.layer < len(arch.layers)
    )
    assert count.total == sum(figure.value for figure in parameter_figures(arch))
    assert 0 < count.active <= count.total
    assert arch.name == name


@given(
    st.sampled_from(sorted(HUGGINGFACE)),
    st.integers(1, 4),
    st.sampled_from([32, 64, 96]),
    st.integers(1, 2000),
    st.booleans(),
)
def test_counts_of_made_up_models_add_up(family, layers, hidden, vocabulary, tied):
    from tokenwire.errors import InputError

    config = dict(HUGGINGFACE[family][0]["config"])
    keys = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"} & set(config) or {"num_hidden_layers"}
    config |= dict.fromkeys(keys, layers) | {"vocab_size": vocabulary, "tie_word_embeddings": tied}
    try:
        arch = from_huggingface(config)
    except InputError:
        return
    whole, count = tensors(arch), parameters(arch)
    assert sum(t.elements for t in whole) == count.total + count.mtp
    assert len({t.name for t in whole}) == len(whole)
    # Megatron fuses and sorts the same weights; which products and norms have biases follows its own options.
    weights = [sum(t.elements for t in each if not t.name.endswith(".bias")) for each in (whole, tensors(arch, "megatron"))]
    assert weights[0] == weights[1]
