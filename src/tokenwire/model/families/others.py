"""Families that are like none of the others in one thing each: Llama 4, MiniCPM 3, ERNIE 4.5 MoE, DBRX, Hunyuan, XGLM."""

from __future__ import annotations

from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, Layer, Norm
from tokenwire.model.families import family
from tokenwire.model.families.deepseek import latent
from tokenwire.model.families.llama import LAYER_NORM, activation, checked, decoder, heads_of
from tokenwire.model.fields import Fields


@family("llama4_text", "llama4")
def llama4(fields: Fields) -> Architecture:
    """Llama 4: experts with one shared one in the layers that ``moe_layers`` names, a wider dense part in the others."""
    h = fields.size("hidden_size", default=5120)
    bias = fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=40,
        kv_heads=8,
        head_dim=128,
        qkv_bias=bias,
        output_bias=bias,
    )
    width = fields.size("intermediate_size", default=8192)
    experts = checked(fields, Experts(
        fields.size("num_local_experts", "num_experts", default=16), fields.size("num_experts_per_tok", default=1), width,
        shared=FeedForward(width, gated=True, activation="silu"),
    ))  # fmt: skip
    dense = FeedForward(fields.size("intermediate_size_mlp", default=16384), gated=True, activation="silu")
    count, step = fields.layers(default=48), fields.size("interleave_moe_layer_step", default=1)
    named = fields.sizes("moe_layers")
    sparse = set(named if named is not None else range(step - 1, count, step))
    made = {True: Layer(attention, experts), False: Layer(attention, dense)}
    return decoder(fields, [made[i in sparse] for i in range(count)], vocabulary=202048, hidden=h)


@family("minicpm3")
def minicpm3(fields: Fields) -> Architecture:
    """MiniCPM 3: latent attention in a dense model."""
    h = fields.size("hidden_size", default=2560)
    mixer = latent(fields, heads=40, q_rank=768, kv_rank=256, nope=64, rope=32, value=64)
    wide = FeedForward(
        fields.size("intermediate_size", default=6400),
        gated=True,
        bias=fields.flag("mlp_bias", default=False),
        activation="silu",
    )
    return decoder(
        fields, [Layer(mixer, wide)] * fields.layers(default=62), vocabulary=73448, hidden=h, tied=True
    )


@family("ernie4_5_moe")
def ernie_moe(fields: Fields) -> Architecture:
    """ERNIE 4.5 MoE: experts in the layers from ``moe_layer_start_index`` to ``moe_layer_end_index``, shared ones beside."""
    h = fields.size("hidden_size", default=2560)
    bias = fields.flag("use_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=20,
        kv_heads=4,
        qkv_bias=bias,
        output_bias=bias,
    )
    width, shared = (
        fields.size("moe_intermediate_size", default=1536),
        fields.size("moe_num_shared_experts", default=2, least=0),
    )
    experts = checked(fields, Experts(
        fields.size("moe_num_experts", "num_experts", default=64), fields.size("moe_k", "num_experts_per_tok", default=6), width,
        shared=FeedForward(shared * width, gated=True, bias=bias, activation="silu") if shared else None, correction_bias=True,
        correction_parameter=True,
    ))  # fmt: skip
    dense = FeedForward(
        fields.size("intermediate_size", default=12288), gated=True, bias=bias, activation="silu"
    )
    count, every = fields.layers(default=28), fields.size("moe_layer_interval", default=1)
    first = fields.size("moe_layer_start_index", default=1, least=0)
    last = count - 1
    if fields.value("moe_layer_end_index") != -1:
        last = fields.size("moe_layer_end_index", default=27, least=0)
    made = {True: Layer(attention, experts), False: Layer(attention, dense)}
    layers = [made[(i + 1) % every == 0 and first <= i <= last] for i in range(count)]
    return decoder(fields, layers, vocabulary=103424, hidden=h, tied=True, head_bias=bias)


@family("hunyuan_v1_moe")
def hunyuan_moe(fields: Fields) -> Architecture:
    """Hunyuan: norms of queries and keys, experts beside a shared one of the same width."""
    h, bias = fields.size("hidden_size", default=4096), fields.flag("attention_bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}), heads=32, kv_heads=None, qkv_bias=bias, output_bias=bias,
        qk_norm="head",
    )  # fmt: skip
    wide = FeedForward(fields.size("intermediate_size", default=11008), gated=True, activation="silu")
    experts = checked(fields, Experts(
        fields.size("num_experts", "num_local_experts", default=1), fields.size("moe_topk", "num_experts_per_tok", default=1), wide.width,
        shared=wide,
    ))  # fmt: skip
    return decoder(
        fields, [Layer(attention, experts)] * fields.layers(default=32), vocabulary=290943, hidden=h
    )


@family("dbrx")
def dbrx(fields: Fields) -> Architecture:
    """DBRX: fused q, k, v, sixteen experts of which four are active, norms without bias."""
    h = fields.size("d_model", "hidden_size", default=2048)
    a = fields.size("n_heads", "num_attention_heads", default=16)
    if h % a:
        raise fields.wrong("n_heads", a, f"must divide the hidden size {h}")
    inner, wide = fields.section("attn_config"), fields.section("ffn_config")
    g = inner.size("kv_n_heads", default=1)
    if a % g:
        raise fields.wrong("kv_n_heads", g, f"must divide the {a} attention heads")
    experts = checked(fields, Experts(
        wide.size("moe_num_experts", default=4), wide.size("moe_top_k", default=1), wide.size("ffn_hidden_size", default=3584)
    ))  # fmt: skip
    layer = Layer(Attention(a, g, h // a, fused_qkv=True), experts)
    return decoder(
        fields,
        [layer] * fields.layers("n_layers", "num_hidden_layers", default=24),
        vocabulary=32000,
        hidden=h,
        norm=Norm("layer"),
    )


@family("xglm")
def xglm(fields: Fields) -> Architecture:
    """XGLM: sinusoidal positions, biases everywhere but in the head."""
    h = fields.size("d_model", "hidden_size", default=1024)
    a = fields.size("attention_heads", "num_attention_heads", default=16)
    if h % a:
        raise fields.wrong("attention_heads", a, f"must divide the hidden size {h}")
    layer = Layer(
        Attention(a, a, h // a, qkv_bias=True, output_bias=True),
        FeedForward(
            fields.size("ffn_dim", default=4096),
            gated=False,
            bias=True,
            activation=activation(fields, "gelu"),
        ),
    )
    return decoder(
        fields, [layer] * fields.layers("num_layers", "num_hidden_layers", default=24), vocabulary=256008, hidden=h,
        norm=LAYER_NORM, tied=True, positions="sinusoidal",
    )  # fmt: skip
