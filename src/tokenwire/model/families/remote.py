"""Families whose modeling code comes with their weights: InternLM 2, Baichuan, ChatGLM 2 to 4, Arctic, Phi 3 Small.

Shapes are those of their modeling_*.py on huggingface.co: internlm/internlm2-7b, baichuan-inc/Baichuan2-7B-Base and Baichuan2-13B-Base,
THUDM/chatglm3-6b, Snowflake/snowflake-arctic-base, microsoft/Phi-3-small-8k-instruct; tests/model/test_counts.py has their published parameters.
"""

from __future__ import annotations

from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, Layer, LeftOut
from tokenwire.model.families import family
from tokenwire.model.families.llama import LAYER_NORM, checked, decoder, heads_of
from tokenwire.model.fields import Fields


@family("internlm2")
def internlm2(fields: Fields) -> Architecture:
    """InternLM 2: as Llama, with queries, keys and values in one tensor."""
    h, bias = fields.size("hidden_size", default=4096), fields.flag("bias", default=False)
    attention = heads_of(
        fields.having({"hidden_size": h}),
        heads=32,
        kv_heads=None,
        qkv_bias=bias,
        output_bias=bias,
        fused_qkv=True,
    )
    wide = FeedForward(fields.size("intermediate_size", default=11008), gated=True, activation="silu")
    return decoder(fields, [Layer(attention, wide)] * fields.layers(default=32), vocabulary=103168, hidden=h)


@family("baichuan")
def baichuan(fields: Fields) -> Architecture:
    """Baichuan 1 and 2: as Llama, with queries, keys and values in one tensor; the larger one has ALiBi, and says its length by another name."""
    h = fields.size("hidden_size", default=4096)
    attention = heads_of(fields.having({"hidden_size": h}), heads=32, kv_heads=None, fused_qkv=True)
    wide = FeedForward(fields.size("intermediate_size", default=11008), gated=True, activation="silu")
    alibi = fields.has("model_max_length") and not fields.has("max_position_embeddings")
    return decoder(
        fields,
        [Layer(attention, wide)] * fields.layers(default=32),
        vocabulary=125696,
        hidden=h,
        positions="alibi" if alibi else "rotary",
    )


@family("chatglm")
def chatglm(fields: Fields) -> Architecture:
    """ChatGLM 2, ChatGLM 3 and GLM-4: groups of heads, a bias of queries, keys and values, SwiGLU in one tensor."""
    h, heads = fields.size("hidden_size", default=4096), fields.size("num_attention_heads", default=32)
    groups = heads
    if fields.flag("multi_query_attention", default=False):
        groups = fields.size("multi_query_group_num", default=1)
    if heads % groups:
        raise fields.wrong("multi_query_group_num", groups, f"must divide the {heads} attention heads")
    bias = fields.flag("add_bias_linear", default=False)
    attention = Attention(
        heads,
        groups,
        fields.size("kv_channels", default=128),
        qkv_bias=bias or fields.flag("add_qkv_bias", default=False),
        output_bias=bias,
        fused_qkv=True,
    )
    wide = FeedForward(
        fields.size("ffn_hidden_size", default=13696), gated=True, bias=bias, activation="silu", fused=True
    )
    vocabulary = fields.size("padded_vocab_size", "vocab_size", default=65024)
    layers = [Layer(attention, wide)] * fields.layers("num_layers", "num_hidden_layers", default=28)
    return decoder(
        fields.having({"vocab_size": vocabulary}),
        layers,
        vocabulary=vocabulary,
        hidden=h,
    )


@family("arctic")
def arctic(fields: Fields) -> Architecture:
    """Snowflake Arctic: experts, and beside them a dense part as wide as the hidden size, which sees every token behind a norm of its own."""
    h = fields.size("hidden_size", default=4096)
    attention = heads_of(fields.having({"hidden_size": h}), heads=32, kv_heads=None)
    width = fields.size("intermediate_size", default=14336)
    beside = fields.flag("parallel_attn_mlp_res", default=False)
    experts = checked(fields, Experts(
        fields.size("num_local_experts", default=8), fields.size("num_experts_per_tok", default=1), width,
        shared=FeedForward(h, gated=True, activation="silu") if beside else None,
    ))  # fmt: skip
    dense = Layer(attention, FeedForward(width, gated=True, activation="silu"))
    sparse = Layer(attention, experts, 3 if beside else 2)
    every = fields.size("moe_layer_frequency", default=2)
    return decoder(
        fields,
        [dense if (i + 1) % every else sparse for i in range(fields.layers(default=32))],
        vocabulary=32000,
        hidden=h,
    )


@family("phi3small")
def phi3small(fields: Fields) -> Architecture:
    """Phi 3 Small: biases everywhere, LayerNorm, a tied head; every second layer looks at blocks of tokens only."""
    h = fields.size("hidden_size", default=4096)
    attention = heads_of(
        fields.having({"hidden_size": h}), heads=32, kv_heads=8, qkv_bias=True, output_bias=True, fused_qkv=True
    )
    wide = FeedForward(
        fields.size("ff_intermediate_size", "intermediate_size", default=14336), gated=True, bias=True, activation="gegelu", fused=True
    )  # fmt: skip
    blocks = LeftOut("dense_attention_every_n_layers", "effect", "layers that look at blocks of tokens count as looking at all")
    sparse = fields.size("dense_attention_every_n_layers", default=2)
    return decoder(
        fields, [Layer(attention, wide)] * fields.layers(default=32), vocabulary=100352, hidden=h, norm=LAYER_NORM, tied=True,
        positions_default=8192, left_out=(blocks,) if sparse > 1 else (),
    )  # fmt: skip
