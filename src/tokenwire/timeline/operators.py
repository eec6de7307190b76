"""The operators of a layer on one rank: matrix products, attention, and kernels that only move memory.

Symbols: T tokens of a micro-batch on the rank (b·s/c), s whole sequence, t tensor parallel, h hidden, a heads, g KV heads, d head
dim, f feed-forward width, E experts, k chosen, e expert parallel, t_e expert tensor parallel; 2 bytes an activation.
A product of m x k by k x n takes 2mkn FLOPs forward, as much for the gradient of its input and of its weight. Causal attention
takes 2·a·d·s² for scores and values forward (half of s² each) and 2.5 times that backward (flash attention forms the scores again:
Dao 2023, FlashAttention-2, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tokenwire.model.adapters import beside
from tokenwire.model.architecture import (
    Adapters,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    StateSpace,
    TokenMixer,
    Weight,
)
from tokenwire.timeline.attention_speed import seen
from tokenwire.timeline.expert_operators import expert_operators, feed_forward
from tokenwire.timeline.kernels import Operator, Shapes, grouped, moved_only, product
from tokenwire.timeline.state_space import KERNELS, moved_between_projections


@lru_cache(maxsize=512)
def layer_operators(layer: Layer, z: Shapes) -> tuple[Operator, ...]:
    """Return the operators of one layer, forward and backward, in order of the forward.

    >>> from tokenwire.model import preset
    >>> z = Shapes(tokens=4096, sequence=4096, micro_batch=1, hidden=4096)
    >>> llama = preset("llama-3.1-8b").layers[0]
    >>> round(sum(o.flops for o in layer_operators(llama, z) if o.phase == "forward") / 1e12, 3)
    1.924
    """
    mixer, feed = layer.mixer, layer.feed_forward
    norms, sums = _norms_and_residuals(layer, z)
    out = [*norms]
    if isinstance(mixer, Attention):
        out += _attention(mixer, z)
    elif isinstance(mixer, LatentAttention):
        out += _latent(mixer, z)
    elif isinstance(mixer, StateSpace):
        out += _state_space(mixer, z)
    elif isinstance(mixer, DeltaNet):
        out += _delta(mixer, z)
    elif isinstance(mixer, TokenMixer):
        out += _described(mixer, z)
    if layer.extra is not None:
        out += _products(layer.extra.weights, z)
        if (own := layer.extra.attention) is not None:
            out += _core(z, own.heads, own.kv_heads, own.head_dim, own.value_head_dim or own.head_dim, own.window)
    if isinstance(feed, TokenMixer):
        out += _described(feed, z)
    elif isinstance(feed, FeedForward):
        out += feed_forward(feed, z, "feed_forward")
    elif isinstance(feed, Experts):
        out += expert_operators(feed, z)
    return (*out, *sums)


def _norms_and_residuals(layer: Layer, z: Shapes) -> tuple[list[Operator], list[Operator]]:
    """Return the norms (2 passes over the residual stream forward, 3 backward) and the residual sums (3 and 3).

    Fused by torch.compile a sum and the norm after it read two, and write the sum and the norm (4 passes), and backward read the gradients of
    both and the sum, and write one (4).
    """
    size = z.own * z.hidden * z.item
    names = [name for part, name in ((layer.mixer, "attention residual"), (layer.feed_forward, "feed-forward residual")) if part is not None]
    fused = 0 if z.norms_apart is None else max(0, min(layer.norms - z.norms_apart, len(names)))
    norms = [o for _ in range(layer.norms - fused) for o in moved_only("norm", "norm", size, 2, 3)]
    sums: list[Operator] = []
    for i, name in enumerate(names):
        sums += moved_only(f"{name} and norm", "norm", size, 4, 4) if i < fused else moved_only(name, "norm", size, 3, 3)
    return norms, sums


@lru_cache(maxsize=64)
def head_operators(vocabulary: int, z: Shapes, fused_loss: bool) -> tuple[Operator, ...]:
    """Return the final norm, the output layer and the loss; ``vocabulary`` is the padded one.

    The loss reads logits in 16 bits; unfused it writes and reads fp32 six times forward and three times backward.
    """
    logits = z.tokens * vocabulary / z.tp
    loss = (4.0, 4.0, "cross_entropy_fused", 1) if fused_loss else (38.0, 14.0, "cross_entropy", 6)
    return (
        *moved_only("final norm", "norm", z.own * z.hidden * z.item, 2, 3),
        *product("output layer", "head", z.tokens, z.hidden, vocabulary // z.tp, z.item),
        Operator("loss", "head", "memory", "forward", 0, logits * loss[0], share=loss[2], kernels=loss[3]),
        Operator("loss", "head", "memory", "input", 0, logits * loss[1], share=loss[2], kernels=max(1, loss[3] // 2)),
    )


@lru_cache(maxsize=64)
def embedding_operators(vocabulary: int, z: Shapes) -> tuple[Operator, ...]:
    """Return the embedding: rows are read; backward a whole gradient table is filled and added to the fp32 one (12 bytes each)."""
    rows, table = z.tokens * z.hidden, vocabulary / z.tp * z.hidden
    return (
        Operator("embedding", "embedding", "memory", "forward", 0, 2 * rows * z.item),
        Operator("embedding", "embedding", "memory", "weight", 0, 2 * rows * z.item + 12 * table, kernels=3),
    )


ADAPTER = ("adapter in", "adapter out")
"""The two products of an adapter, which stay in 16 bits: torch's own, not Transformer Engine's."""


@lru_cache(maxsize=64)
def adapter_operators(layer: Layer, z: Shapes, adapters: Adapters) -> tuple[Operator, ...]:
    """Return the operators of a layer's adapters: two products each, their result scaled, and added.

    NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/lora_layers.py and utils.py (ParallelLinearAdapter.forward).
    """
    out: list[Operator] = []
    for one in beside(z.hidden, layer, adapters):
        _, inputs, outputs, column = one.product
        part = "attention" if one.product.module in ("linear_qkv", "linear_proj") else "feed_forward"
        out += product(ADAPTER[0], part, z.tokens, inputs if column else inputs // z.tp, one.rank // z.tp if column else one.rank, z.item)
        out += product(ADAPTER[1], part, z.tokens, one.rank, outputs // z.tp, z.item)
        out += moved_only("adapter scaled and added", part, z.tokens * outputs / z.tp * z.item, 5, 2)
    return tuple(out)


def next_token_operators(z: Shapes) -> tuple[Operator, ...]:
    """Return what a module of multi-token prediction does before its layers, and its last norm.

    Two norms, the join of both vectors, 2·h to h, and a norm (megatron/core/transformer/multi_token_prediction.py).
    """
    size = z.own * z.hidden * z.item
    return (
        *(o for _ in range(3) for o in moved_only("norm", "norm", size, 2, 3)),
        *moved_only("joining", "norm", size, 4, 4),
        *product("further tokens' projection", "feed_forward", z.tokens, 2 * z.hidden, z.hidden // z.tp, z.item),
    )


def _core(z: Shapes, heads: int, kv: int, d: int, d_v: int, window: int | None) -> Iterator[Operator]:
    """Yield causal attention of a rank: its heads over the whole sequence, 1/c of the work with context parallelism."""
    a, g = max(heads // z.tp, 1), max(kv // z.tp, 1)
    b, s = z.micro_batch, z.sequence
    if z.unfused:
        yield from _written_out(z, a, d, d_v)
        return
    flops = 2.0 * b * a * s * seen(s, window) * (d + d_v) / z.cp
    if z.ulysses:
        # Whole sequences of a c-th of the heads.
        a, g = max(a // z.cp, 1), max(g // z.cp, 1)
    moved = z.item * b * s * (2 * a * d + g * (d + d_v)) / (1 if z.ulysses else z.cp)
    yield Operator("core attention", "core", "attention", "forward", flops, moved, b, s, a, g, d, d_v, window=window or 0)
    yield Operator("core attention", "core", "attention", "input", 2.5 * flops, 2 * moved, b, s, a, g, d, d_v, window=window or 0)


def _written_out(z: Shapes, a: int, d: int, d_v: int) -> Iterator[Operator]:
    """Yield attention whose scores are written to memory: all s² of them, none skipped.

    Scale, mask and softmax read and write each (4 bytes), dropout too, with a mask (5); backward 5 and 6.
    """
    scores = z.micro_batch * a * z.sequence**2 / z.cp
    for name, k, n in (("scores", d, z.sequence), ("values", z.sequence, d_v)):
        for o in grouped(name, z.micro_batch * a, z.sequence // z.cp, k, n, z.item):
            # Both factors are activations: two gradients, neither of a weight.
            yield o._replace(part="core", phase="forward" if o.phase == "forward" else "input")
    yield Operator("softmax", "core", "memory", "forward", 0, 2 * z.item * scores)
    yield Operator("dropout of scores", "core", "memory", "forward", 0, (2 * z.item + 1) * scores)
    yield Operator("softmax and dropout", "core", "memory", "input", 0, (5 * z.item + 1) * scores, kernels=2)


def _attention(x: Attention, z: Shapes) -> Iterator[Operator]:
    d, d_v = x.head_dim, x.value_head_dim or x.head_dim
    q, k, v = x.heads * d, max(x.kv_heads, z.tp) * d, max(x.kv_heads, z.tp) * d_v
    k, v = k if x.key_width else 0, v if x.value_width else 0
    wide = (q * (2 if x.gate else 1) + k + v) // z.tp
    yield from product("query, key, value", "attention", z.tokens, z.hidden, wide, z.item)
    if x.qk_norm == "none" or z.norms_apart is None:  # fused by torch.compile the norm turns queries and keys too
        yield from moved_only("rotary positions", "attention", z.tokens * (q + k) / z.tp * z.item, 2, 2)
    if x.qk_norm != "none":
        yield from moved_only("query and key norm", "attention", z.tokens * (q + k) / z.tp * z.item, 2, 3)
    yield from _core(z, x.heads, x.kv_heads, d, d_v, x.window)
    yield from product("attention output", "attention", z.tokens, x.heads * d_v // z.tp, z.hidden, z.item)


def _latent(x: LatentAttention, z: Shapes) -> Iterator[Operator]:
    d, a = x.qk_nope_head_dim + x.qk_rope_head_dim, x.heads
    if x.q_lora_rank is None:
        yield from product("query", "attention", z.tokens, z.hidden, a * d // z.tp, z.item)
    else:
        yield from product("query down", "attention", z.own, z.hidden, x.q_lora_rank, z.item)
        yield from moved_only("query norm", "attention", z.own * x.q_lora_rank * z.item, 2, 3)
        yield from product("query up", "attention", z.tokens, x.q_lora_rank, a * d // z.tp, z.item)
    yield from product("key and value down", "attention", z.own, z.hidden, x.kv_lora_rank + x.qk_rope_head_dim, z.item)
    yield from moved_only("key and value norm", "attention", z.own * x.kv_lora_rank * z.item, 2, 3)
    up = a * (x.qk_nope_head_dim + x.v_head_dim) // z.tp
    yield from product("key and value up", "attention", z.tokens, x.kv_lora_rank, up, z.item)
    # Rotary parts are cut out, turned and joined again: queries and keys are written once more whole.
    yield from moved_only("rotary positions and joining", "attention", z.tokens * 2 * a * d / z.tp * z.item, 2, 2)
    if x.indexer is not None:
        yield from _indexer(x, z)
    yield from _core(z, a, a, d, x.v_head_dim, x.indexer.top_k if x.indexer else None)
    yield from product("attention output", "attention", z.tokens, a * x.v_head_dim // z.tp, z.hidden, z.item)


def _indexer(x: LatentAttention, z: Shapes) -> Iterator[Operator]:
    """Yield what chooses the tokens that are looked at: three products, and a score of every token by every small head."""
    assert x.indexer is not None
    i, s = x.indexer, z.sequence
    width = i.heads * i.head_dim
    yield from product("indexer query", "attention", z.tokens, x.q_lora_rank or z.hidden, width, z.item)
    yield from product("indexer key and weights", "attention", z.tokens, z.hidden, i.head_dim + i.heads, z.item)
    # Queries by keys, without values: a product a head, half of it masked; backward one for each factor.
    flops = 2.0 * z.micro_batch * i.heads * s * seen(s, None) * i.head_dim
    moved = z.item * z.micro_batch * s * (width + i.head_dim)
    shape = (z.micro_batch, s, i.heads, 1, i.head_dim, i.head_dim)
    yield Operator("indexer scores", "core", "attention", "forward", flops, moved, *shape)
    yield Operator("indexer scores", "core", "attention", "input", 2 * flops, 2 * moved, *shape)


def _described(x: TokenMixer, z: Shapes) -> Iterator[Operator]:
    yield from _products(x.weights, z)
    if x.kind != "linear":
        # What happens by channel or head moves the products' results about as often as a gated delta rule does.
        width = sum(weight.outputs for weight in x.weights if weight.split == "column" and len(weight.shape) == 2)
        yield from moved_only(x.kind, "attention", z.tokens * width / z.tp * z.item, 8, 16)


def _products(weights: tuple[Weight, ...], z: Shapes) -> Iterator[Operator]:
    for weight in weights:
        # A convolution by channel is part of what only moves memory.
        if not weight.products or 1 in weight.shape[:-1]:
            continue
        outputs, inputs = weight.outputs, weight.shape[-1]
        if weight.split == "column":
            outputs //= z.tp
        elif weight.split == "row":
            inputs //= z.tp
        yield from product(weight.name.removesuffix(".weight"), "attention", z.tokens, inputs, outputs, z.item)


def _state_space(x: StateSpace, z: Shapes) -> Iterator[Operator]:
    wide = (2 * x.inner_size + (2 * x.groups * x.state_size + x.heads if x.version == 2 else 0)) // z.tp
    yield from product("state-space input", "attention", z.tokens, z.hidden, wide, z.item)
    forward, backward = moved_between_projections(x, z.tp, z.item)
    yield Operator("scan and convolution", "core", "memory", "forward", 0, z.tokens * forward, kernels=KERNELS[0])
    yield Operator("scan and convolution", "core", "memory", "input", 0, z.tokens * backward, kernels=KERNELS[1])
    yield from product("state-space output", "attention", z.tokens, x.inner_size // z.tp, z.hidden, z.item)


def _delta(x: DeltaNet, z: Shapes) -> Iterator[Operator]:
    k, v = x.key_heads * x.key_head_dim // z.tp, x.value_heads * x.value_head_dim // z.tp
    yield from product("delta-net input", "attention", z.tokens, z.hidden, 2 * k + 2 * v + 2 * x.value_heads // z.tp, z.item)
    yield from moved_only("delta rule and convolution", "attention", z.tokens * (2 * k + v) * z.item, 8, 16)
    yield from product("delta-net output", "attention", z.tokens, v, z.hidden, z.item)
