"""Where one token of the text is worked on in a step: which replica, micro-batch, slot and position.

The text is packed into sequences of s tokens in order; a global batch takes B of them. Sequences go to replicas as
Megatron's sampler deals them (Megatron-LM, megatron/training/datasets/data_samplers.py, MegatronPretrainingSampler): a
micro-step takes b·D sequences in order, and replica r the r-th b of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenwire.errors import InputError

if TYPE_CHECKING:
    from tokenwire.journey.journey import Journey


@dataclass(frozen=True)
class Placement:
    """A token's place: ``token`` in the text, ``sequence`` in the packed text, ``position`` in the sequence.

    ``step`` counts optimizer steps from 0, ``micro_batch`` and ``slot`` are inside that step, ``replica`` is the
    data-parallel rank. ``padding`` sequences (of the last, unfilled batch) hold no token, so have no placement.
    """

    token: int
    sequence: int
    position: int
    step: int
    micro_batch: int
    replica: int
    slot: int


def placement_of(token: int, *, s: int, B: int, b: int, D: int) -> Placement:
    """Return where a token goes for sequences of ``s``, global batch ``B``, micro-batch ``b``, ``D`` replicas.

    >>> placement_of(1000, s=256, B=16, b=2, D=2)     # sequence 3 = replica 1's second slot of micro-batch 0
    Placement(token=1000, sequence=3, position=232, step=0, micro_batch=0, replica=1, slot=1)
    """
    sequence, position = divmod(token, s)
    step, in_batch = divmod(sequence, B)
    micro_batch, in_micro = divmod(in_batch, b * D)
    replica, slot = divmod(in_micro, b)
    return Placement(token, sequence, position, step, micro_batch, replica, slot)


def placement(journey: Journey, token: int) -> Placement:
    """Return the placement of a token of the journey's text. Raises ``InputError`` for a token that is not there."""
    count = len(journey.encoding().ids)
    if not 0 <= token < count:
        raise InputError(f"token {token}", rule=f"the text has tokens 0 to {count - 1:,}", nearest=str(min(max(token, 0), count - 1)))
    training = journey.config.training
    return placement_of(
        token, s=training.sequence_length, B=training.global_batch, b=training.micro_batch, D=journey.plan().dp
    )
