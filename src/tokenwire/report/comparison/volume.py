"""What a step sends: bytes by all GPUs together, per token of the batch, and what they would be with the headers of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenwire.needs import messages
from tokenwire.step import operations

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan
    from tokenwire.wire import WireConfig


SENT = "W counts tensors, without headers: inside a node they go over NVLink, which has none of RoCE"
"""What the comparisons of tokenizers and widths count."""


@dataclass(frozen=True)
class Volume:
    """A step's bytes. ``gpus`` and ``tokens`` (of the global batch) are what it is shared among; ``plan`` how.

    ``sent_bytes`` are of tensors; ``wire_bytes`` what they are with the framing of the network, if all of them crossed it.
    """

    gpus: int
    tokens: int
    sent_bytes: int
    wire_bytes: int
    messages: int
    largest_message: int
    plan: Plan

    @property
    def per_token(self) -> float:
        """Return the bytes sent for each token trained, all GPUs together; inside a node they get no headers of the network."""
        return self.sent_bytes / self.tokens


def volume(arch: Architecture, plan: Plan, wire: WireConfig) -> Volume:
    """Return the volume of one step, as if every message went over the network with the framing of ``wire``.

    Each stage's ranks say the same, so a stage counts ``world / pp`` times.
    """
    return total(messages(operations(arch, plan), wire), plan)


def total(sent: pl.DataFrame, plan: Plan) -> Volume:
    """Return the sums over the rows of ``needs.messages``."""
    ranks = sent["senders"] * (plan.world // plan.pp)
    return Volume(
        gpus=plan.world,
        tokens=plan.training.global_batch * plan.training.sequence_length,
        sent_bytes=round((sent["message"] * sent["messages"] * ranks).sum()),
        wire_bytes=round((sent["wire_bytes"] * ranks).sum()),
        messages=round((sent["messages"] * ranks).sum()),
        largest_message=max(sent["message"], default=0),
        plan=plan,
    )
