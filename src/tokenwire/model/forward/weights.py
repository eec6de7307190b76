"""Seeded weights, tensor by tensor, and the part of each that a tensor-parallel rank holds.

N(0, 0.02²), and for the products that end a block 0.02/sqrt(2L) (Radford et al. 2019, section 2.3; Megatron's
``scaled_init_method_normal``). Biases are drawn too, though training begins with zeros, so that none can be forgotten or added
twice unseen; the weights of norms are ones. A tensor depends on nothing but the seed and its name, so a stage is made alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Attention, FeedForward
from tokenwire.model.vectors import STD, Floats, draw


def product(x: Floats, weight: Floats) -> Floats:
    """Return x·Wᵀ for x [..., inputs] and W (outputs, inputs), as one matrix product."""
    flat: Floats = x.reshape(-1, x.shape[-1]) @ weight.T
    return flat.reshape(*x.shape[:-1], weight.shape[0])


@dataclass(frozen=True)
class Linear:
    """A product y = x·Wᵀ + b: weight (outputs, inputs), bias (outputs) or None."""

    weight: Floats
    bias: Floats | None

    def columns(self, rank: int, of: int) -> Linear:
        """Return the outputs that a rank holds (column-parallel)."""
        rows = _part(self.weight.shape[0], rank, of)
        return Linear(self.weight[rows], None if self.bias is None else self.bias[rows])

    def rows(self, rank: int, of: int) -> Linear:
        """Return the inputs that a rank holds (row-parallel); the bias is added after the sum, by everyone."""
        return Linear(self.weight[:, _part(self.weight.shape[1], rank, of)], None)

    def __call__(self, x: Floats) -> Floats:
        """Return the product for [..., inputs]."""
        y = product(x, self.weight)
        return y if self.bias is None else y + self.bias


def _part(size: int, rank: int, of: int) -> slice:
    return slice(rank * size // of, (rank + 1) * size // of)


@dataclass(frozen=True)
class LayerWeights:
    """The products of one layer; ``gate`` is None where the feed-forward part is not gated."""

    q: Linear
    k: Linear
    v: Linear
    output: Linear
    gate: Linear | None
    up: Linear
    down: Linear
    norm_biases: tuple[Floats | None, Floats | None]


def layer_weights(arch: Architecture, index: int, seed: int) -> LayerWeights:
    """Return the weights of a layer. Raises ``InputError`` for a layer that the forward pass does not know."""
    layer, h = arch.layers[index], arch.hidden_size
    a, f = layer.mixer, layer.feed_forward
    plain = isinstance(a, Attention) and a.qk_norm == "none" and not a.sinks and not a.gate and a.key_bias
    if not plain or not isinstance(f, FeedForward) or layer.norms != 2 or layer.parallel:
        raise InputError(
            f"model {arch.name}",
            rule=f"layer {index} is not of the GPT-2 or Llama kind, the only ones with a forward pass",
        )
    assert isinstance(a, Attention)
    prefix, end = f"layers.{index}", 1 / math.sqrt(2 * len(arch.layers))
    d, d_v = a.head_dim, a.value_head_dim or a.head_dim

    def linear(name: str, outputs: int, inputs: int, bias: bool, scale: float = 1.0) -> Linear:
        weight = draw(f"{prefix}.{name}.weight", 0, (outputs, inputs), seed)
        weight *= np.float32(STD * scale)
        return Linear(weight, _bias(f"{prefix}.{name}.bias", outputs, seed) if bias else None)

    return LayerWeights(
        q=linear("attention.q", a.heads * d, h, a.qkv_bias),
        k=linear("attention.k", a.kv_heads * d, h, a.qkv_bias),
        v=linear("attention.v", a.kv_heads * d_v, h, a.qkv_bias),
        output=linear("attention.output", h, a.heads * d_v, a.output_bias, end),
        gate=linear("feed_forward.gate", f.width, h, f.bias) if f.gated else None,
        up=linear("feed_forward.up", f.width, h, f.bias),
        down=linear("feed_forward.down", h, f.width, f.bias, end),
        norm_biases=(
            norm_bias(arch, f"{prefix}.input_norm", seed),
            norm_bias(arch, f"{prefix}.feed_forward_norm", seed),
        ),
    )


def norm_bias(arch: Architecture, name: str, seed: int) -> Floats | None:
    """Return the bias of a norm, float32[h], or None where the architecture's norms have none."""
    return _bias(f"{name}.bias", arch.hidden_size, seed) if arch.norm.bias else None


def _bias(name: str, size: int, seed: int) -> Floats:
    return draw(name, 0, size, seed) * np.float32(STD)
