"""State-space models and hybrids of them with attention: Mamba, Mamba 2, Jamba, Bamba, Granite 4, Nemotron-H, Qwen 3 Next and 3.5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    Layer,
    Mixer,
    StateSpace,
)
from tokenwire.model.families import family
from tokenwire.model.families.llama import checked, decoder, heads_of
from tokenwire.model.fields import Fields


def _dt_rank(fields: Fields, h: int, *names: str) -> int:
    name = next((name for name in names if fields.value(name) == "auto"), None)
    return math.ceil(h / 16) if name else fields.size(*names, default=math.ceil(h / 16))


@family("mamba", "falcon_mamba")
def mamba(fields: Fields) -> Architecture:
    """Mamba (Gu and Dao 2023); Falcon Mamba normalises B, C and dt without weights."""
    h = fields.size("hidden_size", "d_model", default=768)
    block = StateSpace(
        1, fields.size("intermediate_size", default=int(fields.number("expand", default=2) * h)),
        fields.size("state_size", default=16), fields.size("conv_kernel", default=4),
        dt_rank=_dt_rank(fields, h, "time_step_rank"), bias=fields.flag("use_bias", default=False),
        conv_bias=fields.flag("use_conv_bias", default=True),
    )  # fmt: skip
    layers = [Layer(block, None, norms=1)] * fields.layers("num_hidden_layers", "n_layer", default=32)
    return decoder(fields, layers, vocabulary=50280, hidden=h, tied=True, positions="none")


@family("mamba2")
def mamba2(fields: Fields) -> Architecture:
    """Mamba 2 (Dao and Gu 2024)."""
    h = fields.size("hidden_size", default=4096)
    heads, head_dim = fields.size("num_heads", default=128), fields.size("head_dim", default=64)
    inner = int(fields.number("expand", default=2) * h)
    if inner != heads * head_dim:
        raise fields.wrong(
            "num_heads",
            heads,
            f"num_heads·head_dim must be expand·hidden_size = {inner}",
            str(inner // head_dim),
        )
    block = _mamba2(
        fields, inner, fields.size("state_size", default=128), fields.size("conv_kernel", default=4), heads, head_dim,
        fields.size("n_groups", default=8), "use_bias", "use_conv_bias",
    )  # fmt: skip
    layers = [Layer(block, None, norms=1)] * fields.layers(default=64)
    return decoder(fields, layers, vocabulary=32768, hidden=h, positions="none")


def _mamba2(
    fields: Fields,
    inner: int,
    state: int,
    kernel: int,
    heads: int,
    head_dim: int,
    groups: int,
    bias: str,
    conv_bias: str,
) -> StateSpace:
    if heads % groups:
        raise fields.wrong("groups", groups, f"must divide the {heads} heads of the state-space block")
    return StateSpace(
        2, inner, state, kernel, heads=heads, head_dim=head_dim, groups=groups, bias=fields.flag(bias, default=False),
        conv_bias=fields.flag(conv_bias, default=True), inner_norms=True,
    )  # fmt: skip


def _mamba2_of_hybrid(fields: Fields, h: int) -> StateSpace:
    inner = int(fields.number("mamba_expand", default=2) * h)
    heads = fields.size("mamba_n_heads", default=128)
    given = fields.value("mamba_d_head")
    head_dim = inner // heads if given in (None, "auto") else fields.size("mamba_d_head")
    if head_dim * heads != inner:
        raise fields.wrong(
            "mamba_n_heads", heads, f"mamba_n_heads·mamba_d_head must be mamba_expand·hidden_size = {inner}"
        )
    return _mamba2(
        fields, inner, fields.size("mamba_d_state", default=256), fields.size("mamba_d_conv", default=4), heads, head_dim,
        fields.size("mamba_n_groups", default=1), "mamba_proj_bias", "mamba_conv_bias",
    )  # fmt: skip


@family("jamba")
def jamba(fields: Fields) -> Architecture:
    """Jamba (AI21): Mamba blocks with one attention layer in eight, experts in every second layer."""
    h = fields.size("hidden_size", default=4096)
    attention = heads_of(fields.having({"hidden_size": h, "head_dim": None}), heads=32, kv_heads=8)
    block = StateSpace(
        1, int(fields.number("mamba_expand", default=2) * h), fields.size("mamba_d_state", default=16),
        fields.size("mamba_d_conv", default=4), dt_rank=_dt_rank(fields, h, "mamba_dt_rank"),
        bias=fields.flag("mamba_proj_bias", default=False), conv_bias=fields.flag("mamba_conv_bias", default=True),
        inner_norms=True,
    )  # fmt: skip
    width = fields.size("intermediate_size", default=14336)
    dense = FeedForward(width, gated=True, activation="silu")
    count = fields.size("num_experts", default=16)
    sparse = (
        checked(fields, Experts(count, fields.size("num_experts_per_tok", default=2), width))
        if count > 1
        else dense
    )
    a_period, a_offset = (
        fields.size("attn_layer_period", default=8),
        fields.size("attn_layer_offset", default=4, least=0),
    )
    e_period, e_offset = (
        fields.size("expert_layer_period", default=2),
        fields.size("expert_layer_offset", default=1, least=0),
    )
    layers = [
        _shared(
            attention if i % a_period == a_offset else block, sparse if i % e_period == e_offset else dense
        )
        for i in range(fields.layers(default=32))
    ]
    return decoder(fields, layers, vocabulary=65536, hidden=h, positions="none")


_SAME: dict[Layer, Layer] = {}


def _shared(mixer: Mixer | None, feed_forward: FeedForward | Experts | None, norms: int = 2) -> Layer:
    # Equal layers are the same object, so that what is computed for one is computed once.
    layer = Layer(mixer, feed_forward, norms)
    return _SAME.setdefault(layer, layer)


@family("bamba")
def bamba(fields: Fields) -> Architecture:
    """Bamba: Mamba 2 blocks, attention in the layers that ``attn_layer_indices`` names, a dense feed-forward in each."""
    h = fields.size("hidden_size", default=4096)
    bias = fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=32,
        kv_heads=8,
        qkv_bias=bias,
        output_bias=bias,
    )
    block = _mamba2_of_hybrid(fields, h)
    wide = FeedForward(
        fields.size("intermediate_size", default=14336),
        gated=True,
        bias=fields.flag("mlp_bias", default=False),
        activation="silu",
    )
    count = fields.layers(default=32)
    kinds = fields.words("layers_block_type", "layer_types")
    where = set(fields.sizes("attn_layer_indices") or [])
    attends = [_is_attention(kind) for kind in kinds] if kinds else [i in where for i in range(count)]
    if len(attends) != count:
        raise fields.wrong("layers_block_type", kinds, f"must name the {count} layers")
    return decoder(
        fields, [_shared(attention if a else block, wide) for a in attends], vocabulary=128000, hidden=h
    )


def _is_attention(kind: str) -> bool:
    return kind in ("attention", "full_attention", "sliding_attention")


@family("granitemoehybrid")
def granite_hybrid(fields: Fields) -> Architecture:
    """Granite 4: Mamba 2 and attention layers, experts with a shared part (or the shared part alone)."""
    h = fields.size("hidden_size", default=4096)
    bias = fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=32,
        kv_heads=None,
        qkv_bias=bias,
        output_bias=bias,
    )
    count = fields.layers(default=32)
    kinds = fields.words("layer_types", "layers_block_type") or ["mamba"] * count
    if len(kinds) != count:
        raise fields.wrong("layer_types", kinds, f"must name the {count} layers")
    shared = FeedForward(
        fields.size("shared_intermediate_size", default=1024), gated=True, activation="silu", fused=True
    )
    # Zero experts: a dense model, whose feed-forward is the shared part.
    number = fields.size("num_local_experts", default=8, least=0)
    part: FeedForward | Experts = shared
    if number:
        part = checked(fields, Experts(
            number, fields.size("num_experts_per_tok", default=2), fields.size("intermediate_size", default=11008), shared=shared
        ))  # fmt: skip
    block = None if all(_is_attention(kind) for kind in kinds) else _mamba2_of_hybrid(fields, h)
    layers = [_shared(attention if _is_attention(kind) else block, part) for kind in kinds]
    rope = fields.word("position_embedding_type", default="none")
    return decoder(
        fields, layers, vocabulary=32000, hidden=h, positions="rotary" if rope == "rope" else "none"
    )


_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


@family("nemotron_h")
def nemotron_h(fields: Fields) -> Architecture:
    """Nemotron-H and Nemotron 3: each layer one thing, Mamba 2, attention, a feed-forward part or experts, by a pattern."""
    h = fields.size("hidden_size", default=4096)
    kinds = fields.words("layers_block_type", "layer_types") or _letters(
        fields, "hybrid_override_pattern", "ME*-"
    )
    attention = heads_of(
        fields.having({"hidden_size": h, "head_dim": fields.optional_size("head_dim", "attention_head_dim")}),
        heads=32, kv_heads=8, head_dim=128,
        window=fields.optional_size("sliding_window", least=0) or None,
    )  # fmt: skip
    heads, head_dim = fields.size("mamba_num_heads", default=128), fields.size("mamba_head_dim", default=64)
    block = _mamba2(
        fields, heads * head_dim, fields.size("ssm_state_size", default=128), fields.size("conv_kernel", default=4), heads,
        head_dim, fields.size("n_groups", default=8), "use_bias", "use_conv_bias",
    )  # fmt: skip
    mlp_bias = fields.flag("mlp_bias", default=False)
    wide = FeedForward(
        fields.size("intermediate_size", default=21504), gated=False, bias=mlp_bias, activation="relu2"
    )

    def layer(kind: str) -> Layer:
        if kind in ("mamba", "linear_attention"):
            return _shared(block, None, 1)
        if _is_attention(kind):
            return _shared(attention, None, 1)
        if kind == "mlp":
            return _shared(None, wide, 1)
        if kind == "moe":
            return _shared(None, _nemotron_experts(fields, mlp_bias), 1)
        raise fields.wrong("layers_block_type", kind, "must be linear_attention, full_attention, mlp or moe")

    further = fields.size("num_nextn_predict_layers", default=0, least=0, most=64)
    block_of_further = fields.words("mtp_layers_block_type") or _letters(
        fields, "mtp_hybrid_override_pattern", "*E"
    )
    # This family ties nothing, whatever tie_word_embeddings says (modeling_nemotron_h.py, _tied_weights_keys).
    return replace(
        decoder(fields, [layer(kind) for kind in kinds], vocabulary=131072, hidden=h, positions="none", mtp_layers=further),
        tied_embeddings=False, mtp_block=tuple(layer(kind) for kind in block_of_further) if further else (),
    )  # fmt: skip


def _letters(fields: Fields, name: str, default: str) -> list[str]:
    pattern = fields.word(name, default=default)
    if unknown := set(pattern) - set(_PATTERN):
        raise fields.wrong(name, pattern, f"knows only {' '.join(_PATTERN)}, not {min(unknown)!r}")
    return [_PATTERN[letter] for letter in pattern]


def _nemotron_experts(fields: Fields, bias: bool) -> Experts:
    shared_width = fields.size("moe_shared_expert_intermediate_size", default=7688)
    return checked(fields, Experts(
        fields.size("n_routed_experts", "num_local_experts", default=8), fields.size("num_experts_per_tok", default=2),
        fields.size("moe_intermediate_size", default=7688), gated=False, correction_bias=True,
        shared=FeedForward(shared_width, gated=False, bias=bias, activation="relu2"),
        activation="relu2", latent_bias=bias, latent_size=fields.optional_size("moe_latent_size"),
    ))  # fmt: skip


_GATED: dict[str, dict[str, int]] = {
    "qwen3_next": {"h": 2048, "L": 48, "a": 16, "g": 2, "V": 151936, "E": 512, "k": 10, "f": 5632},
    "qwen3_5_moe_text": {"h": 2048, "L": 40, "a": 16, "g": 2, "V": 248320, "E": 256, "k": 8},
    "qwen3_5_text": {"h": 4096, "L": 32, "a": 16, "g": 4, "V": 248320, "f": 12288},
}
_GATED |= {"qwen3_5_moe": _GATED["qwen3_5_moe_text"], "qwen3_5": _GATED["qwen3_5_text"]}


@family(*_GATED)
def gated_delta(fields: Fields) -> Architecture:
    """Qwen 3 Next and Qwen 3.5: gated delta nets with one gated attention layer in four, experts with a gated shared one, or dense."""
    row = _GATED[fields.word("model_type", default="qwen3_next")]
    h = fields.size("hidden_size", default=row["h"])
    bias = fields.flag("attention_bias", default=False)
    attention: Attention = heads_of(
        fields.having({"hidden_size": h}), heads=row["a"], kv_heads=row["g"], head_dim=256, qkv_bias=bias,
        output_bias=bias, qk_norm="head", gate=True,
    )  # fmt: skip
    delta = DeltaNet(
        fields.size("linear_num_key_heads", default=16), fields.size("linear_num_value_heads", default=32),
        fields.size("linear_key_head_dim", default=128), fields.size("linear_value_head_dim", default=128),
        fields.size("linear_conv_kernel_dim", default=4),
    )  # fmt: skip
    if delta.value_heads % delta.key_heads:
        raise fields.wrong(
            "linear_num_key_heads", delta.key_heads, f"must divide the {delta.value_heads} value heads"
        )
    every = fields.size("full_attention_interval", default=4)
    kinds = kinds_of(fields, row["L"], lambda i: "linear_attention" if (i + 1) % every else "full_attention")
    dense = (
        FeedForward(fields.size("intermediate_size", default=row["f"]), gated=True, activation="silu")
        if "f" in row
        else None
    )
    experts = _gated_experts(fields, row) if "E" in row else dense
    sparse = [True] * len(kinds)
    if "E" in row and dense is not None:
        step = fields.size("decoder_sparse_step", default=1)
        only_dense = set(fields.sizes("mlp_only_layers") or [])
        sparse = [i not in only_dense and (i + 1) % step == 0 for i in range(len(kinds))]
    layers = [
        _shared(attention if _is_attention(kind) else delta, experts if many else dense)
        for kind, many in zip(kinds, sparse, strict=True)
    ]
    further = fields.size("mtp_num_hidden_layers", default=0, least=0, most=64)
    return decoder(
        fields, layers, vocabulary=row["V"], hidden=h, mtp_layers=further,
        mtp_block=(_shared(attention, experts),) if further else (),
    )  # fmt: skip


def kinds_of(fields: Fields, count: int, default: Callable[[int], str]) -> list[str]:
    """Return what each layer is, from ``layer_types`` or else by its index. Raises ``InputError`` where the list has another length."""
    count = fields.layers(default=count)
    kinds = fields.words("layer_types") or [default(i) for i in range(count)]
    if len(kinds) != count:
        raise fields.wrong("layer_types", kinds, f"must name the {count} layers")
    return kinds


def _gated_experts(fields: Fields, row: dict[str, int]) -> Experts:
    shared = FeedForward(
        fields.size("shared_expert_intermediate_size", default=512), gated=True, activation="silu"
    )
    return checked(fields, Experts(
        fields.size("num_experts", "num_local_experts", default=row["E"]), fields.size("num_experts_per_tok", default=row["k"]),
        fields.size("moe_intermediate_size", default=512), shared=shared, shared_gate=True,
    ))  # fmt: skip
