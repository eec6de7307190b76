"""One part of a rank's memory: what it is, how many bytes, at which moments of a step it stands, and how that came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["weights", "gradients", "optimizer", "activations", "head", "buffers", "workspaces", "allocator"]
Moment = Literal["between", "forward", "loss", "head", "backward", "optimizer"]

ALWAYS: tuple[Moment, ...] = ("between", "forward", "loss", "head", "backward", "optimizer")
STANDING: tuple[Moment, ...] = ("forward", "loss", "head", "backward")
"""Moments at which the activations of all micro-batches in flight stand."""
AT_HEAD: tuple[Moment, ...] = ("loss", "head")
AWAY_FROM_HEAD: tuple[Moment, ...] = ("forward", "backward")
MOMENTS: dict[Moment, str] = {
    "between": "between two steps",
    "forward": "as the forward of the last layer ends, with the most micro-batches in flight",
    "loss": "at the loss of a micro-batch, with the most micro-batches in flight",
    "head": "in the backward of the head's product, with the most micro-batches in flight",
    "backward": "in the backward of the last layer, with the most micro-batches in flight",
    "optimizer": "in the optimizer's step",
}
"""Moments of a step that can be the highest, and their words."""


@dataclass(frozen=True)
class Part:
    """``size`` in bytes; ``moments`` at which it stands; ``formula`` in the field's symbols, ``values`` with numbers put in."""

    kind: Kind
    what: str
    size: int
    moments: tuple[Moment, ...] = ALWAYS
    formula: str = ""
    values: str = ""
    source: str = ""
