"""The first message that carries a token's vector from one GPU to another, with its true bits.

With a pipeline that is the send of its activation to the stage after; else, with tensor parallelism, the partial sums of
the first attention's output; else (data parallelism alone moves no activation) the row of the token in the embedding
table, in the all_gather of weights, or the place of that row's gradient in the reduction of gradients.

Symbols: b micro-batch, s sequence, h hidden, t tensor-parallel ranks, c context-parallel ranks. Activations lie in memory
as [s, b, h] (Megatron-LM, megatron/core/models/gpt/gpt_model.py), in torch dialects as [b, s, h]; bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.journey.carried.message import Carried, window
from tokenwire.journey.carried.numbers import Numbers, activation, message_bytes
from tokenwire.journey.carried.place import Inner, Message, ranks_of
from tokenwire.journey.carried.weights import row_of_weights
from tokenwire.journey.placement import Placement

if TYPE_CHECKING:
    from tokenwire.journey.journey import Journey


def carried(journey: Journey, token: int) -> Carried | None:
    """Return the message that carries a token, or None where nothing is sent (one GPU)."""
    plan, place = journey.plan(), journey.placement(token)
    if plan.pp > 1:
        return _stage_boundary(journey, token, place)
    if plan.tp > 1:
        return _partial_sum(journey, token, place)
    return row_of_weights(journey, token)


def _stage_boundary(journey: Journey, token: int, place: Placement) -> Carried:
    plan = journey.plan()
    t = plan.tp if plan.sequence_parallel else 1
    inner = Inner(journey, place, cuts=t)
    shape = Message(inner, journey.config.plan.dialect)
    ranks = ranks_of(journey, place, tp=inner.part)
    numbers = activation(journey, token, place, "send", inner.part)
    return _made(
        numbers, shape, inner, op="send", group="pp", what="activations to the stage after",
        layer=plan.stages[0].chunks[0][-1] if plan.stages[0].chunks[0] else None, source=ranks(0), target=ranks(1),
    )  # fmt: skip


def _partial_sum(journey: Journey, token: int, place: Placement) -> Carried:
    plan = journey.plan()
    # A ring moves its tensor in t parts; the part that the token is in leaves the rank before its owner's turn comes.
    inner = Inner(journey, place, cuts=plan.tp)
    shape = Message(inner, journey.config.plan.dialect)
    ranks = ranks_of(journey, place, tp=(inner.part + 1) % plan.tp)
    after = ranks_of(journey, place, tp=(inner.part + 2) % plan.tp)
    op = "reduce_scatter" if plan.sequence_parallel else "all_reduce"
    numbers = activation(journey, token, place, op, (inner.part + 1) % plan.tp)
    return _made(
        numbers, shape, inner, op=op, group="tp", what="attention output", layer=0, source=ranks(0),
        target=after(0),
    )  # fmt: skip


def _made(
    numbers: Numbers, shape: Message, inner: Inner, *, op: str, group: str, what: str, layer: int | None, source: int,
    target: int,
) -> Carried:  # fmt: skip
    data, row = message_bytes(numbers, shape, inner)

    def around(first: int, last: int) -> bytes:
        return data[first:last] if data is not None else window(row.tobytes(), shape.offset, first, last)

    return Carried(
        op=op, group=group, what=what, dtype="bf16", stage=0, layer=layer, source=source, target=target,
        message_bytes=shape.bytes, offset=shape.offset, length=shape.length, offset_figure=shape.figure, bits=row,
        truth=numbers.truth, around=around,
    )  # fmt: skip
