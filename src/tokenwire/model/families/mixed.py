"""Hybrids whose other layers are described by their tensors: LFM 2, MiniMax, Kimi Linear, RecurrentGemma, Zamba 2."""

from __future__ import annotations

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    Extra,
    FeedForward,
    Layer,
    StateSpace,
    TokenMixer,
    Weight,
)
from tokenwire.model.families import family
from tokenwire.model.families.deepseek import latent, shared_experts
from tokenwire.model.families.llama import activation, checked, decoder, heads_of
from tokenwire.model.families.state_space import kinds_of
from tokenwire.model.fields import Fields


def _linear(name: str, outputs: int, inputs: int, split: str, bias: bool = False) -> tuple[Weight, ...]:
    """Return a product's weight and, where it has one, its bias, which a row-parallel product holds whole."""
    weight = Weight(f"{name}.weight", (outputs, inputs), split)  # type: ignore[arg-type]
    return (
        (weight, Weight(f"{name}.bias", (outputs,), "column" if split == "column" else "replicated"))
        if bias
        else (weight,)
    )


def _conv(channels: int, kernel: int, bias: bool) -> tuple[Weight, ...]:
    weight = Weight("conv.weight", (channels, 1, kernel), "column")
    return (weight, Weight("conv.bias", (channels,), "column")) if bias else (weight,)


