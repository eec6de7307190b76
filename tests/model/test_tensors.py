"""How tensor parallelism cuts each tensor, and the two layouts."""

from __future__ import annotations

import pytest

from tokenwire.model import Architecture, from_huggingface, preset, presets, tensors


def _cuts(arch: Architecture, layer: int | None = 0) -> dict[str, tuple[str, int | None]]:
    return {
        t.name.removeprefix(f"layers.{layer}."): (t.split, t.split_dim)
        for t in tensors(arch)
        if t.layer == layer
    }


COLUMN, ROW, WHOLE = ("column", 0), ("row", 1), ("replicated", None)


def test_gpt2_is_cut_as_megatron_cuts_it():
    assert _cuts(preset("gpt2")) == {
        "input_norm.weight": WHOLE, "input_norm.bias": WHOLE,
        "attention.qkv.weight": COLUMN, "attention.qkv.bias": COLUMN,
        "attention.output.weight": ROW, "attention.output.bias": WHOLE,
        "feed_forward_norm.weight": WHOLE, "feed_forward_norm.bias": WHOLE,
        "feed_forward.up.weight": COLUMN, "feed_forward.up.bias": COLUMN,
        "feed_forward.down.weight": ROW, "feed_forward.down.bias": WHOLE,
    }  # fmt: skip
    assert _cuts(preset("gpt2"), None) == {
        "embedding.weight": ("vocabulary", 0), "position.weight": WHOLE, "final_norm.weight": WHOLE, "final_norm.bias": WHOLE,
    }  # fmt: skip


def test_latent_attention_keeps_its_down_projections_whole():
    cuts = _cuts(preset("deepseek-v3"), 3)
    assert cuts["attention.q_down.weight"] == cuts["attention.kv_down.weight"] == WHOLE
    assert cuts["attention.q_norm.weight"] == cuts["attention.kv_norm.weight"] == WHOLE
    assert cuts["attention.q_up.weight"] == cuts["attention.kv_up.weight"] == COLUMN
    assert cuts["attention.output.weight"] == ROW
    assert cuts["router.weight"] == WHOLE
    assert cuts["experts.gate.weight"] == cuts["experts.up.weight"] == ("column", 1)
    assert cuts["experts.down.weight"] == ("row", 2)
    assert cuts["shared_experts.gate.weight"] == COLUMN
    assert cuts["shared_experts.down.weight"] == ROW


def test_biases_sinks_and_norms_of_experts():
    cuts = _cuts(preset("gpt-oss-20b"))
    assert cuts["attention.sinks"] == COLUMN
    assert cuts["router.bias"] == WHOLE
    assert cuts["experts.up.bias"] == ("column", 1)
    assert cuts["experts.down.bias"] == WHOLE
    assert cuts["attention.output.bias"] == WHOLE
    assert _cuts(preset("qwen3-8b"))["attention.q_norm.weight"] == WHOLE


def test_state_space_blocks_are_cut_by_channel_and_head():
    cuts = _cuts(preset("mamba2-2.7b"))
    for name in ("in.weight", "conv.weight", "conv.bias", "A_log", "D", "dt_bias", "norm.weight"):
        assert cuts[f"mamba.{name}"] == COLUMN
    assert cuts["mamba.out.weight"] == ROW
    first = _cuts(preset("mamba-2.8b"))
    assert first["mamba.x.weight"] == ROW
    assert first["mamba.dt.weight"] == COLUMN


@pytest.mark.parametrize("name", presets())
def test_cuts_divide(name):
    """A cut dimension holds heads, channels or vocabulary: two ranks can share it (vocabularies are padded first)."""
    for tensor in tensors(preset(name, 1000), "megatron"):
        assert (tensor.split_dim is None) == (tensor.split == "replicated")
        if tensor.split_dim is not None and tensor.split != "vocabulary":
            assert tensor.shape[tensor.split_dim] % 2 == 0, tensor


def test_the_megatron_layout_fuses():
    names = [
        t.name.removeprefix("layers.0.") for t in tensors(preset("llama-3.1-8b"), "megatron") if t.layer == 0
    ]
    # attention.py registers linear_proj before linear_qkv; mlp.py linear_fc1 before linear_fc2.
    assert names == [
        "input_norm.weight", "attention.output.weight", "attention.qkv.weight", "feed_forward_norm.weight",
        "feed_forward.gate_up.weight", "feed_forward.down.weight",
    ]  # fmt: skip
    shapes = {t.name: t.shape for t in tensors(preset("llama-3.1-8b"), "megatron")}
    # q 32·128 rows, k and v 8·128 each; gate and up 14336 each
    assert shapes["layers.0.attention.qkv.weight"] == (4096 + 2 * 1024, 4096)
    assert shapes["layers.0.feed_forward.gate_up.weight"] == (2 * 14336, 4096)


def test_opt_projects_a_narrow_embedding():
    arch = from_huggingface(
        {
            "model_type": "opt",
            "hidden_size": 64,
            "word_embed_proj_dim": 32,
            "num_attention_heads": 4,
            "ffn_dim": 128,
            "num_hidden_layers": 1,
        }
    )
    shapes = {t.name: t.shape for t in tensors(arch)}
    assert shapes["embedding.project_in.weight"] == (64, 32)
    assert shapes["position.weight"] == (2050, 64)
