"""Families whose layers differ in size by design: OpenELM (widths that grow with depth), Nemotron-NAS and DeciLM (searched, or "puzzles").

Their modeling code comes with their weights: apple/OpenELM-1_1B (configuration_openelm.py, modeling_openelm.py),
nvidia/Llama-3_3-Nemotron-Super-49B-v1 and Deci/DeciLM-7B (configuration_decilm.py, modeling_decilm.py) on huggingface.co.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenwire.model.architecture import Architecture, Attention, FeedForward, Layer, TokenMixer, Weight
from tokenwire.model.families import family
from tokenwire.model.families.llama import activation, decoder
from tokenwire.model.fields import Fields


def _divisible(value: float, divisor: int) -> int:
    """Return the multiple of ``divisor`` nearest to a width, never more than a tenth below it (configuration_openelm.py, make_divisible)."""
    near = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * value else near


def _multipliers(fields: Fields, name: str, layers: int, default: float) -> list[float]:
    """Return a multiplier for each layer: one for all, two ends of a line through all, or as many as layers."""
    given = fields.value(name)
    if not isinstance(given, list):
        return [fields.number(name, default=default)] * layers
    if len(given) not in (2, layers) or not all(type(x) in (int, float) and 0 < x < 1e6 for x in given):
        raise fields.wrong(name, given, f"must be one positive number, two, or one for each of the {layers} layers")
    if len(given) == layers != 2:
        return [float(x) for x in given]
    return [float(round(x, 2)) for x in np.linspace(given[0], given[1], num=layers, dtype=float)]


@family("openelm")
def openelm(fields: Fields) -> Architecture:
    """OpenELM (Mehta et al. 2024): heads and feed-forward width grow from the first layer to the last."""
    h, d = fields.size("model_dim", "hidden_size", default=2048), fields.size("head_dim", default=128)
    count, groups = fields.layers("num_transformer_layers", "num_hidden_layers", default=12), fields.size("num_gqa_groups", default=1)
    heads = [_divisible(h * m, d * groups) // d for m in _multipliers(fields, "qkv_multipliers", count, 1.0)]
    # What was worked out once is often written beside it; it follows from the multipliers.
    for name, own in (("num_query_heads", heads), ("num_kv_heads", [n // groups for n in heads])):
        if isinstance(fields.value(name), list) and fields.sizes(name) != own:
            raise fields.wrong(name, fields.value(name), "differs from what qkv_multipliers, head_dim and num_gqa_groups give")
    divisor = fields.size("ffn_dim_divisor", default=256)
    widths = [_divisible(h * m, divisor) for m in _multipliers(fields, "ffn_multipliers", count, 4.0)]
    gated, norm = fields.flag("ffn_with_glu", default=True), fields.flag("normalize_qk_projections", default=False)
    act = fields.word("activation_fn_name", default="swish")

    def layer(a: int, f: int) -> Layer:
        attention = Attention(a, a // groups, d, qk_norm="head" if norm else "none", fused_qkv=True)
        return Layer(attention, FeedForward(f, gated, activation="silu" if act == "swish" else act, fused=gated))

    made = {key: layer(*key) for key in set(zip(heads, widths, strict=True))}
    tied = fields.flag("share_input_output_layers", default=False)
    return decoder(
        fields.having({"tie_word_embeddings": tied}), [made[key] for key in zip(heads, widths, strict=True)], vocabulary=32000, hidden=h,
        positions_default=fields.size("max_context_length", default=2048),
    )  # fmt: skip


@family("nemotron-nas", "deci")
def searched(fields: Fields) -> Architecture:
    """Nemotron-NAS and DeciLM: each block with its own KV heads and feed-forward width, or without, or one matrix in place of either."""
    h, a = fields.size("hidden_size", default=4096), fields.size("num_attention_heads", default=32)
    count = fields.layers(default=32)
    if h % a:
        raise fields.wrong("num_attention_heads", a, f"must divide hidden_size = {h}")
    blocks, kv = fields.value("block_configs"), fields.sizes("num_key_value_heads_per_layer")
    if blocks is None and kv is not None:
        blocks = [{"attention": {"n_heads_in_group": a // g if g and a % g == 0 else 0}, "ffn": {}} for g in kv]
    if not isinstance(blocks, list) or len(blocks) != count or not all(isinstance(x, dict) for x in blocks):
        raise fields.wrong("block_configs", blocks, f"must be a list of the {count} layers, each with attention and ffn")
    made: dict[Layer, Layer] = {}
    layers = []
    for index, block in enumerate(blocks):
        part = Fields(block, f"{fields.where} block_configs[{index}]".strip())
        mixer, feed = _searched_attention(part.section("attention"), fields, h, a), _searched_feed_forward(part.section("ffn"), fields, h)
        for name, value in part.unread().items():
            # A kind of block that is not among those below: nothing of it may be guessed.
            if value not in (None, False) and name.rpartition(".")[2] not in _PLAIN:
                raise part.wrong(name, value, "is no field of a block that is known")
        one = Layer(mixer, feed, norms=(mixer is not None) + (feed is not None))
        layers.append(made.setdefault(one, one))
    return decoder(fields, layers, vocabulary=32000, hidden=h)


_PLAIN = {"num_sink_tokens", "unshifted_sink", "use_prefill_window_in_sink_attention", "sparsify", "hidden_act"}
"""Fields of a block that change no size."""


def _linear(h: int) -> TokenMixer:
    return TokenMixer("linear", (Weight("weight", (h, h)),), heads=h)


def _searched_attention(part: Fields, fields: Fields, h: int, a: int) -> Attention | TokenMixer | None:
    linear, nothing = part.flag("replace_with_linear", default=False), part.flag("no_op", default=False)
    group, window = part.optional_size("n_heads_in_group", least=0), part.optional_size("window_length")
    bias = fields.flag("attention_bias", default=False)
    if nothing:
        return None
    if linear:
        return _linear(h)
    if not group or a % group:
        raise part.wrong("n_heads_in_group", group, f"must divide the {a} attention heads")
    return Attention(a, a // group, fields.size("head_dim", default=h // a), qkv_bias=bias, output_bias=bias, window=window)


def _searched_feed_forward(part: Fields, fields: Fields, h: int) -> FeedForward | TokenMixer | None:
    linear, nothing = part.flag("replace_with_linear", default=False), part.flag("no_op", default=False)
    factor: Any = part.number("ffn_mult", default=0.001) if part.has("ffn_mult") else None
    bias, act = fields.flag("mlp_bias", default=False), activation(fields, "silu")
    width = part.optional_size("intermediate_size") or fields.optional_size("intermediate_size")
    if nothing:
        return None
    if linear:
        return _linear(h)
    if factor is not None:
        # Two thirds of it, up to the next multiple of 256 (modeling_decilm.py, _ffn_mult_to_intermediate_size).
        width = -(-int(2 * factor * h / 3) // 256) * 256
    if width is None:
        raise part.wrong("ffn_mult", None, "or intermediate_size must be there")
    return FeedForward(width, gated=True, bias=bias, activation=act)
