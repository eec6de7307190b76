"""The true numbers of a message: the forward pass of the first stage, as its ranks compute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.journey.carried.message import Bits
from tokenwire.journey.carried.place import Inner, Message
from tokenwire.journey.placement import Placement

if TYPE_CHECKING:
    from tokenwire.journey.journey import Journey

LARGEST = 3 * 10**10
"""Multiplications (parameters of the first stage x tokens) up to which its forward pass is worth waiting for: about 2 s."""


@dataclass(frozen=True)
class Numbers:
    """What the sender brings: the whole array [s, b, h] of its rank as bfloat16 bits, or only the token's row."""

    whole: Bits | None
    row: Bits
    truth: str


def activation(journey: Journey, token: int, place: Placement, op: str, rank: int) -> Numbers:
    """Return what tensor rank ``rank`` of the first stage sends by ``op``; of too large a model only the token's embedding row."""
    from tokenwire.model import bfloat16_bits, embedding_row

    plan, arch, training = journey.plan(), journey.model().architecture, journey.config.training
    first = plan.stages[0].chunks[0]
    share = journey.model().parameters.total * max(len(first), 1) / max(len(arch.layers), 1)
    too_large = share * training.micro_batch * training.sequence_length > LARGEST
    sent = None if too_large else _forward_sent(journey, place, op)
    if sent is None:
        row = bfloat16_bits(embedding_row(arch, int(journey.encoding().ids[token])))
        reason = "is too large to be run here" if too_large else "has no forward pass here"
        return Numbers(None, row, f"the token's embedding row, seeded: the model {reason}, and its layers add to that row")
    # A send's ranks have parts of the sequence, or all of it each; a partial sum is over the whole sequence.
    parts = sent.ranks if op == "send" else sent.ranks[rank : rank + 1]
    array = bfloat16_bits(parts[0] if len(parts[0]) == training.sequence_length else np.concatenate(parts))
    kind = f"activation after layer {first[-1]}" if op == "send" else f"partial sum of tensor rank {rank} in layer 0"
    return Numbers(array, array[0, 0], f"the token's true {kind}, of a seeded model")


def _forward_sent(journey: Journey, place: Placement, op: str) -> Any:
    from tokenwire.model.forward import forward

    plan, arch = journey.plan(), journey.model().architecture
    stages = [list(stage.chunks[0]) for stage in plan.stages] if plan.pp > 1 else [list(range(len(arch.layers)))]
    if op != "send":
        # Layer 0 is enough: the rest counts as a stage that is not run.
        stages = [[0], list(range(1, len(arch.layers)))] if len(arch.layers) > 1 else [[0]]
    elif plan.vpp > 1:
        used = [layer for stage in stages for layer in stage]
        stages.append([layer for layer in range(len(arch.layers)) if layer not in used])
    try:
        run = forward(
            arch, micro_batch_ids(journey, place), tp=plan.tp, sequence_parallel=plan.sequence_parallel, stages=stages,
            upto_stage=0, vocabulary_rows=plan.vocabulary_size,
        )  # fmt: skip
    except InputError:
        return None
    wanted = [sent for sent in run.sent if sent.op == op and (op == "send" or sent.what == "attention output")]
    return wanted[0] if wanted else None


def micro_batch_ids(journey: Journey, place: Placement) -> npt.NDArray[np.int32]:
    """Return the token ids of a token's micro-batch, int32[b, s]; where the text has ended, id 0 stands."""
    from tokenwire.tokens import pack

    training, plan = journey.config.training, journey.plan()
    packing = pack(journey.encoding(), journey.text(), training.sequence_length)
    B, b = training.global_batch, training.micro_batch
    start = place.step * B + place.micro_batch * b * plan.dp + place.replica * b
    out = np.zeros((b, training.sequence_length), dtype=np.int32)
    held = packing.ids[start : start + b]
    out[: len(held)] = np.maximum(held, 0)
    return out


def message_bytes(numbers: Numbers, shape: Message, inner: Inner) -> tuple[bytes | None, Bits]:
    """Return the bytes of the whole message, where they were computed, and the token's own numbers."""
    if numbers.whole is None:
        return None, numbers.row
    array = numbers.whole
    if inner.c > 1:
        pieces = np.split(array, 2 * inner.c)
        array = np.concatenate([pieces[inner.context], pieces[2 * inner.c - 1 - inner.context]])
    array = array[inner.part * inner.local : (inner.part + 1) * inner.local]
    laid = array if shape.sequence_first else array.transpose(1, 0, 2)
    return np.ascontiguousarray(laid).tobytes(), array[inner.row, inner.slot]
