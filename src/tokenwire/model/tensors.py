"""Every parameter tensor of an architecture: name, shape, and how tensor parallelism cuts it.

Two layouts of the same parameters. ``separate`` keeps the projections as the family keeps them (q, k, v and gate, up
apart; one tensor where the family fuses them), in the order in which torch modules of Hugging Face register them.
``megatron`` fuses q, k, v to ``linear_qkv`` and gate, up to ``linear_fc1``, and has the output projection first, as
Megatron's modules register them (NVIDIA/Megatron-LM, megatron/core/transformer/attention.py, mlp.py,
multi_latent_attention.py, moe/router.py, megatron/core/ssm/mamba_mixer.py): that order fills its gradient buckets.

Cuts are Megatron's: what makes heads, channels or feed-forward width is cut by outputs (column), what takes them in
by inputs (row), token tables by vocabulary; norms, routers, the down-projections of MLA and every bias that is added
after a row-parallel product are held whole by each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from tokenwire.model.adapters import adapter_tensors
from tokenwire.model.architecture import (
    Architecture,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Mixer,
    Norm,
    Split,
    StateSpace,
    Tensor,
    TokenMixer,
    Weight,
)

Layout = Literal["separate", "megatron"]

_NORM_NAMES: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("input_norm",),
    2: ("input_norm", "feed_forward_norm"),
    4: ("input_norm", "post_attention_norm", "feed_forward_norm", "post_feed_forward_norm"),
}


@lru_cache(maxsize=32)
def tensors(arch: Architecture, layout: Layout = "separate") -> tuple[Tensor, ...]:
    """Return every parameter tensor, in order: embedding, layers, final norm, head, then the MTP layers.

    Modules of MTP (not counted by Hugging Face) have the layer indices L, L + 1 ...; a tied head has no tensor of its own.

    >>> from tokenwire.model import preset
    >>> [(t.name, t.shape, t.split) for t in tensors(preset("llama-3.1-8b"))][:3]     # doctest: +NORMALIZE_WHITESPACE
    [('embedding.weight', (128256, 4096), 'vocabulary'),
     ('layers.0.input_norm.weight', (4096,), 'replicated'),
     ('layers.0.attention.q.weight', (4096, 4096), 'column')]
    """
    return tuple(_all(arch, layout))


def _all(arch: Architecture, layout: Layout) -> Iterator[Tensor]:
    h, V = arch.hidden_size, arch.vocabulary_size
    width = arch.embedding_size or h
    yield Tensor("embedding.weight", "embedding", (V, width), None, "vocabulary", 0)
    if arch.positions == "learned":
        yield Tensor("position.weight", "position", (arch.max_positions + arch.position_offset, h))
    if width != h:
        yield Tensor("embedding.project_in.weight", "embedding", (h, width))
    if arch.embedding_norm:
        yield from _norm("embedding_norm", "norm", h, arch.norm, None)
    yield from _outside(arch, "embedding")
    for index, layer in enumerate(arch.layers):
        yield from layer_tensors(arch, layer, index, layout)
    if arch.final_norm:
        yield from _norm("final_norm", "final_norm", h, arch.norm, None)
    yield from _outside(arch, "head")
    if width != h:
        yield Tensor("head.project_out.weight", "head", (width, h))
    if not arch.tied_embeddings:
        yield Tensor("head.weight", "head", (V, width), None, "vocabulary", 0)
    if arch.head_bias:
        yield Tensor("head.bias", "head", (V,), None, "vocabulary", 0)
    for index in range(len(arch.layers), len(arch.layers) + arch.mtp_layers):
        yield from _next_token_layer(arch, index, layout)


def _outside(arch: Architecture, part: str) -> Iterator[Tensor]:
    return (_described(f"{part}.", weight, None) for weight in arch.extra if weight.part == part)


def _described(prefix: str, weight: Weight, layer: int | None) -> Tensor:
    cut = {"column": 0, "row": len(weight.shape) - 1, "vocabulary": 0}.get(weight.split)
    return Tensor(prefix + weight.name, weight.part, weight.shape, layer, weight.split, cut)


def _next_token_layer(arch: Architecture, index: int, layout: Layout) -> Iterator[Tensor]:
    # Embedding and head are shared with the model (megatron/core/transformer/multi_token_prediction.py).
    h = arch.hidden_size
    yield from _norm(f"layers.{index}.embedding_norm", "mtp", h, arch.norm, index)
    yield from _norm(f"layers.{index}.hidden_norm", "mtp", h, arch.norm, index)
    yield Tensor(f"layers.{index}.projection.weight", "mtp", (h, 2 * h), index, "column", 0)
    block = arch.next_token_block
    for place, layer in enumerate(block):
        # Each of several layers has a number of its own in the module.
        name = f"layers.{index}.{place}." if len(block) > 1 else f"layers.{index}."
        for tensor in layer_tensors(arch, layer, index, layout):
            yield replace(tensor, name=tensor.name.replace(f"layers.{index}.", name, 1))
    yield from _norm(f"layers.{index}.final_norm", "mtp", h, arch.norm, index)


def layer_tensors(
    arch: Architecture, layer: Layer, index: int, layout: Layout = "separate"
) -> Iterator[Tensor]:
    """Yield the tensors of one layer: first norm, mixer, the other norms, feed-forward, adapters."""
    names = _NORM_NAMES.get(layer.norms) or tuple(f"norm_{i}" for i in range(layer.norms))
    norms = [
        list(_norm(f"layers.{index}.{name}", "norm", arch.hidden_size, arch.norm, index)) for name in names
    ]
    for norm in norms[:1]:
        yield from norm
    if layer.mixer is not None:
        yield from _mixer(arch, layer.mixer, index, layout)
    for norm in norms[1:]:
        yield from norm
    if isinstance(layer.feed_forward, TokenMixer):
        weights = (replace(one, part="feed_forward") for one in layer.feed_forward.weights)
        yield from (_described(f"layers.{index}.feed_forward.", one, index) for one in weights)
    elif isinstance(layer.feed_forward, Experts):
        yield from _experts(arch, layer.feed_forward, index, layout)
    elif layer.feed_forward is not None:
        prefix = f"layers.{index}.feed_forward"
        yield from _feed_forward(arch, layer.feed_forward, prefix, "feed_forward", index, layout)
    if layer.extra is not None:
        yield from (_described(f"layers.{index}.", one, index) for one in layer.extra.weights if one.held)
    if arch.adapters is not None:
        yield from adapter_tensors(arch.hidden_size, layer, index, arch.adapters)


def trains(arch: Architecture, tensor: Tensor) -> bool:
    """Return whether a tensor is trained: beside adapters, only they are."""
    return arch.adapters is None or tensor.part == "adapter"


def _norm(name: str, part: str, size: int, norm: Norm, layer: int | None) -> Iterator[Tensor]:
    if norm.weight:
        yield Tensor(f"{name}.weight", part, (size,), layer)
    if norm.bias:
        yield Tensor(f"{name}.bias", part, (size,), layer)


def _linear(
    name: str,
    part: str,
    outputs: int,
    inputs: int,
    layer: int,
    split: Split = "replicated",
    *,
    bias: bool = False,
) -> Iterator[Tensor]:
    # A row-parallel product is summed over ranks first, so its bias is added once and held whole.
    cut = {"column": 0, "row": 1}.get(split)
    yield Tensor(f"{name}.weight", part, (outputs, inputs), layer, split, cut)
    if bias and split == "column":
        yield Tensor(f"{name}.bias", part, (outputs,), layer, "column", 0)
    elif bias:
        yield Tensor(f"{name}.bias", part, (outputs,), layer)


# Mixers -------------------------------------------------------------------------------------------------------------


def _mixer(arch: Architecture, mixer: Mixer, layer: int, layout: Layout) -> Iterator[Tensor]:
    if isinstance(mixer, Attention):
        return _attention(arch, mixer, layer, layout)
    if isinstance(mixer, LatentAttention):
        return _latent_attention(arch, mixer, layer, layout)
    if isinstance(mixer, DeltaNet):
        return _delta_net(arch, mixer, layer)
    if isinstance(mixer, TokenMixer):
        return (_described(f"layers.{layer}.mixer.", one, layer) for one in mixer.weights if one.held)
    return _mamba(arch, mixer, layer) if mixer.version == 1 else _mamba2(arch, mixer, layer)


def _attention(arch: Architecture, a: Attention, layer: int, layout: Layout) -> Iterator[Tensor]:
    h, d, d_v = arch.hidden_size, a.head_dim, a.value_head_dim or a.head_dim
    q, k, v = a.heads * d * (2 if a.gate else 1), a.key_width, a.value_width
    prefix = f"layers.{layer}.attention"
    output = list(_linear(f"{prefix}.output", "mixer", h, a.heads * d_v, layer, "row", bias=a.output_bias))
    if layout == "megatron":
        yield from output
    if a.sinks:
        # One offset of the softmax a head, with its head (megatron/core/transformer/dot_product_attention.py).
        yield Tensor(f"{prefix}.sinks", "mixer", (a.heads,), layer, "column", 0)
    if (a.fused_qkv or layout == "megatron") and a.key_bias:
        # Where Megatron's products have biases, this one has (attention.py, add_bias_linear or add_qkv_bias).
        qkv_bias = a.qkv_bias or (a.output_bias and layout == "megatron")
        yield from _linear(f"{prefix}.qkv", "mixer", q + k + v, h, layer, "column", bias=qkv_bias)
    else:
        yield from _linear(f"{prefix}.q", "mixer", q, h, layer, "column", bias=a.qkv_bias)
        if k:
            yield from _linear(f"{prefix}.k", "mixer", k, h, layer, "column", bias=a.qkv_bias and a.key_bias)
        if v:
            yield from _linear(f"{prefix}.v", "mixer", v, h, layer, "column", bias=a.qkv_bias)
    if layout != "megatron":
        yield from output
    if a.qk_norm != "none":
        # Megatron's norms are all of one kind.
        norm = Norm(bias=a.qk_norm_bias or (arch.norm.bias and layout == "megatron"))
        for name, heads in (("q_norm", a.heads), ("k_norm", a.kv_heads))[: 2 if k else 1]:
            size = d if a.qk_norm == "head" else heads * d
            for tensor in _norm(f"{prefix}.{name}", "mixer", size, norm, layer):
                # A weight for each head goes with its head; one over all heads needs all of it on every rank.
                each = a.qk_norm == "each"
                yield Tensor(
                    tensor.name,
                    "mixer",
                    tensor.shape,
                    layer,
                    "column" if each else "replicated",
                    0 if each else None,
                )


def _latent_attention(arch: Architecture, a: LatentAttention, layer: int, layout: Layout) -> Iterator[Tensor]:
    h = arch.hidden_size
    d_qk, prefix = a.qk_nope_head_dim + a.qk_rope_head_dim, f"layers.{layer}.attention"
    # Megatron's projections to queries, keys and values have no bias, and its norms are all of one kind.
    down_bias, norm = a.qkv_bias and layout != "megatron", Norm(bias=arch.norm.bias and layout == "megatron")
    output = list(
        _linear(f"{prefix}.output", "mixer", h, a.heads * a.v_head_dim, layer, "row", bias=a.output_bias)
    )
    if layout == "megatron":
        yield from output
    if a.q_lora_rank is None:
        yield from _linear(f"{prefix}.q", "mixer", a.heads * d_qk, h, layer, "column")
    else:
        # Transformer Engine's spec holds the down-projections whole ("duplicated").
        yield from _linear(f"{prefix}.q_down", "mixer", a.q_lora_rank, h, layer, bias=down_bias)
        yield from _norm(f"{prefix}.q_norm", "mixer", a.q_lora_rank, norm, layer)
        yield from _linear(f"{prefix}.q_up", "mixer", a.heads * d_qk, a.q_lora_rank, layer, "column")
    yield from _linear(f"{prefix}.kv_down", "mixer", a.kv_lora_rank + a.qk_rope_head_dim, h, layer, bias=down_bias)
    yield from _norm(f"{prefix}.kv_norm", "mixer", a.kv_lora_rank, norm, layer)
    d_kv = a.qk_nope_head_dim + a.v_head_dim
    yield from _linear(f"{prefix}.kv_up", "mixer", a.heads * d_kv, a.kv_lora_rank, layer, "column")
    if a.indexer is not None:
        yield from _indexer(h, a, f"{prefix}.indexer", layer)
    if layout != "megatron":
        yield from output


def _indexer(h: int, a: LatentAttention, prefix: str, layer: int) -> Iterator[Tensor]:
    # Every rank scores all tokens with all heads, so all of it is held whole (deepseek-ai/DeepSeek-V3.2-Exp, inference/model.py, Indexer).
    assert a.indexer is not None
    x = a.indexer
    yield from _linear(f"{prefix}.q_up", "mixer", x.heads * x.head_dim, a.q_lora_rank or h, layer)
    yield from _linear(f"{prefix}.k", "mixer", x.head_dim, h, layer)
    yield from _norm(f"{prefix}.k_norm", "mixer", x.head_dim, Norm("layer", bias=True), layer)
    yield from _linear(f"{prefix}.head_weights", "mixer", x.heads, h, layer)


def _mamba(arch: Architecture, m: StateSpace, layer: int) -> Iterator[Tensor]:
    h, D, N, R, prefix = arch.hidden_size, m.inner_size, m.state_size, m.dt_rank, f"layers.{layer}.mamba"
    yield Tensor(f"{prefix}.A_log", "mixer", (D, N), layer, "column", 0)
    yield Tensor(f"{prefix}.D", "mixer", (D,), layer, "column", 0)
    yield Tensor(f"{prefix}.conv.weight", "mixer", (D, 1, m.conv_kernel), layer, "column", 0)
    if m.conv_bias:
        yield Tensor(f"{prefix}.conv.bias", "mixer", (D,), layer, "column", 0)
    yield from _linear(f"{prefix}.in", "mixer", 2 * D, h, layer, "column", bias=m.bias)
    yield from _linear(f"{prefix}.x", "mixer", R + 2 * N, D, layer, "row")
    yield from _linear(f"{prefix}.dt", "mixer", D, R, layer, "column", bias=True)
    yield from _linear(f"{prefix}.out", "mixer", h, D, layer, "row", bias=m.bias)
    if m.inner_norms:
        for name, size in (("dt_norm", R), ("b_norm", N), ("c_norm", N)):
            yield Tensor(f"{prefix}.{name}.weight", "mixer", (size,), layer)


def _mamba2(arch: Architecture, m: StateSpace, layer: int) -> Iterator[Tensor]:
    h, D, prefix = arch.hidden_size, m.inner_size, f"layers.{layer}.mamba"
    channels = D + 2 * m.groups * m.state_size
    for name in ("dt_bias", "A_log", "D"):
        yield Tensor(f"{prefix}.{name}", "mixer", (m.heads,), layer, "column", 0)
    yield Tensor(f"{prefix}.conv.weight", "mixer", (channels, 1, m.conv_kernel), layer, "column", 0)
    if m.conv_bias:
        yield Tensor(f"{prefix}.conv.bias", "mixer", (channels,), layer, "column", 0)
    yield from _linear(f"{prefix}.in", "mixer", D + channels + m.heads, h, layer, "column", bias=m.bias)
    if m.inner_norms:
        yield Tensor(f"{prefix}.norm.weight", "mixer", (D,), layer, "column", 0)
    yield from _linear(f"{prefix}.out", "mixer", h, D, layer, "row", bias=m.bias)


def _delta_net(arch: Architecture, m: DeltaNet, layer: int) -> Iterator[Tensor]:
    h, prefix = arch.hidden_size, f"layers.{layer}.delta_net"
    K, V = m.key_heads * m.key_head_dim, m.value_heads * m.value_head_dim
    yield Tensor(f"{prefix}.dt_bias", "mixer", (m.value_heads,), layer, "column", 0)
    yield Tensor(f"{prefix}.A_log", "mixer", (m.value_heads,), layer, "column", 0)
    yield Tensor(f"{prefix}.conv.weight", "mixer", (2 * K + V, 1, m.conv_kernel), layer, "column", 0)
    yield from _linear(f"{prefix}.qkvz", "mixer", 2 * K + 2 * V, h, layer, "column")
    yield from _linear(f"{prefix}.ba", "mixer", 2 * m.value_heads, h, layer, "column")
    yield Tensor(f"{prefix}.norm.weight", "mixer", (m.value_head_dim,), layer)
    yield from _linear(f"{prefix}.out", "mixer", h, V, layer, "row")


# Feed-forward -------------------------------------------------------------------------------------------------------


def _feed_forward(
    arch: Architecture, f: FeedForward, prefix: str, part: str, layer: int, layout: Layout
) -> Iterator[Tensor]:
    h = arch.hidden_size
    if f.gated and (layout == "megatron" or f.fused):
        yield from _linear(f"{prefix}.gate_up", part, 2 * f.width, h, layer, "column", bias=f.bias)
    else:
        for name in ("gate", "up") if f.gated else ("up",):
            yield from _linear(f"{prefix}.{name}", part, f.width, h, layer, "column", bias=f.bias)
    yield from _linear(f"{prefix}.down", part, h, f.width, layer, "row", bias=f.bias)
    if f.activation == "xielu":
        # Two learned numbers of the activation (Apertus).
        yield Tensor(f"{prefix}.activation", part, (2,), layer)


def _experts(arch: Architecture, e: Experts, layer: int, layout: Layout) -> Iterator[Tensor]:
    h, E, f, prefix = arch.hidden_size, e.count, e.width, f"layers.{layer}"
    inner = e.latent_size or h
    # Megatron has one option for the biases of all products, the router's among them (moe/router.py, Router.__init__).
    router_bias = e.router_bias or (e.bias and layout == "megatron")
    yield from _linear(f"{prefix}.router", "router", E + e.identities, h, layer, bias=router_bias)
    if e.correction_parameter:
        yield Tensor(f"{prefix}.router.correction", "router", (E,), layer)
    if e.latent_size:
        yield from _linear(f"{prefix}.latent_down", "shared_experts", inner, h, layer, bias=e.latent_bias)
        yield from _linear(f"{prefix}.latent_up", "shared_experts", h, inner, layer, bias=e.latent_bias)
    rows: tuple[tuple[str, int], ...] = (("gate", f), ("up", f)) if e.gated else (("up", f),)
    if e.gated and layout == "megatron":
        rows = (("gate_up", 2 * f),)
    for name, width in rows:
        yield Tensor(f"{prefix}.experts.{name}.weight", "experts", (E, width, inner), layer, "column", 1)
        if e.bias:
            yield Tensor(f"{prefix}.experts.{name}.bias", "experts", (E, width), layer, "column", 1)
    yield Tensor(f"{prefix}.experts.down.weight", "experts", (E, inner, f), layer, "row", 2)
    if e.bias:
        yield Tensor(f"{prefix}.experts.down.bias", "experts", (E, inner), layer)
    if e.shared is not None:
        yield from _feed_forward(arch, e.shared, f"{prefix}.shared_experts", "shared_experts", layer, layout)
    if e.shared_gate:
        yield from _linear(f"{prefix}.shared_experts.gate_of_all", "shared_experts", 1, h, layer)
