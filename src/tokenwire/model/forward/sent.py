"""What a forward pass says: one ``Sent`` a communication, with the arrays that its ranks bring to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sent:
    """One communication of one micro-batch.

    ``ranks`` has an array a rank of the tensor-parallel group: its partial sum (``all_reduce``, ``reduce_scatter``), its
    part of the sequence (``all_gather``), or what it sends to the same rank of stage ``peer`` (``send``). Activations are
    [s, b, h] (with sequence parallelism parts of s), the embedding's all_reduce is [b, s, h], the loss's [s, b]; all
    float32. ``layer`` is the layer that the call is in (the last one of the stage for a ``send``), None outside layers.
    ``what`` has the names of the table of operations.
    """

    op: Literal["all_reduce", "reduce_scatter", "all_gather", "send"]
    group: Literal["tp", "pp"]
    what: str
    stage: int
    layer: int | None
    ranks: tuple[Floats, ...]
    peer: int | None = None
    reduction: Literal["sum", "max", ""] = ""

    @property
    def elements(self) -> int:
        """Return the elements of the full tensor of the call: what an all_gather puts out, what a rank brings to the others."""
        return self.ranks[0].size * (len(self.ranks) if self.op == "all_gather" else 1)

    @property
    def result(self) -> Floats:
        """Return what the call makes of the arrays, put together from all ranks: the sum, or the whole sequence."""
        if self.op in ("all_reduce", "reduce_scatter"):
            return np.maximum.reduce(self.ranks) if self.reduction == "max" else _sum(self.ranks)
        if self.op == "all_gather":
            return np.concatenate(self.ranks, axis=0)
        return self.ranks[0]


def _sum(parts: tuple[Floats, ...]) -> Floats:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


@dataclass(frozen=True)
class Forward:
    """A forward pass of one micro-batch: ``hidden`` [s, b, h] after the last stage that was run, ``logits`` [s, b, V] and
    ``loss`` [s, b] (nats a token) where that was the last one, and everything ``sent`` on the way, in order.
    """

    hidden: Floats
    logits: Floats | None
    loss: Floats | None
    sent: tuple[Sent, ...]