@family("lfm2", "lfm2_moe")
def lfm2(fields: Fields) -> Architecture:
    """LFM 2: short convolutions with a gate before and after, attention in some layers; the larger ones with experts."""
    sparse = fields.word("model_type", default="lfm2") == "lfm2_moe"
    h = fields.size("hidden_size", default=2048 if sparse else 2560)
    attention = heads_of(fields.having({"hidden_size": h}), heads=32, kv_heads=8, qk_norm="head")
    bias = fields.flag("conv_bias", default=False)
    conv = TokenMixer(
        "short convolution",
        (*_conv(h, fields.size("conv_L_cache", default=3), bias), *_linear("in", 3 * h, h, "column", bias), *_linear("out", h, h, "row", bias)),
        heads=h,
    )  # fmt: skip
    attends = None if (named := fields.sizes("full_attn_idxs")) is None else set(named)
    kinds = kinds_of(fields, 32, lambda i: "full_attention" if attends is None or i in attends else "conv")
    width = fields.size("block_ff_dim", "intermediate_size", default=7168 if sparse else 12288)
    if not sparse and fields.flag("block_auto_adjust_ff_dim", default=True):
        multiple = fields.size("block_multiple_of", default=256)
        width = int(fields.number("block_ffn_dim_multiplier", default=1.0) * (2 * width // 3))
        width = -(-width // multiple) * multiple
    dense = FeedForward(width, gated=True, activation="silu")
    part: FeedForward | Experts = dense
    if sparse:
        part = checked(fields, Experts(
            fields.size("num_experts", "num_local_experts", default=32), fields.size("num_experts_per_tok", default=4),
            fields.size("moe_intermediate_size", default=1792), correction_bias=fields.flag("use_expert_bias", default=True),
        ))  # fmt: skip
    first = fields.size("num_dense_layers", default=2, least=0) if sparse else 0
    made = {(m, f): Layer(m, f) for m in (attention, conv) for f in (dense, part)}
    layers = [
        made[conv if kind == "conv" else attention, dense if i < first else part]
        for i, kind in enumerate(kinds)
    ]
    tied = fields.flag("tie_embedding", "tie_word_embeddings", default=True)
    return decoder(
        fields.having({"tie_word_embeddings": tied}), layers, vocabulary=65536, hidden=h, tied=True
    )


@family("minimax", "minimax_text_01")
def minimax(fields: Fields) -> Architecture:
    """MiniMax Text 01: lightning attention (linear) with softmax attention in some layers, experts in each."""
    h = fields.size("hidden_size", default=4096)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=32,
        kv_heads=8,
        window=fields.optional_size("sliding_window", least=0) or None,
    )
    a, d = attention.heads, attention.head_dim
    lightning = TokenMixer(
        "lightning attention",
        (Weight("norm.weight", (a * d,), "column"), *_linear("qkv", 3 * a * d, h, "column"), *_linear("out", h, a * d, "row"),
         *_linear("output_gate", a * d, h, "column")),
        heads=a, state=2 * a * d * d,
    )  # fmt: skip
    softmax = fields.sizes("attn_type_list")
    kinds = kinds_of(
        fields,
        32,
        lambda i: (
            "full_attention"
            if (softmax[i] if softmax and i < len(softmax) else i % 2 == 0)
            else "linear_attention"
        ),
    )
    experts = checked(fields, Experts(
        fields.size("num_local_experts", "num_experts", default=8), fields.size("num_experts_per_tok", default=2),
        fields.size("intermediate_size", default=14336),
    ))  # fmt: skip
    made = {True: Layer(attention, experts), False: Layer(lightning, experts)}
    return decoder(fields, [made[kind == "full_attention"] for kind in kinds], vocabulary=32000, hidden=h)


@family("kimi_linear")
def kimi_linear(fields: Fields) -> Architecture:
    """Kimi Linear: Kimi Delta Attention (a gate by channel) with one layer of latent attention in four, DeepSeek V3's experts."""
    h = fields.size("hidden_size", default=2304)
    inner = fields.section("linear_attn_config")
    a = inner.size("num_heads", default=fields.size("linear_num_heads", default=32))
    d = inner.size("head_dim", default=fields.size("linear_head_dim", default=128))
    kernel = inner.size("short_conv_kernel_size", default=fields.size("linear_conv_kernel_dim", default=4))
    delta = TokenMixer(
        "delta attention",
        (*(w for name in "qkv" for w in _linear(name, a * d, h, "column")), Weight("conv.weight", (3 * a * d, 1, kernel), "column"),
         Weight("forget.dt_bias", (a * d,), "column"), Weight("forget.A_log", (a,), "column"), *_linear("forget.down", d, h, "replicated"),
         *_linear("forget.up", a * d, d, "column"), *_linear("beta", a, h, "column"), *_linear("gate.down", d, h, "replicated"),
         *_linear("gate.up", a * d, d, "column"), Weight("norm.weight", (d,)), *_linear("out", h, a * d, "row")),
        heads=a, state=4 * a * d * d,
    )  # fmt: skip
    null = fields.given("q_lora_rank") and not fields.has("q_lora_rank")
    attention = latent(
        fields.having({} if not null and fields.has("q_lora_rank") else {"q_lora_rank": None}), heads=32, q_rank=None, kv_rank=512, nope=128,
        rope=64, value=128,
    )  # fmt: skip
    full = inner.sizes("full_attn_layers")
    inner.sizes("kda_layers")
    # Layers are counted from 1 in linear_attn_config.
    kinds = kinds_of(
        fields,
        27,
        lambda i: "full_attention" if (i + 1 in full if full else i and i % 4 == 0) else "linear_attention",
    )
    first = fields.size("first_k_dense_replace", default=1, least=0)
    parts = fields.words("mlp_layer_types") or ["dense" if i < first else "sparse" for i in range(len(kinds))]
    if len(parts) != len(kinds):
        raise fields.wrong("mlp_layer_types", parts, f"must name the {len(kinds)} layers")
    width = fields.size("moe_intermediate_size", default=1024)
    experts = checked(fields, Experts(
        fields.size("num_experts", "num_local_experts", "n_routed_experts", default=256),
        fields.size("num_experts_per_token", "num_experts_per_tok", default=8), width,
        shared=shared_experts(fields, width, 1), correction_bias=True,
    ))  # fmt: skip
    dense = FeedForward(fields.size("intermediate_size", default=9216), gated=True, activation="silu")
    made = {(m, f): Layer(m, f) for m in (attention, delta) for f in (dense, experts)}
    layers = [
        made[attention if kind == "full_attention" else delta, experts if part == "sparse" else dense]
        for kind, part in zip(kinds, parts, strict=True)
    ]
    # Nothing is tied, whatever tie_word_embeddings says (modeling_kimi_linear.py, _tied_weights_keys).
    return decoder(
        fields.having({"tie_word_embeddings": False}), layers, vocabulary=163840, hidden=h,
        mtp_layers=fields.size("num_nextn_predict_layers", default=0, least=0, most=64),
    )  # fmt: skip


@family("recurrent_gemma")
def recurrent_gemma(fields: Fields) -> Architecture:
    """RecurrentGemma (Griffin): gated linear recurrences with local attention in every third layer."""
    h = fields.size("hidden_size", default=2560)
    bias = fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}), heads=10, kv_heads=None, qkv_bias=bias, output_bias=True,
        window=fields.size("attention_window_size", default=2048),
    )  # fmt: skip
    a, w = attention.heads, fields.size("lru_width", default=h)
    if w % a:
        raise fields.wrong("lru_width", w, f"must be divisible by the {a} attention heads")
    block = (Weight(f"{name}_gate.{what}", shape, "column", multiplies=what == "weight")
             for name in ("input", "recurrent") for what, shape in (("weight", (a, w // a, w // a)), ("bias", (a, w // a))))  # fmt: skip
    recurrence = TokenMixer(
        "gated recurrence",
        (*_linear("y", w, h, "column", True), *_linear("x", w, h, "column", True), *_conv(w, fields.size("conv1d_width", default=4), True),
         Weight("recurrent", (w,), "column"), *block, *_linear("out", h, w, "row", True)),
        heads=a, state=2 * w,
    )  # fmt: skip
    pattern = fields.words("block_types") or ["recurrent", "recurrent", "attention"]
    wide = FeedForward(
        fields.size("intermediate_size", default=3 * h) // 2,
        gated=True,
        bias=True,
        activation=activation(fields, "gelu"),
    )
    made = {True: Layer(attention, wide), False: Layer(recurrence, wide)}
    layers = [made[pattern[i % len(pattern)] == "attention"] for i in range(fields.layers(default=26))]
    return decoder(fields, layers, vocabulary=256000, hidden=h, tied=True)


@family("zamba2")
def zamba2(fields: Fields) -> Architecture:
    """Zamba 2: Mamba 2 layers; before some of them one of few shared transformer blocks, with adapters of that place, and a projection.

    A shared block takes the activations and the embedding side by side (2h); its tensors belong to the first layer that uses it.
    """
    h = fields.size("hidden_size", default=2560)
    inner, heads = int(fields.number("mamba_expand", default=2) * h), fields.size("n_mamba_heads", default=8)
    if inner % heads:
        raise fields.wrong("n_mamba_heads", heads, f"must divide mamba_expand·hidden_size = {inner}")
    bias = fields.flag("add_bias_linear", default=False)
    mamba = StateSpace(
        2, inner, fields.size("mamba_d_state", default=64), fields.size("mamba_d_conv", default=4), heads=heads, head_dim=inner // heads,
        groups=fields.size("mamba_ngroups", default=1), bias=bias, inner_norms=True,
    )  # fmt: skip
    usual = "m" + ("m" * 5 + "h") * 7 + "mmmmh" + "mmmh" + "mm"
    count = fields.layers(default=54)
    kinds = fields.words("layers_block_type", "layer_types") or [
        "hybrid" if letter == "h" else "mamba" for letter in usual
    ]
    if len(kinds) != count:
        raise fields.wrong("layers_block_type", kinds, f"must name the {count} layers")
    blocks = fields.size("num_mem_blocks", default=1)
    # Untied, each place has a block of its own, with the adapters of all places that would have shared it.
    tied, hybrids = fields.flag("tie_word_embeddings", default=True), kinds.count("hybrid")
    layers, place = [], 0
    for kind in kinds:
        layers.append(
            Layer(
                mamba,
                None,
                1,
                extra=_zamba_block(fields, h, bias, held=place < blocks or not tied, adapters=1 if tied else sum(i % blocks == place % blocks for i in range(hybrids))) if kind == "hybrid" else None,
            )
        )
        place += kind == "hybrid"
    same: dict[Layer, Layer] = {}
    return decoder(
        fields, [same.setdefault(one, one) for one in layers], vocabulary=32000, hidden=h, tied=True,
        positions="rotary" if fields.flag("use_mem_rope", default=False) else "none",
        between_layers="shared transformer blocks and the embedding" if place else "",
    )  # fmt: skip


def _zamba_block(fields: Fields, h: int, bias: bool, *, held: bool, adapters: int) -> Extra:
    a, f = fields.size("num_attention_heads", default=32), fields.size("intermediate_size", default=4 * h)
    g, r = fields.size("num_key_value_heads", default=a), fields.size("adapter_rank", default=128)
    d = fields.size("attention_head_dim", default=2 * h // a)
    rows = [
        ("q", a * d, 2 * h, "column"),
        ("k", g * d, 2 * h, "column"),
        ("v", g * d, 2 * h, "column"),
        ("o", h, a * d, "row"),
    ]
    shared = [
        w for name, outputs, inputs, split in rows for w in _linear(f"shared.{name}", outputs, inputs, split)
    ]
    shared += _linear("shared.gate_up", 2 * f, h, "column", bias) + _linear("shared.down", h, f, "row", bias)
    shared += [Weight("shared.input_norm.weight", (2 * h,)), Weight("shared.feed_forward_norm.weight", (h,))]
    adapted = [("gate_up", h, 2 * f)]
    if fields.flag("use_shared_attention_adapter", default=False):
        adapted += [(name, 2 * h, 2 * h) for name in "qkv"]
    own = [Weight("projection.weight", (h, h))]
    for index in range(adapters):
        for name, inputs, outputs in adapted:
            # A token passes through those of its place alone.
            first, prefix = index == 0, f"adapter.{index}.{name}"
            own += [Weight(f"{prefix}.down.weight", (r, inputs), multiplies=first)]
            own += [Weight(f"{prefix}.up.weight", (outputs, r), "column", multiplies=first)]
    once = [Weight(w.name, w.shape, w.split, w.multiplies, held, w.part) for w in shared]
    return Extra((*once, *own), Attention(a, g, d))
