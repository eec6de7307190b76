"""Gemma 3n and 4: keys and values of earlier layers, inputs by layer, other heads in the layers that look at all tokens.

Gemma 3n also carries several streams of activations (AltUp) with low-rank branches beside each layer (LAuReL).
"""

from __future__ import annotations

from dataclasses import replace

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    Extra,
    FeedForward,
    Layer,
    LeftOut,
    Weight,
)
from tokenwire.model.families import family
from tokenwire.model.families.llama import activation, checked, decoder, heads_of
from tokenwire.model.families.state_space import kinds_of
from tokenwire.model.fields import Fields

_BETWEEN = "inputs by layer or keys and values of an earlier layer"


def _by_layer_inputs(
    h: int, width: int, rows: int, count: int
) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """Return the tensors of inputs by layer: those before the layers, and those of each layer but its norm."""
    if not width:
        return (), ()
    outside = (
        Weight("per_layer.weight", (rows, count * width), "vocabulary", part="embedding"),
        Weight("per_layer_projection.weight", (count * width, h), part="embedding"),
        Weight("per_layer_norm.weight", (width,), part="embedding"),
    )
    return outside, (
        Weight("per_layer_gate.weight", (width, h)),
        Weight("per_layer_projection.weight", (h, width)),
    )


def _attentions(
    fields: Fields, attention: Attention, kinds: list[str], shared: int, full: Attention
) -> list[Attention]:
    """Return the attention of each layer; the last ``shared`` take keys and values from an earlier one."""
    window = fields.size("sliding_window", default=512)
    each = [full if kind == "full_attention" else replace(attention, window=window) for kind in kinds]
    first = len(kinds) - shared
    if first < 0 or (0 < first < len(kinds) and set(kinds[:first]) != set(kinds)):
        raise fields.wrong(
            "num_kv_shared_layers",
            shared,
            f"must leave one layer of each kind of the {len(kinds)} layers its own keys and values",
        )
    return [one if i < first else replace(one, kv_weights="none") for i, one in enumerate(each)]


@family("gemma3n_text", "gemma3n")
def gemma3n(fields: Fields) -> Architecture:
    """Gemma 3n: AltUp, LAuReL, inputs by layer, feed-forward widths by layer."""
    h = fields.size("hidden_size", default=2048)
    kinds = kinds_of(fields, 35, lambda i: "sliding_attention" if (i + 1) % 5 else "full_attention")
    count, bias = len(kinds), fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=8,
        kv_heads=2,
        head_dim=256,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
    )
    parts = _attentions(
        fields, attention, kinds, fields.size("num_kv_shared_layers", default=15, least=0), attention
    )
    widths = fields.sizes_by_layer("intermediate_size", count, default=16384)
    width = fields.size("hidden_size_per_layer_input", default=256, least=0)
    rows = fields.size("vocab_size_per_layer_input", default=262144)
    outside, inside = _by_layer_inputs(h, width, rows, count)
    n, rank = fields.size("altup_num_inputs", default=4), fields.size("laurel_rank", default=64)
    streams = tuple(
        Weight(f"altup.{what}.{i}.weight", (h, h), part=part)
        for part, what in (("embedding", "in"), ("head", "out"))
        for i in range(n - 1)
    )
    extra = Extra((
        Weight("altup.correct_scale", (h,)), Weight("altup.correction.weight", (n, n)), Weight("altup.prediction.weight", (n * n, n)),
        Weight("altup.router.weight", (n, h)), Weight("altup.router_norm.weight", (h,)), Weight("laurel.left.weight", (rank, h)),
        Weight("laurel.right.weight", (h, rank)), Weight("laurel.norm.weight", (h,)), *inside,
    ))  # fmt: skip
    act = activation(fields, "gelu")
    made = {
        (part, f): Layer(part, FeedForward(f, gated=True, activation=act), norms=5, extra=extra)
        for part, f in set(zip(parts, widths, strict=True))
    }
    streams_left = LeftOut(
        "altup_num_inputs",
        "effect",
        f"time and memory of {n} streams of activations (AltUp) are those of one",
    )
    return decoder(
        fields, [made[key] for key in zip(parts, widths, strict=True)], vocabulary=262400, hidden=h, tied=True,
        extra=(*outside, *streams), between_layers=_BETWEEN, left_out=(streams_left,),
    )  # fmt: skip


@family("gemma4_text", "gemma4")
def gemma4(fields: Fields) -> Architecture:
    """Gemma 4: wider heads (and fewer KV heads) where all tokens are seen, values that are the keys, experts beside the dense part."""
    h = fields.size("hidden_size", default=2304)
    kinds = kinds_of(fields, 30, lambda i: "sliding_attention" if (i + 1) % 6 else "full_attention")
    # The last layer sees all tokens, whatever is written (configuration_gemma4.py).
    kinds[-1] = "full_attention"
    count, bias = len(kinds), fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=8,
        kv_heads=4,
        head_dim=256,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
    )
    same = fields.flag("attention_k_eq_v", default=False)
    # Where fields are given by layer, they say it (configuration_gemma4.py).
    wide = attention.head_dim if fields.has("per_layer_config") else fields.size("global_head_dim", default=512)
    full = replace(attention, head_dim=wide, kv_weights="keys" if same else "both")
    if same and fields.has("num_global_key_value_heads"):
        full = replace(full, kv_heads=fields.size("num_global_key_value_heads"))
    shared = fields.size("num_kv_shared_layers", default=0, least=0)
    parts = _attentions(fields, attention, kinds, shared, full)
    outside, inside = _by_layer_inputs(
        h,
        fields.size("hidden_size_per_layer_input", default=256, least=0),
        fields.size("vocab_size_per_layer_input", default=262144),
        count,
    )
    width, act = fields.size("intermediate_size", default=9216), activation(fields, "gelu")
    dense = FeedForward(width, gated=True, activation=act)
    doubled = replace(dense, width=2 * width) if fields.flag("use_double_wide_mlp", default=False) else dense
    many = fields.flag("enable_moe_block", default=False)
    norms = 4 + bool(inside) + 3 * many

    def layer(part: Attention, own: bool) -> Layer:
        feed = dense if own else doubled
        if not many:
            return Layer(part, feed, norms, extra=Extra(inside) if inside else None)
        experts = checked(fields, Experts(
            fields.size("num_experts"), fields.size("top_k_experts"), fields.size("moe_intermediate_size"), shared=feed, activation=act
        ))  # fmt: skip
        router = (
            Weight("router.scale", (h,), part="router"),
            Weight("router.scale_by_expert", (experts.count,), part="router"),
        )
        return Layer(part, experts, norms, extra=Extra((*inside, *router)))

    made: dict[tuple[Attention, bool], Layer] = {}
    layers = [
        made.setdefault(key, layer(*key)) for key in ((part, part.kv_weights != "none") for part in parts)
    ]
    return decoder(
        fields, layers, vocabulary=262144, hidden=h, tied=True, extra=outside,
        between_layers=_BETWEEN if inside or shared else "",
    )  # fmt: skip
