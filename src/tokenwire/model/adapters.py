"""Low-rank adapters (LoRA: Hu et al. 2021): two thin matrices beside a product, which are trained while the model's own weights are not.

A product of k to n gets one of k to r and one of r to n, whose results are added. Modules by Megatron's names; how tensor parallelism cuts
adapters: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/utils.py (ParallelLinearAdapter): the first by its outputs beside a
column-parallel product and by its inputs beside a row-parallel one, the second by its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tokenwire.model.architecture import Adapters, Attention, FeedForward, Layer, Split, Tensor


class Product(NamedTuple):
    """A product of a layer: its module's name, its inputs and outputs, and whether its outputs are cut (column-parallel)."""

    module: str
    inputs: int
    outputs: int
    column: bool


MODULES = ("linear_proj", "linear_qkv", "linear_fc1", "linear_fc2")
"""Modules that adapters can stand beside, in the order in which Megatron registers them."""


@dataclass(frozen=True)
class Beside:
    """An adapter of a layer: the product that it stands beside, and the numbers between its two matrices."""

    product: Product
    rank: int

    @property
    def elements(self) -> int:
        """Return the elements of both matrices."""
        return self.rank * (self.product.inputs + self.product.outputs)


def products(hidden: int, layer: Layer) -> Iterator[Product]:
    """Yield the products of attention and of a dense feed-forward part, in the order of ``MODULES``."""
    a, f = layer.mixer, layer.feed_forward
    if isinstance(a, Attention):
        d, d_v = a.head_dim, a.value_head_dim or a.head_dim
        yield Product("linear_proj", a.heads * d_v, hidden, False)
        yield Product("linear_qkv", hidden, a.heads * d * (2 if a.gate else 1) + a.kv_heads * (d + d_v), True)
    if isinstance(f, FeedForward):
        yield Product("linear_fc1", hidden, f.width * (2 if f.gated else 1), True)
        yield Product("linear_fc2", f.width, hidden, False)


def beside(hidden: int, layer: Layer, adapters: Adapters) -> tuple[Beside, ...]:
    """Return the adapters of a layer.

    >>> from tokenwire.model.architecture import Attention, FeedForward
    >>> layer = Layer(Attention(8, 4, 8), FeedForward(176, True))
    >>> [one.elements for one in beside(64, layer, Adapters(4, ("linear_qkv",)))]      # 4·(64 + 64 + 2·32)
    [768]
    """
    return tuple(
        Beside(one, adapters.rank) for one in products(hidden, layer) if one.module in adapters.modules
    )


def adapter_tensors(hidden: int, layer: Layer, index: int, adapters: Adapters) -> Iterator[Tensor]:
    """Yield the tensors of a layer's adapters; shapes are (outputs, inputs)."""
    for one in beside(hidden, layer, adapters):
        name, (_, inputs, outputs, column) = f"layers.{index}.{one.product.module}.adapter", one.product
        split: Split = "column" if column else "row"
        yield Tensor(f"{name}.in.weight", "adapter", (one.rank, inputs), index, split, 0 if column else 1)
        yield Tensor(f"{name}.out.weight", "adapter", (outputs, one.rank), index, "column", 0)
