"""Small architectures for tests, built from sizes."""

from __future__ import annotations

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Norm,
)
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve


def gpt(layers: int = 4, hidden: int = 64, heads: int = 8, vocabulary: int = 1000, tied: bool = True) -> Architecture:
    """Return a GPT-2-like model: LayerNorm, biases, learned positions."""
    layer = Layer(
        Attention(heads, heads, hidden // heads, qkv_bias=True, output_bias=True), FeedForward(4 * hidden, False, True)
    )
    return Architecture(
        "gpt", "gpt", vocabulary, hidden, (layer,) * layers, Norm("layer", bias=True), "learned", 64, tied_embeddings=tied
    )


def llama(
    layers: int = 4, hidden: int = 64, heads: int = 8, kv_heads: int = 4, vocabulary: int = 1000, tied: bool = False,
    width: int = 176, qk_norm: bool = False, experts: Experts | None = None, dense_first: int = 0, window: int | None = None,
    sinks: bool = False,
) -> Architecture:  # fmt: skip
    """Return a Llama-like model: RMSNorm, no biases, rotary positions, SwiGLU, grouped KV heads; or with experts."""
    attention = Attention(heads, kv_heads, hidden // heads, qk_norm="head" if qk_norm else "none", window=window, sinks=sinks)
    dense = Layer(attention, FeedForward(width, True))
    rest = dense if experts is None else Layer(attention, experts)
    return Architecture(
        "llama", "llama", vocabulary, hidden, (dense,) * dense_first + (rest,) * (layers - dense_first), Norm("rms"),
        "rotary", tied_embeddings=tied,
    )  # fmt: skip


def latent(
    layers: int = 4, q_rank: int | None = 48, experts: Experts | None = None, dense_first: int = 0, tied: bool = False,
    vocabulary: int = 1000,
) -> Architecture:  # fmt: skip
    """Return a DeepSeek-like model: 8 heads of latent attention, q compressed to 48, keys and values to 32 with 16 rotary."""
    mixer = LatentAttention(8, q_rank, 32, 8, 16, 8)
    dense = Layer(mixer, FeedForward(128, True))
    rest = dense if experts is None else Layer(mixer, experts)
    return Architecture(
        "deepseek", "deepseek", vocabulary, 64, (dense,) * dense_first + (rest,) * (layers - dense_first), Norm("rms"), "rotary",
        tied_embeddings=tied,
    )  # fmt: skip


def plan_of(arch: Architecture, world: int, options: dict[str, object], **training: object) -> Plan:
    """Return a checked plan with 4 micro-batches of one sequence of 64 tokens a replica, unless said otherwise."""
    size = {key: options.get(key, 1) for key in ("tp", "pp", "cp")}
    dp = world // (size["tp"] * size["pp"] * size["cp"])  # type: ignore[operator]
    values = {"sequence_length": 64, "micro_batch": 1, "global_batch": 4 * dp, **training}
    return resolve(read_plan(options), TrainingConfig.model_validate(values), arch, world)
