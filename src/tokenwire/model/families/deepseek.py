"""DeepSeek V2 and V3 and those built like them: latent attention, many small experts beside shared ones, dense first layers."""

from __future__ import annotations

from dataclasses import replace

from tokenwire.model.architecture import (
    Architecture,
    Experts,
    FeedForward,
    Indexer,
    LatentAttention,
    Layer,
    LeftOut,
    Mixer,
)
from tokenwire.model.families import family
from tokenwire.model.families.llama import checked, decoder, heads_of
from tokenwire.model.fields import Fields


def latent(
    fields: Fields, *, heads: int, q_rank: int | None, kv_rank: int, nope: int, rope: int, value: int
) -> LatentAttention:
    """Return latent attention; ``q_lora_rank`` given as null means queries that are not compressed."""
    a = fields.size("num_attention_heads", default=heads)
    null = fields.given("q_lora_rank") and not fields.has("q_lora_rank")
    bias = fields.flag("attention_bias", default=False)
    return LatentAttention(
        a, None if null else fields.optional_size("q_lora_rank") or q_rank, fields.size("kv_lora_rank", default=kv_rank),
        fields.size("qk_nope_head_dim", default=nope), fields.size("qk_rope_head_dim", default=rope),
        fields.size("v_head_dim", default=value), qkv_bias=bias, output_bias=bias,
    )  # fmt: skip


def dense_first(
    fields: Fields,
    mixer: Mixer,
    dense: FeedForward,
    experts: Experts,
    count: int,
    first: int,
    fixed: bool = False,
) -> list[Layer]:
    """Return the layers: ``first`` dense ones (or those that ``mlp_layer_types`` names), then experts.

    ``fixed``: the family has no ``first_k_dense_replace``.
    """
    plain, sparse = Layer(mixer, dense), Layer(mixer, checked(fields, experts))
    kinds = fields.words("mlp_layer_types")
    if kinds is not None:
        if len(kinds) != count:
            raise fields.wrong("mlp_layer_types", kinds, f"must name the {count} layers")
        return [sparse if kind == "sparse" else plain for kind in kinds]
    if not fixed:
        first = fields.size("first_k_dense_replace", default=first, least=0)
    every = fields.size("moe_layer_freq", default=1)
    return [plain if i < first or i % every else sparse for i in range(count)]


def shared_experts(fields: Fields, width: int, default: int, bias: bool = False) -> FeedForward | None:
    """Return the shared experts, which are one feed-forward part as wide as all of them together."""
    n = fields.size("n_shared_experts", "num_shared_experts", default=default, least=0)
    if fields.given("n_shared_experts") and not fields.has("n_shared_experts"):
        n = 0
    return FeedForward(n * width, gated=True, bias=bias, activation="silu") if n else None


@family("deepseek_v2")
def deepseek_v2(fields: Fields) -> Architecture:
    """DeepSeek V2 (and V2 Lite, whose queries are not compressed)."""
    h = fields.size("hidden_size", default=4096)
    width = fields.size("moe_intermediate_size", default=1407)
    bias = fields.flag("mlp_bias", default=False)
    mixer = latent(fields, heads=32, q_rank=1536, kv_rank=512, nope=128, rope=64, value=128)
    count = fields.layers(default=32)
    experts = Experts(
        fields.size("n_routed_experts", default=64), fields.size("num_experts_per_tok", default=1), width,
        shared=shared_experts(fields, width, 2, bias),
    )  # fmt: skip
    dense = FeedForward(
        fields.size("intermediate_size", default=11008), gated=True, bias=bias, activation="silu"
    )
    return decoder(
        fields, dense_first(fields, mixer, dense, experts, count, 0), vocabulary=102400, hidden=h,
        mtp_layers=fields.size("num_nextn_predict_layers", default=0, least=0, most=64),
    )  # fmt: skip


@family("deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite")
def deepseek_v3(fields: Fields) -> Architecture:
    """DeepSeek V3, R1 and V3.2 (whose attention looks at the tokens that an indexer chooses), Kimi K2, GLM 4.7 Flash."""
    name = fields.word("model_type", default="deepseek_v3")
    lite = name == "glm4_moe_lite"
    h = fields.size("hidden_size", default=2048 if lite else 7168)
    width = fields.size("moe_intermediate_size", default=1536 if lite else 2048)
    if lite:
        mixer = latent(fields, heads=20, q_rank=768, kv_rank=512, nope=192, rope=64, value=256)
    else:
        mixer = latent(fields, heads=128, q_rank=1536, kv_rank=512, nope=128, rope=64, value=128)
    if name == "deepseek_v32":
        mixer = replace(mixer, indexer=_indexer(fields))
    count = fields.layers(default=47 if lite else 61)
    experts = Experts(
        fields.size("n_routed_experts", "num_local_experts", default=64 if lite else 256),
        fields.size("num_experts_per_tok", default=4 if lite else 8), width,
        shared=shared_experts(fields, width, 1), correction_bias=True,
    )  # fmt: skip
    dense = FeedForward(
        fields.size("intermediate_size", default=10240 if lite else 18432), gated=True, activation="silu"
    )
    return decoder(
        fields, dense_first(fields, mixer, dense, experts, count, 1 if lite else 3, fixed=lite),
        vocabulary=154880 if lite else 129280, hidden=h,
        mtp_layers=fields.size("num_nextn_predict_layers", default=0 if lite else 1, least=0, most=64),
        left_out=(_SPARSE_ATTENTION,) if mixer.indexer else (),
    )  # fmt: skip


