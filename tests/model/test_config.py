"""The [model] section: presets, fields, and every wrong input as one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.model import (
    ModelConfig,
    architecture,
    families,
    from_fields,
    from_huggingface,
    parameters,
    preset,
    presets,
    tensors,
)
from tokenwire.model.architecture import StateSpace
from tokenwire.model.families import family, known_families


def _read(**values):
    return read_section(ModelConfig, values, where="[model]")


def test_nothing_is_the_built_in_model():
    config = _read()
    assert config.takes_vocabulary
    arch = architecture(config, 1000)
    assert (arch.name, arch.vocabulary_size, len(arch.layers), arch.tied_embeddings) == (
        "dante",
        1000,
        8,
        True,
    )


def test_who_takes_the_vocabulary_of_the_tokenizer():
    assert not _read(preset="gpt2").takes_vocabulary
    assert not _read(config="config.json").takes_vocabulary
    assert _read(hidden_size=64).takes_vocabulary
    assert not _read(hidden_size=64, vocabulary_size=10).takes_vocabulary
    with pytest.raises(InputError, match="takes its vocabulary from the tokenizer"):
        architecture(_read())


def test_fields_by_hand():
    arch = from_fields(
        _read(
            hidden_size=64, layers=3, heads=4, kv_heads=2, gated=True, feed_forward=96, bias=False, norm="rms",
            positions="rotary", tied_embeddings=False, vocabulary_size=100,
        )
    )  # fmt: skip
    # layer: q 64·64, k and v 32·64 each, out 64·64, gate, up, down 3·64·96, two norms of 64
    layer = 64 * 64 * 2 + 2 * 32 * 64 + 3 * 64 * 96 + 128
    assert parameters(arch).total == 3 * layer + 2 * 100 * 64 + 64


def test_fields_describe_llama_8b():
    arch = from_fields(
        _read(
            hidden_size=4096, layers=32, heads=32, kv_heads=8, feed_forward=14336, gated=True, bias=False, norm="rms",
            positions="rotary", tied_embeddings=False, vocabulary_size=128256, activation="silu",
        )
    )  # fmt: skip
    assert parameters(arch).total == 8_030_261_248


def test_fields_describe_deepseek_v3():
    arch = from_fields(
        _read(
            hidden_size=7168, layers=61, heads=128, feed_forward=18432, gated=True, bias=False, norm="rms", positions="rotary",
            tied_embeddings=False, vocabulary_size=129280, experts=256, active_experts=8, expert_feed_forward=2048,
            shared_experts=1, dense_layers=3, q_lora_rank=1536, kv_lora_rank=512, mtp_layers=1,
        )
    )  # fmt: skip
    assert parameters(arch).total == 671_026_404_352
    assert parameters(arch).mtp == parameters(preset("deepseek-v3")).mtp


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"preset": "gpt-2"}, "unknown model preset 'gpt-2': known are .*; nearest that works: gpt2"),
        ({"preset": "gpt2", "config": "x"}, "preset and config exclude each other"),
        ({"preset": "gpt2", "layers": 2}, "layers cannot stand beside preset"),
        ({"layers": 2}, "layers describes a model by its fields, which also needs hidden_size"),
        ({"hidden_size": 0}, "hidden_size = 0"),
        ({"hidden_size": -5}, "hidden_size = -5"),
        ({"hidden_size": 2**60}, "hidden_size ="),
        ({"hidden_size": "big"}, "hidden_size = 'big'"),
        ({"hidden_size": 64, "layers": 10**9}, "layers = 1000000000"),
        (
            {"hidden_size": 64, "heads": 5},
            "heads = 5: must divide hidden_size = 64; nearest that works: heads = 4",
        ),
        (
            {"hidden_size": 64, "heads": 4, "kv_heads": 3},
            "kv_heads = 3: must divide heads = 4; nearest that works: kv_heads = 2",
        ),
        ({"hidden_size": 64, "active_experts": 2}, "experts is missing"),
        ({"hidden_size": 64, "experts": 2, "active_experts": 3}, "must not exceed experts = 2"),
        ({"hiden_size": 64}, "unknown key 'hiden_size'.*nearest that works: hidden_size"),
    ],
)
def test_wrong_sections_are_one_line(values, said):
    with pytest.raises(InputError, match=said) as error:
        architecture(_read(**values), 100)
    assert "\n" not in str(error.value)


def test_preset_names_ignore_case():
    assert preset("GPT2") == preset("gpt2")
    assert {"dante", "gpt2-xl", "gpt3-175b", "llama-2-70b", "mixtral-8x7b", "deepseek-v3"} <= set(presets())


def test_an_unknown_family_says_how_to_describe_it():
    with pytest.raises(
        InputError, match=r"unknown model_type 'lama'.*hidden_size.*nearest that works: model_type 'llama'"
    ):
        from_huggingface({"model_type": "lama"})
    with pytest.raises(InputError, match="model_type is missing"):
        from_huggingface({"hidden_size": 4})


def test_a_family_is_registered_from_outside(monkeypatch):
    # What is registered here is gone after the test.
    monkeypatch.setattr(families, "_READERS", dict(families._READERS))

    @family("outsider")
    def outsider(fields):
        return preset("gpt2")

    assert from_huggingface({"model_type": "outsider"}) == preset("gpt2")


def test_text_parts_of_models_of_images():
    text = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": 16, "num_key_value_heads": 2,
            "intermediate_size": 96, "vocab_size": 50}  # fmt: skip
    inside = from_huggingface({"model_type": "gemma3", "text_config": text})
    assert inside.layers == from_huggingface({"model_type": "gemma3_text", **text}).layers
    named = from_huggingface({"model_type": "llava", "text_config": {"model_type": "llama", **text}})
    assert named.family == "llama"


_ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), st.just(10**400),
)  # fmt: skip
_KEYS = [
    "hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "intermediate_size", "tie_word_embeddings", "layer_types", "sliding_window", "rope_parameters", "rope_theta", "num_experts",
    "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "n_routed_experts", "mlp_only_layers", "n_groups", "expand",
    "mamba_d_head", "time_step_rank", "hybrid_override_pattern", "layers_block_type", "text_config", "q_lora_rank", "max_position_embeddings",
    "hidden_act", "attn_config", "mlp_layer_types", "attn_layer_indices", "n_head", "d_model", "moe_layers", "n_shared_experts", "_name_or_path",
]  # fmt: skip


@given(st.sampled_from(known_families()), st.dictionaries(st.sampled_from(_KEYS), _ODD, max_size=5))
def test_odd_values_give_an_architecture_or_one_line(kind, values):
    said = ""
    try:
        assert parameters(from_huggingface({"model_type": kind, **values})).total > 0
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 600


def test_a_pattern_is_a_layer_a_letter():
    arch = from_fields(
        _read(hidden_size=1024, heads=16, layer_pattern="M-M*E", experts=4, vocabulary_size=10)
    )
    kinds = [(type(x.mixer).__name__, type(x.feed_forward).__name__) for x in arch.layers]
    none = "NoneType"
    assert kinds == [
        ("StateSpace", none),
        (none, "FeedForward"),
        ("StateSpace", none),
        ("Attention", none),
        (none, "Experts"),
    ]
    # 2·1024/64 heads of 64; every layer has one norm.
    assert arch.layers[0].mixer.heads == 32
    assert {layer.norms for layer in arch.layers} == {1}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"layer_pattern": "M+", "state_groups": 1}, "layer_pattern has '\\+'"),
        ({"layer_pattern": "ME", "state_groups": 1}, "experts is missing"),
        ({"layer_pattern": "M*", "layers": 3}, "nearest that works: layers = 2"),
        ({"layer_pattern": "M", "state_heads": 3}, "nearest that works: state_groups = 3"),
        ({"layer_pattern": "M", "state_head_dim": 100}, "must divide 2·hidden_size = 128"),
        ({"layer_pattern": ""}, "layer_pattern"),
        ({"shared_feed_forward": 8}, "experts is missing"),
        ({"expert_latent_size": 8}, "experts is missing"),
        ({"mtp_pattern": "*"}, "mtp_layers is missing"),
        ({"mtp_pattern": "X", "mtp_layers": 1, "state_groups": 1}, "its letters are"),
    ],
)
def test_a_pattern_that_cannot_be_is_one_line(fields, words):
    with pytest.raises(InputError, match=words) as caught:
        architecture(_read(hidden_size=64, vocabulary_size=10, **fields))
    assert "\n" not in str(caught.value)


def test_modules_of_further_tokens_by_a_pattern_of_their_own():
    # Nemotron 3 Super by its fields is its preset.
    super_ = preset("nemotron-3-super")
    letters = "".join(
        "M" if isinstance(x.mixer, StateSpace) else "*" if x.mixer else "E" for x in super_.layers
    )
    arch = from_fields(
        _read(
            hidden_size=4096, layer_pattern=letters, heads=32, kv_heads=2, head_dim=128, state_heads=128, experts=512,
            active_experts=22, expert_feed_forward=2688, shared_feed_forward=5376, expert_latent_size=1024, norm="rms",
            bias=False, tied_embeddings=False, positions="none", vocabulary_size=131_072, mtp_layers=1, mtp_pattern="*E",
        )
    )  # fmt: skip
    assert parameters(arch) == parameters(super_)
    # eh_proj 2·4096·4096; attention 4096·(4096 + 2·256 + 4096); experts 512·2·1024·2688; router 512·4096; latent 2·4096·1024;
    # shared 2·4096·5376; norms: 3 of the module, one a layer
    block = (
        4096 * (4096 + 512 + 4096) + 512 * 2 * 1024 * 2688 + 512 * 4096 + 2 * 4096 * 1024 + 2 * 4096 * 5376
    )
    assert parameters(arch).mtp == 2 * 4096 * 4096 + block + 5 * 4096
    names = [tensor.name for tensor in tensors(arch)]
    assert len(set(names)) == len(names)


def test_a_shared_expert_of_its_own_width():
    arch = from_fields(
        _read(hidden_size=64, experts=4, expert_feed_forward=32, shared_feed_forward=48, vocabulary_size=10)
    )
    assert arch.layers[0].feed_forward.shared.width == 48


def test_text_configs_inside_each_other_are_one_line():
    deep = {"model_type": "gpt2"}
    for _ in range(2000):
        deep = {"model_type": "llava", "text_config": deep}
    with pytest.raises(InputError, match="nested too deeply") as error:
        from_huggingface(deep)
    assert "\n" not in str(error.value)
