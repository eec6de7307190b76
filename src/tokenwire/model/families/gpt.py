"""GPT-2 and the families that grew from it: LayerNorm with bias, biased projections, plain feed-forward of 4h."""

from __future__ import annotations

from typing import Any

from tokenwire.model.architecture import Architecture, Attention, FeedForward, Layer, Norm
from tokenwire.model.families import family
from tokenwire.model.families.llama import LAYER_NORM, activation, decoder, heads_of
from tokenwire.model.fields import Fields


def _heads(fields: Fields, hidden: int, default: int, *names: str) -> int:
    heads = fields.size(*(names or ("num_attention_heads", "n_head")), default=default)
    if hidden % heads:
        raise fields.wrong("heads", heads, f"must divide the hidden size {hidden}")
    return heads


@family("gpt2", "openai-gpt")
def gpt2(fields: Fields) -> Architecture:
    """GPT-2 (Radford et al. 2019), and GPT, which has no final norm."""
    first = fields.word("model_type", default="gpt2") == "openai-gpt"
    h = fields.size("n_embd", "hidden_size", default=768)
    a = _heads(fields, h, 12, "n_head", "num_attention_heads")
    attention = Attention(a, a, h // a, qkv_bias=True, output_bias=True, fused_qkv=True)
    width = fields.size("n_inner", "intermediate_size", default=4 * h) if not first else 4 * h
    layer = Layer(
        attention, FeedForward(width, gated=False, bias=True, activation=activation(fields, "gelu_new"))
    )
    return decoder(
        fields, [layer] * fields.layers("n_layer", "num_hidden_layers", default=12),
        vocabulary=40478 if first else 50257, hidden=h, norm=LAYER_NORM, tied=True, positions="learned",
        positions_default=512 if first else 1024, final_norm=not first,
    )  # fmt: skip


@family("gpt_bigcode")
def gpt_bigcode(fields: Fields) -> Architecture:
    """GPT-BigCode (StarCoder): GPT-2 with one KV head for all queries."""
    h = fields.size("n_embd", "hidden_size", default=768)
    a = _heads(fields, h, 12, "n_head", "num_attention_heads")
    attention = Attention(
        a,
        1 if fields.flag("multi_query", default=True) else a,
        h // a,
        qkv_bias=True,
        output_bias=True,
        fused_qkv=True,
    )
    width = fields.size("n_inner", "intermediate_size", default=4 * h)
    layer = Layer(attention, FeedForward(width, gated=False, bias=True))
    return decoder(
        fields, [layer] * fields.layers("n_layer", "num_hidden_layers", default=12),
        vocabulary=50257, hidden=h, norm=LAYER_NORM, tied=True, positions="learned", positions_default=1024,
    )  # fmt: skip


@family("gpt_neo")
def gpt_neo(fields: Fields) -> Architecture:
    """GPT-Neo: q, k and v apart and without biases; local attention in every other layer."""
    h = fields.size("hidden_size", "n_embd", default=2048)
    a = _heads(fields, h, 16, "num_heads", "num_attention_heads", "n_head")
    attention = Attention(a, a, h // a, output_bias=True)
    width = fields.size("intermediate_size", default=4 * h)
    layer = Layer(attention, FeedForward(width, gated=False, bias=True))
    return decoder(
        fields, [layer] * fields.layers("num_layers", "num_hidden_layers", default=24),
        vocabulary=50257, hidden=h, norm=LAYER_NORM, tied=True, positions="learned",
    )  # fmt: skip


@family("gptj", "codegen")
def gptj(fields: Fields) -> Architecture:
    """GPT-J and CodeGen: attention and feed-forward side by side behind one norm, a biased head."""
    h = fields.size("n_embd", "hidden_size", default=4096)
    a = _heads(fields, h, 16, "n_head", "num_attention_heads")
    fused = fields.word("model_type", default="gptj") == "codegen"
    width = fields.size("n_inner", "intermediate_size", default=4 * h)
    layer = Layer(
        Attention(a, a, h // a, fused_qkv=fused),
        FeedForward(width, gated=False, bias=True),
        norms=1,
        parallel=True,
    )
    return decoder(
        fields, [layer] * fields.layers("n_layer", "num_hidden_layers", default=28),
        vocabulary=50400, hidden=h, norm=LAYER_NORM, head_bias=True,
    )  # fmt: skip


@family("gpt_neox")
def gpt_neox(fields: Fields) -> Architecture:
    """GPT-NeoX (Pythia): fused q, k, v; attention and feed-forward side by side, each with its norm."""
    h = fields.size("hidden_size", default=6144)
    a = _heads(fields, h, 64)
    bias = fields.flag("attention_bias", default=True)
    width = fields.size("intermediate_size", default=24576)
    layer = Layer(
        Attention(a, a, h // a, qkv_bias=bias, output_bias=bias, fused_qkv=True),
        FeedForward(width, gated=False, bias=True, activation=activation(fields, "gelu")),
        parallel=fields.flag("use_parallel_residual", default=True),
    )
    return decoder(fields, [layer] * fields.layers(default=44), vocabulary=50432, hidden=h, norm=LAYER_NORM)


@family("opt")
def opt(fields: Fields) -> Architecture:
    """OPT (Zhang et al. 2022): two more rows of positions than positions; the 350m model projects its embedding."""
    h = fields.size("hidden_size", default=768)
    a = _heads(fields, h, 12)
    bias = fields.flag("enable_bias", default=True)
    affine = fields.flag("layer_norm_elementwise_affine", default=True)
    width = fields.size("ffn_dim", "intermediate_size", default=3072)
    layer = Layer(
        Attention(a, a, h // a, qkv_bias=bias, output_bias=bias),
        FeedForward(width, gated=False, bias=bias, activation=activation(fields, "relu")),
    )
    final = fields.flag("do_layer_norm_before", default=True) and not fields.flag(
        "_remove_final_layer_norm", default=False
    )
    return decoder(
        fields, [layer] * fields.layers(default=12), vocabulary=50272, hidden=h, norm=Norm("layer", affine, affine),
        tied=True, positions="learned", position_offset=2, final_norm=final,
        embedding_size=fields.size("word_embed_proj_dim", default=h),
    )  # fmt: skip


@family("bloom")
def bloom(fields: Fields) -> Architecture:
    """BLOOM: ALiBi, a norm behind the embedding."""
    h = fields.size("hidden_size", "n_embed", "n_embd", default=64)
    a = _heads(fields, h, 8, "n_head", "num_attention_heads")
    layer = Layer(
        Attention(a, a, h // a, qkv_bias=True, output_bias=True, fused_qkv=True),
        FeedForward(4 * h, gated=False, bias=True),
    )
    return decoder(
        fields, [layer] * fields.layers("n_layer", "num_hidden_layers", default=2), vocabulary=250880, hidden=h,
        norm=LAYER_NORM, tied=True, positions="alibi", embedding_norm=True,
    )  # fmt: skip


@family("falcon")
def falcon(fields: Fields) -> Architecture:
    """Falcon: one KV head (7B), or groups (40B, 180B, "new decoder"), or as many as queries; side by side or not."""
    h = fields.size("hidden_size", default=4544)
    a = _heads(fields, h, 71)
    new = fields.flag("new_decoder_architecture", default=False)
    multi = fields.flag("multi_query", default=True)
    kv = fields.size("num_kv_heads", "n_head_kv", default=a) if new else 1 if multi else a
    if a % kv:
        raise fields.wrong("num_kv_heads", kv, f"must divide the {a} attention heads")
    bias = fields.flag("bias", default=False)
    parallel = fields.flag("parallel_attn", default=True)
    norms = fields.size("num_ln_in_parallel_attn", default=2 if new else 1, most=2) if parallel else 2
    layer = Layer(
        Attention(a, kv, h // a, qkv_bias=bias, output_bias=bias, fused_qkv=True),
        FeedForward(fields.size("ffn_hidden_size", default=4 * h), gated=False, bias=bias, activation=activation(fields, "gelu")),
        norms=norms, parallel=parallel,
    )  # fmt: skip
    return decoder(
        fields, [layer] * fields.layers("num_hidden_layers", "n_layer", default=32), vocabulary=65024, hidden=h,
        norm=LAYER_NORM, tied=True, positions="alibi" if fields.flag("alibi", default=False) else "rotary",
    )  # fmt: skip


@family("mpt")
def mpt(fields: Fields) -> Architecture:
    """MPT: ALiBi, no biases, not even in its norms."""
    h = fields.size("d_model", "hidden_size", default=2048)
    a = _heads(fields, h, 16, "n_heads", "num_attention_heads")
    layer = Layer(
        Attention(a, a, h // a, fused_qkv=True),
        FeedForward(4 * h, gated=False),
    )
    return decoder(
        fields, [layer] * fields.layers("n_layers", "num_hidden_layers", default=24), vocabulary=50368, hidden=h,
        norm=Norm("layer"), tied=True, positions="alibi",
    )  # fmt: skip


@family("phi")
def phi(fields: Fields) -> Architecture:
    """Phi 1 and 2: side by side behind one norm, biases everywhere, also in the head."""
    h = fields.size("hidden_size", default=2048)
    attention = heads_of(
        fields if fields.has("hidden_size") else fields.having({"hidden_size": h}), heads=32, kv_heads=None,
        qkv_bias=True, output_bias=True, qk_norm="head" if fields.flag("qk_layernorm", default=False) else "none",
        qk_norm_bias=True,
    )  # fmt: skip
    width = fields.size("intermediate_size", default=8192)
    layer = Layer(
        attention,
        FeedForward(width, gated=False, bias=True, activation=activation(fields, "gelu_new")),
        norms=1,
        parallel=True,
    )
    return decoder(
        fields,
        [layer] * fields.layers(default=24),
        vocabulary=51200,
        hidden=h,
        norm=LAYER_NORM,
        head_bias=True,
    )


@family("phi3", "phi4")
def phi3(fields: Fields) -> Architecture:
    """Phi 3 and 4: Llama's arrangement with fused q, k, v and fused gate, up."""
    h = fields.size("hidden_size", default=3072)
    attention = heads_of(
        fields.having({"hidden_size": h}), heads=32, kv_heads=None, fused_qkv=True,
        window=fields.optional_size("sliding_window", least=0) or None,
    )  # fmt: skip
    layer = Layer(
        attention,
        FeedForward(
            fields.size("intermediate_size", default=8192), gated=True, activation="silu", fused=True
        ),
    )
    return decoder(fields, [layer] * fields.layers(default=32), vocabulary=32064, hidden=h)


# Others with a norm of their own ------------------------------------------------------------------------------------

_NORMED: dict[str, dict[str, Any]] = {
    "olmo": {"norm": Norm("layer", bias=False, weight=False), "h": 4096, "f": 11008, "L": 32, "a": 32, "V": 50304, "gated": True},
    "starcoder2": {"norm": LAYER_NORM, "h": 3072, "f": 12288, "L": 30, "a": 24, "g": 2, "V": 49152, "gated": False, "tied": True},
    "stablelm": {"norm": LAYER_NORM, "h": 2560, "f": 6912, "L": 32, "a": 32, "g": 32, "V": 50304, "gated": True},
    "nemotron": {"norm": LAYER_NORM, "h": 6144, "f": 24576, "L": 32, "a": 48, "V": 256000, "gated": False},
    "persimmon": {"norm": LAYER_NORM, "h": 4096, "f": 16384, "L": 36, "a": 64, "V": 262144, "gated": False},
    "cohere": {"norm": Norm("layer"), "h": 8192, "f": 22528, "L": 40, "a": 64, "V": 256000, "gated": True, "tied": True},
    "cohere2": {"norm": Norm("layer"), "h": 8192, "f": 22528, "L": 40, "a": 64, "V": 256000, "gated": True, "tied": True, "window": 4096},
}  # fmt: skip


@family(*_NORMED)
def normed(fields: Fields) -> Architecture:
    """Families that differ from Llama in the kind of their norms and in where their biases are."""
    name = fields.word("model_type", default="olmo")
    row = _NORMED[name]
    h = fields.size("hidden_size", default=row["h"])
    qkv_bias = output_bias = mlp_bias = False
    qk_norm, norms, parallel = "none", 2, False
    if name in ("olmo", "nemotron", "cohere", "cohere2"):
        qkv_bias = output_bias = fields.flag("attention_bias", default=False)
    if name == "nemotron":
        mlp_bias = fields.flag("mlp_bias", default=False)
    if name == "starcoder2":
        qkv_bias = output_bias = mlp_bias = fields.flag("use_bias", default=True)
    if name == "persimmon":
        qkv_bias = output_bias = mlp_bias = True
        qk_norm = "head" if fields.flag("qk_layernorm", default=True) else "none"
    if name == "stablelm":
        qkv_bias = fields.flag("use_qkv_bias", default=False)
        qk_norm = "each" if fields.flag("qk_layernorm", default=False) else "none"
        parallel = fields.flag("use_parallel_residual", default=False)
        norms = 1 if parallel else 2
    if name in ("cohere", "cohere2"):
        norms, parallel = 1, True
        qk_norm = "each" if name == "cohere" and fields.flag("use_qk_norm", default=False) else "none"
    attention = heads_of(
        fields.having({"hidden_size": h}), heads=row["a"], kv_heads=row.get("g"),
        qkv_bias=qkv_bias, output_bias=output_bias,
        qk_norm=qk_norm, qk_norm_bias=name == "persimmon", fused_qkv=name == "persimmon",
    )  # fmt: skip
    width = fields.size("intermediate_size", default=row["f"])
    layer = Layer(
        attention, FeedForward(width, row["gated"], mlp_bias, activation(fields, "silu")), norms, parallel
    )
    return decoder(
        fields, [layer] * fields.layers(default=row["L"]), vocabulary=row["V"], hidden=h, norm=row["norm"],
        tied=row.get("tied", False),
    )  # fmt: skip
