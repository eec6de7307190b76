"""What a pipeline rank does, one action at a time, and the shape of a schedule.

A stage is a virtual stage, counted along the model: with v of them a rank, stage s of looped schedules stands on rank
s mod p; V-shaped schedules turn round at the last rank. DualPipe runs two copies of the pipeline in opposite directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]
"""Forward; whole backward; backward for the input; backward for the weights."""


class Action(NamedTuple):
    """One action: ``stage`` along the model, ``micro_batch`` of the step, ``direction`` 1 in DualPipe's reverse copy."""

    kind: Kind
    stage: int
    micro_batch: int
    direction: int = 0

    def __str__(self) -> str:
        """Return stage, kind and micro-batch, as torch.distributed.pipelining prints them."""
        return f"{self.stage}{self.kind}{self.micro_batch}" + ("'" if self.direction else "")


class Message(NamedTuple):
    """A send or receive of the rank that has ``stage``: its activations (F) or the gradients of its input or output (B).

    ``before`` is the place of the rank's action before which it is carried out, together with the others of that place.
    """

    op: Literal["send", "recv"]
    kind: Literal["F", "B"]
    stage: int
    micro_batch: int
    direction: int = 0
    before: int = 0


@dataclass(frozen=True)
class Schedule:
    """The ordered actions of each pipeline rank; ``stages`` counts the virtual stages, ``copies`` those of the parameters.

    ``messages`` are the sends and receives of each rank in the order in which they are asked for, where a schedule fixes it.
    """

    name: str
    ranks: tuple[tuple[Action, ...], ...]
    stages: int
    micro_batches: int
    copies: int = 1
    messages: tuple[tuple[Message, ...], ...] = ()


def looped_rank(stage: int, ranks: int) -> int:
    """Return the rank of a stage where stages go round and round.

    >>> [looped_rank(stage, 2) for stage in range(4)]
    [0, 1, 0, 1]
    """
    return stage % ranks


def v_rank(stage: int, ranks: int) -> int:
    """Return the rank of a stage where stages turn round at the last rank.

    >>> [v_rank(stage, 2) for stage in range(4)]
    [0, 1, 1, 0]
    """
    return stage if stage < ranks else 2 * ranks - 1 - stage
