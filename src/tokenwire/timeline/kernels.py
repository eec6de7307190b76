"""One kernel of a micro-batch, and the shapes that a rank works on; the kernels that all parts of a layer are made of.

A product of m x k by k x n takes 2mkn FLOPs forward, as much for the gradient of its input and of its weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["matmul", "grouped", "attention", "memory"]
Phase = Literal["forward", "input", "weight"]


class Operator(NamedTuple):
    """One kernel of one micro-batch: ``groups`` products of m x k by k x n, or bytes that are moved.

    ``part`` is norm, attention, core, feed_forward, experts, embedding or head. Attention has its shape in (m, k, n) = (sequence, heads,
    KV heads) and (d, d_v), and its window. ``share`` names the share of memory's rate;
    ``cast`` says whether a product's input is cast by a kernel of its own, where products are in 8 bits.
    """

    name: str
    part: str
    kind: Kind
    phase: Phase
    flops: float
    bytes: float
    groups: int = 1
    m: int = 0
    k: int = 0
    n: int = 0
    d: int = 0
    d_v: int = 0
    share: str = "default"
    kernels: int = 1
    window: int = 0
    cast: bool = True


@dataclass(frozen=True)
class Shapes:
    """What a rank works on: tokens of a micro-batch, sizes of the parallelisms, bytes of an activation.

    ``norms_apart``: where torch.compile fuses, the norms of a layer that no residual sum is fused with; None where nothing is fused.
    ``sent_once``: a dispatcher that sends a token once to each rank (DeepEP, HybridEP); ``experts_in_one``: the experts' products, their
    activation, biases and casts are one kernel each way; ``stashed``: what their backward needs is kept in pages, not where it was written.
    """

    tokens: int
    sequence: int
    micro_batch: int
    hidden: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    capacity_factor: float | None = None
    ulysses: bool = False
    unfused: bool = False
    item: float = 2.0
    sent_once: bool = False
    experts_in_one: bool = False
    stashed: bool = False
    norms_apart: int | None = None

    @property
    def own(self) -> int:
        """Return the tokens of norms and residuals: a t-th part with sequence parallelism."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens


def product(name: str, part: str, m: int, k: int, n: int, item: float) -> Iterator[Operator]:
    """Yield a linear layer: the product, the gradient of its input, the gradient of its weight added to fp32."""
    flops = 2.0 * m * k * n
    moved = item * (m * k + k * n + m * n)
    yield Operator(name, part, "matmul", "forward", flops, moved, m=m, k=k, n=n)
    yield Operator(name, part, "matmul", "input", flops, moved, m=m, k=n, n=k)
    yield Operator(name, part, "matmul", "weight", flops, item * (m * k + m * n) + 8.0 * k * n, m=n, k=m, n=k)


def moved_only(name: str, part: str, size: float, forward: float, backward: float) -> Iterator[Operator]:
    """Yield a kernel that moves ``forward`` times ``size`` bytes, and ``backward`` times as many in the backward."""
    yield Operator(name, part, "memory", "forward", 0, forward * size)
    yield Operator(name, part, "memory", "input", 0, backward * size)


def grouped(name: str, groups: int, m: int, k: int, n: int, item: float) -> Iterator[Operator]:
    """Yield ``groups`` products at once, each m x k by k x n, with both gradients."""
    flops = 2.0 * groups * m * k * n
    moved = item * groups * (m * k + k * n + m * n)
    yield Operator(name, "experts", "grouped", "forward", flops, moved, groups, m, k, n)
    yield Operator(name, "experts", "grouped", "input", flops, moved, groups, m, n, k)
    weight = groups * (item * (m * k + m * n) + 8.0 * k * n)
    yield Operator(name, "experts", "grouped", "weight", flops, weight, groups, m, k, n)