_SPARSE_ATTENTION = LeftOut(
    "index_topk", "effect",
    "time and memory of sparse attention are those of a window of as many tokens; the indexer's own loss is not predicted",
)  # fmt: skip


def _indexer(fields: Fields) -> Indexer:
    return Indexer(
        fields.size("index_n_heads", default=64), fields.size("index_head_dim", default=128),
        fields.size("index_topk", default=2048),
    )  # fmt: skip


@family("longcat_flash")
def longcat_flash(fields: Fields) -> Architecture:
    """LongCat Flash: each of its layers is two, the first with experts beside its dense part; a third of the router's choices do nothing.

    The experts' result is added after the second (modeling_longcat_flash.py, LongcatFlashDecoderLayer).
    """
    h = fields.size("hidden_size", default=6144)
    mixer = latent(fields, heads=64, q_rank=1536, kv_rank=512, nope=128, rope=64, value=128)
    dense = FeedForward(
        fields.size("ffn_hidden_size", "intermediate_size", default=12288), gated=True, activation="silu"
    )
    count, idle = (
        fields.size("n_routed_experts", "num_local_experts", default=512),
        fields.size("zero_expert_num", default=256, least=0),
    )
    chosen = fields.size("moe_topk", "num_experts_per_tok", default=12)
    # By its balance, a token chooses experts and identities in proportion.
    experts = checked(fields, Experts(
        count, max(1, round(chosen * count / (count + idle))), fields.size("expert_ffn_hidden_size", "moe_intermediate_size", default=2048),
        shared=dense, correction_bias=True, router_bias=fields.flag("router_bias", default=False), identities=idle,
    ))  # fmt: skip
    mean = LeftOut("zero_expert_num", "effect", f"of the {chosen} choices of a token {experts.active} are experts, the mean; "
                   "the others do nothing and are sent nowhere")  # fmt: skip
    pairs = fields.layers("num_layers", default=28)
    overlap = LeftOut(
        "num_layers",
        "effect",
        "the experts run in their own layer, not overlapped with the dense one after it",
    )
    return decoder(
        fields, [Layer(mixer, experts), Layer(mixer, dense)] * pairs, vocabulary=131072, hidden=h, left_out=(overlap, mean) if idle else (overlap,),
        mtp_layers=fields.size("num_nextn_predict_layers", default=0, least=0, most=64), mtp_block=(Layer(mixer, dense),),
    )  # fmt: skip


@family("glm4_moe", "dots1", "solar_open")
def grouped_experts(fields: Fields) -> Architecture:
    """GLM 4.5, dots.llm1 and Solar Open: DeepSeek V3's experts behind grouped-query attention."""
    name = fields.word("model_type", default="glm4_moe")
    row = {
        "glm4_moe": {"h": 4096, "f": 10944, "e": 1408, "L": 46, "a": 96, "g": 8, "V": 151552, "E": 128, "k": 8, "n": 1, "first": 1},
        "dots1": {"h": 4608, "f": 10944, "e": 1408, "L": 62, "a": 32, "g": 32, "V": 152064, "E": 0, "k": 1, "n": 0, "first": 0},
        "solar_open": {"h": 4096, "f": 10240, "e": 1280, "L": 48, "a": 64, "g": 8, "V": 196608, "E": 128, "k": 8, "n": 1, "first": 0, "d": 128},
    }[name]  # fmt: skip
    h = fields.size("hidden_size", default=row["h"])
    norm = name == "dots1" or fields.flag("use_qk_norm", default=False)
    bias = fields.flag("attention_bias", default=False)
    mixer = heads_of(
        fields.having({"hidden_size": h}), heads=row["a"], kv_heads=row["g"], head_dim=row.get("d", h // fields.size("num_attention_heads", default=row["a"])),
        qkv_bias=bias, output_bias=bias and name == "dots1", qk_norm="head" if norm else "none",
    )  # fmt: skip
    width = fields.size("moe_intermediate_size", default=row["e"])
    count = fields.layers(default=row["L"])
    experts = Experts(
        fields.size("n_routed_experts", "num_local_experts", default=row["E"] or None),
        fields.size("num_experts_per_tok", default=row["k"]), width, shared=shared_experts(fields, width, row["n"]),
        correction_bias=True,
    )  # fmt: skip
    dense = FeedForward(fields.size("intermediate_size", default=row["f"]), gated=True, activation="silu")
    return decoder(
        fields, dense_first(fields, mixer, dense, experts, count, row["first"], fixed=name == "solar_open"), vocabulary=row["V"], hidden=h,
        mtp_layers=fields.size("num_nextn_predict_layers", default=1 if name == "glm4_moe" else 0, least=0, most=64),
    )  # fmt: skip
