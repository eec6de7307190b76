"""Llama and its many relatives: pre-norm with RMSNorm, rotary positions, grouped KV heads, gated feed-forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, Layer, Norm
from tokenwire.model.families import family
from tokenwire.model.fields import Fields

RMS = Norm("rms")
LAYER_NORM = Norm("layer", bias=True)


def heads_of(
    fields: Fields, *, heads: int, kv_heads: int | None, head_dim: int | None = None, **options: Any
) -> Attention:
    """Return the attention of a configuration; a missing KV count means as many as queries, a missing d means h/a."""
    h = fields.size("hidden_size", "n_embd", "d_model", default=4096)
    a = fields.size("num_attention_heads", "n_head", default=heads)
    g = fields.size("num_key_value_heads", default=kv_heads or a)
    d = fields.size("head_dim", default=head_dim or max(h // a, 1))
    if not fields.has("head_dim") and head_dim is None and h % a:
        raise fields.wrong(
            "hidden_size", h, f"must be divisible by the {a} attention heads where no head_dim is given"
        )
    if a % g:
        raise fields.wrong("num_key_value_heads", g, f"must divide the {a} attention heads")
    return Attention(a, g, d, **options)


def windows(fields: Fields, count: int, attention: Attention, default: int | None = None) -> list[Attention]:
    """Return the attention of each layer, where ``layer_types`` says which ones look at a window only."""
    kinds, window = fields.words("layer_types"), fields.optional_size("sliding_window", least=0) or default
    if kinds is None or window is None:
        return [attention] * count
    if len(kinds) != count:
        raise fields.wrong("layer_types", kinds, f"must name the {count} layers")
    local = replace(attention, window=window)
    return [local if kind in ("sliding_attention", "chunked_attention") else attention for kind in kinds]


def decoder(
    fields: Fields,
    layers: Sequence[Layer],
    *,
    vocabulary: int,
    hidden: int,
    norm: Norm = RMS,
    tied: bool = False,
    **options: Any,
) -> Architecture:
    """Return the architecture of a decoder with the usual keys for everything around its layers."""
    return Architecture(
        name=fields.word("_name_or_path", "name", default="") or fields.word("model_type", default="model"),
        family=fields.word("model_type", default="llama"),
        vocabulary_size=fields.size("vocab_size", default=vocabulary),
        hidden_size=hidden,
        layers=tuple(layers),
        norm=norm,
        max_positions=fields.size(
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            default=options.pop("positions_default", 2048),
        ),
        tied_embeddings=fields.flag("tie_word_embeddings", default=tied),
        rope_theta=rope_theta(fields),
        **options,
    )


def rope_theta(fields: Fields) -> float:
    """Return the base of the rotary angles: a key of its own in older files, in ``rope_parameters`` since."""
    rope = fields.value("rope_parameters")
    inside = Fields(rope if isinstance(rope, dict) else {}, fields.where)
    return (inside if inside.has("rope_theta") else fields).number(
        "rope_theta", "rotary_emb_base", default=10_000.0
    )


# Defaults: h, f, L, a, g, V, tied, and what the layers have.
_DENSE: dict[str, dict[str, Any]] = {
    "llama": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 32000, "bias": "attention_bias", "mlp_bias": "mlp_bias"},
    "mistral": {"h": 4096, "f": 14336, "L": 32, "a": 32, "g": 8, "V": 32000, "window": 4096},
    "ministral": {"h": 4096, "f": 14336, "L": 32, "a": 32, "g": 8, "V": 32000, "window": 4096},
    "ministral3": {"h": 4096, "f": 14336, "L": 34, "a": 32, "g": 8, "d": 128, "V": 131072},
    "qwen2": {"h": 4096, "f": 22016, "L": 32, "a": 32, "g": 32, "V": 151936, "qkv_bias": True},
    "qwen3": {"h": 4096, "f": 22016, "L": 32, "a": 32, "g": 32, "d": 128, "V": 151936, "bias": "attention_bias", "qk_norm": "head"},
    "granite": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 32000, "bias": "attention_bias", "mlp_bias": "mlp_bias"},
    "smollm3": {"h": 2048, "f": 11008, "L": 36, "a": 16, "g": 4, "V": 128256, "tied": True, "bias": "attention_bias", "mlp_bias": "mlp_bias"},
    "helium": {"h": 2560, "f": 7040, "L": 24, "a": 20, "g": 20, "d": 128, "V": 48000, "bias": "attention_bias", "mlp_bias": "mlp_bias", "o_bias": False},
    "arcee": {"h": 2560, "f": 18432, "L": 32, "a": 32, "V": 32000, "gated": False, "act": "relu2", "bias": "attention_bias", "mlp_bias": "mlp_bias"},
    "seed_oss": {"h": 4096, "f": 27648, "L": 64, "a": 80, "g": 8, "d": 128, "V": 155136, "bias": "attention_bias", "bias_default": True, "o_bias": "attention_out_bias", "mlp_bias": "mlp_bias"},
    "exaone4": {"h": 4096, "f": 16384, "L": 32, "a": 32, "g": 32, "V": 102400, "qk_norm": "head"},
    "ernie4_5": {"h": 1024, "f": 3072, "L": 18, "a": 16, "g": 2, "d": 128, "V": 103424, "tied": True, "bias": "use_bias", "mlp_bias": "use_bias"},
    "hunyuan_v1_dense": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 290943, "bias": "attention_bias", "qk_norm": "head"},
    "internlm3": {"h": 4096, "f": 10240, "L": 48, "a": 32, "g": 2, "d": 128, "V": 128512, "bias": ("qkv_bias", "attention_bias"), "mlp_bias": ("bias", "mlp_bias")},
    "gemma": {"h": 3072, "f": 24576, "L": 28, "a": 16, "g": 16, "d": 256, "V": 256000, "tied": True, "bias": "attention_bias", "act": "gelu"},
    "gemma2": {"h": 2304, "f": 9216, "L": 26, "a": 8, "g": 4, "d": 256, "V": 256000, "tied": True, "bias": "attention_bias", "act": "gelu", "norms": 4, "window": 4096},
    "vaultgemma": {"h": 2304, "f": 9216, "L": 26, "a": 8, "g": 4, "d": 256, "V": 256000, "tied": True, "bias": "attention_bias", "act": "gelu", "window": 4096},
    "gemma3_text": {"h": 2304, "f": 9216, "L": 26, "a": 8, "g": 4, "d": 256, "V": 262208, "tied": True, "bias": "attention_bias", "act": "gelu", "norms": 4, "window": 4096, "qk_norm": "head"},
    "olmo2": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 50304, "bias": "attention_bias", "qk_norm": "full"},
    "olmo3": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 50304, "bias": "attention_bias", "qk_norm": "full", "window": 4096},
    "apertus": {"h": 4096, "f": 14336, "L": 32, "a": 32, "V": 131072, "gated": False, "act": "xielu", "bias": "attention_bias", "qk_norm": "head"},
    "glm": {"h": 4096, "f": 13696, "L": 40, "a": 32, "g": 2, "d": 128, "V": 151552, "bias": "attention_bias", "bias_default": True, "o_bias": False, "fused_ffn": True},
    "glm4": {"h": 4096, "f": 13696, "L": 40, "a": 32, "g": 2, "d": 128, "V": 151552, "bias": "attention_bias", "bias_default": True, "o_bias": False, "fused_ffn": True, "norms": 4},
    "exaone": {"h": 4096, "f": 14336, "L": 32, "a": 32, "g": 8, "V": 102400, "bias": "attention_bias", "mlp_bias": "mlp_bias"},
}  # fmt: skip


@family(*_DENSE)
def dense(fields: Fields) -> Architecture:
    """Llama and relatives, by the table above."""
    name = fields.word("model_type", default="llama")
    row = _DENSE[name]
    hidden = fields.size("hidden_size", default=row["h"])
    bias = flag_of(fields, row.get("bias"), row.get("bias_default", False)) or row.get("qkv_bias", False)
    # Where a family has no flag of its own for the output, it follows the one for q, k and v (Llama), except Qwen 2.
    output = flag_of(fields, row["o_bias"]) if "o_bias" in row else bias and not row.get("qkv_bias", False)
    attention = heads_of(
        fields.having({"hidden_size": hidden}),
        heads=row["a"], kv_heads=row.get("g") if not _null(fields, "num_key_value_heads") else None,
        head_dim=row.get("d") if not _null(fields, "head_dim") else None,
        qkv_bias=bias, output_bias=output, qk_norm=row.get("qk_norm", "none"),
    )  # fmt: skip
    if name == "helium" and attention.heads * attention.head_dim != hidden:
        raise fields.wrong(
            "head_dim",
            attention.head_dim,
            f"times the {attention.heads} heads must be hidden_size = {hidden}",
        )
    feed_forward = FeedForward(
        fields.size("intermediate_size", default=row["f"]), row.get("gated", True), flag_of(fields, row.get("mlp_bias")),
        activation(fields, row.get("act", "silu")), row.get("fused_ffn", False),
    )  # fmt: skip
    count = fields.layers("num_hidden_layers", "num_layers", default=row["L"])
    parts = windows(fields, count, attention, row.get("window"))
    made = {part: Layer(part, feed_forward, norms=row.get("norms", 2)) for part in set(parts)}
    return decoder(
        fields,
        [made[part] for part in parts],
        vocabulary=row["V"],
        hidden=hidden,
        tied=row.get("tied", False),
    )


def flag_of(fields: Fields, names: str | tuple[str, ...] | bool | None, default: bool = False) -> bool:
    """Return the flag of the first name that is there; True, False and None stand for themselves."""
    if names is None or isinstance(names, bool):
        return bool(names)
    return fields.flag(*((names,) if isinstance(names, str) else names), default=default)


def activation(fields: Fields, default: str) -> str:
    """Return the name of the activation."""
    return fields.word(
        "hidden_act", "hidden_activation", "activation_function", "activation", default=default
    )


def _null(fields: Fields, name: str) -> bool:
    return fields.given(name) and not fields.has(name)


# Mixtures of experts on the same body -------------------------------------------------------------------------------


@family("mixtral", "minimax_m2", "phimoe", "olmoe", "flex_olmo", "granitemoe", "granitemoeshared")
def experts_everywhere(fields: Fields) -> Architecture:
    """Mixtral and relatives: every layer has experts, no dense feed-forward."""
    name = fields.word("model_type", default="mixtral")
    row = _SPARSE[name]
    hidden = fields.size("hidden_size", default=row["h"])
    bias = flag_of(fields, row.get("bias"))
    attention = heads_of(
        fields.having({"hidden_size": hidden}),
        heads=row["a"], kv_heads=row.get("g") if not _null(fields, "num_key_value_heads") else None,
        head_dim=row.get("d") if not _null(fields, "head_dim") else None,
        qkv_bias=bias, output_bias=bias, qk_norm=row.get("qk_norm", "none"),
        window=fields.optional_size("sliding_window", least=0) or None,
    )  # fmt: skip
    shared_width = (
        fields.size("shared_intermediate_size", default=0, least=0) if name == "granitemoeshared" else 0
    )
    experts = Experts(
        fields.size("num_local_experts", "num_experts", default=row["E"]),
        fields.size("num_experts_per_tok", default=row["k"]),
        fields.size("intermediate_size", default=row["f"]),
        shared=FeedForward(shared_width, gated=True, fused=True, activation="silu") if shared_width else None,
        activation=activation(fields, "silu"),
    )
    checked(fields, experts)
    norm = LAYER_NORM if name == "phimoe" else RMS
    layers = [Layer(attention, experts)] * fields.layers(default=row["L"])
    head_bias = name == "phimoe" and fields.flag("lm_head_bias", default=False)
    return decoder(
        fields,
        layers,
        vocabulary=row["V"],
        hidden=hidden,
        norm=norm,
        tied=row.get("tied", False),
        head_bias=head_bias,
    )


_SPARSE: dict[str, dict[str, Any]] = {
    "mixtral": {"h": 4096, "f": 14336, "L": 32, "a": 32, "g": 8, "V": 32000, "E": 8, "k": 2},
    "minimax_m2": {"h": 3072, "f": 1536, "L": 62, "a": 48, "g": 8, "d": 128, "V": 200064, "E": 256, "k": 8, "qk_norm": "full"},
    "phimoe": {"h": 4096, "f": 6400, "L": 32, "a": 32, "g": 8, "V": 32064, "E": 16, "k": 2, "bias": "attention_bias"},
    "olmoe": {"h": 2048, "f": 2048, "L": 16, "a": 16, "V": 50304, "E": 64, "k": 8, "bias": "attention_bias", "qk_norm": "full"},
    "flex_olmo": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 100352, "E": 7, "k": 5, "bias": "attention_bias", "qk_norm": "full"},
    "granitemoe": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 32000, "E": 8, "k": 2, "bias": "attention_bias"},
    "granitemoeshared": {"h": 4096, "f": 11008, "L": 32, "a": 32, "V": 32000, "E": 8, "k": 2, "bias": "attention_bias"},
}  # fmt: skip


def checked(fields: Fields, experts: Experts) -> Experts:
    """Return the experts. Raises ``InputError`` where more are active than there are."""
    if experts.active > experts.count:
        raise fields.wrong(
            "num_experts_per_tok",
            experts.active,
            f"must not exceed the {experts.count} experts",
            str(experts.count),
        )
    return experts


@family("qwen2_moe", "qwen3_moe")
def qwen_moe(fields: Fields) -> Architecture:
    """Qwen 2 and Qwen 3 MoE: layers with experts among dense ones, by ``decoder_sparse_step`` and ``mlp_only_layers``."""
    second = fields.word("model_type", default="qwen3_moe") == "qwen2_moe"
    hidden = fields.size("hidden_size", default=2048)
    bias = fields.flag("qkv_bias", default=True) if second else fields.flag("attention_bias", default=False)
    # Qwen 3 MoE has no default d of its own: its configuration leaves it to h/a.
    attention = heads_of(
        fields.having({"hidden_size": hidden}),
        heads=16 if second else 32, kv_heads=16 if second else 4,
        qkv_bias=bias, output_bias=bias and not second, qk_norm="none" if second else "head",
    )  # fmt: skip
    shared = fields.size("shared_expert_intermediate_size", default=5632) if second else 0
    experts = checked(fields, Experts(
        fields.size("num_experts", "num_local_experts", default=60 if second else 128),
        fields.size("num_experts_per_tok", default=4 if second else 8),
        fields.size("moe_intermediate_size", default=1408 if second else 768),
        shared=FeedForward(shared, gated=True, activation="silu") if shared else None, shared_gate=bool(shared),
    ))  # fmt: skip
    dense_part = FeedForward(
        fields.size("intermediate_size", default=5632 if second else 6144), gated=True, activation="silu"
    )
    step = fields.size("decoder_sparse_step", default=1)
    only_dense = set(fields.sizes("mlp_only_layers") or [])
    sparse, plain = Layer(attention, experts), Layer(attention, dense_part)
    layers = [
        sparse if i not in only_dense and (i + 1) % step == 0 else plain
        for i in range(fields.layers(default=24))
    ]
    return decoder(fields, layers, vocabulary=151936, hidden=hidden)


@family("gpt_oss")
def gpt_oss(fields: Fields) -> Architecture:
    """gpt-oss: sinks in the softmax, biases everywhere, experts in every layer, windows in every other."""
    hidden = fields.size("hidden_size", default=2880)
    bias = fields.flag("attention_bias", default=True)
    attention = heads_of(
        fields.having({"hidden_size": hidden}),
        heads=64, kv_heads=8, head_dim=64, qkv_bias=bias, output_bias=bias, sinks=True,
    )  # fmt: skip
    experts = checked(fields, Experts(
        fields.size("num_local_experts", "num_experts", default=128), fields.size("num_experts_per_tok", default=4),
        fields.size("intermediate_size", default=2880), bias=True, router_bias=True,
    ))  # fmt: skip
    count = fields.layers(default=36)
    window = fields.size("sliding_window", default=128)
    local = replace(attention, window=window)
    kinds = fields.words("layer_types")
    parts = (
        windows(fields, count, attention, window)
        if kinds
        else [local if i % 2 == 0 else attention for i in range(count)]
    )
    return decoder(fields, [Layer(part, experts) for part in parts], vocabulary=201088, hidden=hidden)
