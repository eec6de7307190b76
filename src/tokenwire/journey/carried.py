"""The first message that carries a token's vector from one GPU to another, with its true bits.

With a pipeline that is the send of its activation to the stage after; else, with tensor parallelism, the partial sums of
the first attention's output; else (data parallelism alone moves no activation) the row of the token in the embedding
table, in the all_gather of weights, or the place of that row's gradient in the reduction of gradients.

Symbols: b micro-batch, s sequence, h hidden, t tensor-parallel ranks, c context-parallel ranks. Activations lie in memory
as [s, b, h] (Megatron-LM, megatron/core/models/gpt/gpt_model.py), in torch dialects as [b, s, h]; bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.journey.placement import Placement
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey.journey import Journey

LARGEST = 3 * 10**10
"""Multiplications (parameters of the first stage x tokens) up to which its forward pass is worth waiting for: about 2 s."""

Bits = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Carried:
    """A message and where the token is in it.

    ``op``, ``group``, ``what``, ``dtype`` are those of the step's row; ``source`` and ``target`` are ranks, ``stage`` that of
    the sender; ``message_bytes`` the size of the message, of which ``length`` bytes from ``offset`` are the token's;
    ``offset_figure`` derives that. ``bits`` are the token's own numbers in bfloat16, ``truth`` says what they are, and
    ``around(first, last)`` gives any bytes of the message.
    """

    op: str
    group: str
    what: str
    dtype: str
    stage: int
    layer: int | None
    source: int
    target: int
    message_bytes: int
    offset: int
    length: int
    offset_figure: Figure
    bits: Bits
    truth: str
    around: Callable[[int, int], bytes]


def carried(journey: Journey, token: int) -> Carried | None:
    """Return the message that carries a token, or None where nothing is sent (one GPU)."""
    plan, place = journey.plan(), journey.placement(token)
    if plan.pp > 1:
        return _stage_boundary(journey, token, place)
    if plan.tp > 1:
        return _partial_sum(journey, token, place)
    return _weights(journey, token)


# One GPU to another -------------------------------------------------------------------------------------------------


def _stage_boundary(journey: Journey, token: int, place: Placement) -> Carried:
    plan = journey.plan()
    t = plan.tp if plan.sequence_parallel else 1
    inner = _Inner(journey, place, cuts=t)
    shape = _Message(inner, journey.config.plan.dialect)
    ranks = _ranks(journey, place, tp=inner.part)
    numbers = _activation(journey, token, place, "send", inner.part)
    return _made(
        numbers, shape, inner, op="send", group="pp", what="activations to the stage after",
        layer=plan.stages[0].chunks[0][-1] if plan.stages[0].chunks[0] else None, source=ranks(0), target=ranks(1),
    )  # fmt: skip


def _partial_sum(journey: Journey, token: int, place: Placement) -> Carried:
    plan = journey.plan()
    # A ring moves its tensor in t parts; the part that the token is in leaves the rank before its owner's turn comes.
    inner = _Inner(journey, place, cuts=plan.tp)
    shape = _Message(inner, journey.config.plan.dialect)
    ranks = _ranks(journey, place, tp=(inner.part + 1) % plan.tp)
    after = _ranks(journey, place, tp=(inner.part + 2) % plan.tp)
    op = "reduce_scatter" if plan.sequence_parallel else "all_reduce"
    numbers = _activation(journey, token, place, op, (inner.part + 1) % plan.tp)
    return _made(
        numbers, shape, inner, op=op, group="tp", what="attention output", layer=0, source=ranks(0),
        target=after(0),
    )  # fmt: skip


def _weights(journey: Journey, token: int) -> Carried | None:
    import polars as pl

    from tokenwire.model import bfloat16_bits, embedding_row

    rows = journey.step().filter(
        (pl.col("group_size") > 1)
        & pl.col("op").is_in(["all_gather", "all_reduce", "reduce_scatter"])
        & pl.col("phase").is_in(["forward", "gradients", "optimizer", "backward"])
        & pl.col("dtype").is_in(["bf16", "fp16", "fp32"])
    )
    if rows.is_empty():
        return None
    gathers = rows.filter(pl.col("op") == "all_gather")
    row = _with_embedding(gathers if len(gathers) else rows)
    arch, token_id = journey.model().architecture, int(journey.encoding().ids[token])
    width, n, item = arch.hidden_size, int(row["group_size"]), int(ITEM_BYTES[row["dtype"]])
    owner, offset, shard, figure = _row_in_buffer(journey, row, token_id, width, item)
    # A ring: the part that belongs to ``owner`` starts there (gather), or one rank after it (reduction).
    sender = owner if row["op"] == "all_gather" else (owner + 1) % n
    members = journey.plan().members(row["group"], 0)
    numbers = bfloat16_bits(embedding_row(arch, token_id))
    truth = "the token's row of the embedding table, seeded"
    if row["op"] != "all_gather":
        truth += "; on the wire is the gradient of that row, which this walk does not compute"
    elif row["dtype"] != "bf16":
        truth += f", here in bf16, on the wire in {row['dtype']}"

    def around(first: int, last: int) -> bytes:
        return _window(numbers.tobytes(), offset, first, last)

    return Carried(
        op=row["op"], group=row["group"], what=row["what"], dtype=row["dtype"], stage=0, layer=None,
        source=int(members[sender]), target=int(members[(sender + 1) % n]), message_bytes=shard, offset=offset,
        length=min(width * item, shard - offset), offset_figure=figure, bits=numbers, truth=truth, around=around,
    )  # fmt: skip


def _with_embedding(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row of the call that has the embedding in it: named so, else the last and largest buffer."""
    import polars as pl

    named = rows.filter(pl.col("what").str.contains("embedding"))
    found: dict[str, Any] = (named if len(named) else rows.sort("bytes")).row(-1, named=True)
    return found


def _row_in_buffer(
    journey: Journey, row: dict[str, Any], token_id: int, h: int, item: int
) -> tuple[int, int, int, Figure]:
    """Return owner (index in the group) of the token's row, its offset in the owner's part, bytes of a part, derivation."""
    plan, arch, n = journey.plan(), journey.model().architecture, int(row["group_size"])
    if journey.config.plan.dialect == "torchtitan":
        # FSDP2 cuts the rows of each tensor, ceil(V/n) a rank, and gathers the parts of the ranks side by side.
        held = -(-arch.vocabulary_size // n)
        owner, local = divmod(token_id, held)
        figure = Figure("offset of the token's row", local * h * item, "B", "(id mod ceil(V/n))·h·bytes",
                        f"({token_id:,} mod {held:,})·{h:,}·{item} B", "torch, FSDP2: dimension 0 is cut",
                        f"each rank has {held:,} rows, first in its part of the unit")  # fmt: skip
        return owner, local * h * item, -(-int(row["bytes"]) // n), figure
    size = int(row["bytes"])
    before, formula, values, source = 0, "id·h·bytes", f"{token_id:,}·{h:,}·{item} B", "the embedding is the first tensor"
    if journey.config.plan.dialect in ("megatron", "ddp"):
        # Buffers are filled in reverse order of the parameters, so that the embedding, first in the model, is last.
        before = (_elements_before_embedding(journey) if plan.config.dialect == "megatron" else size // item - arch.vocabulary_size * h) * item
        formula, values = f"N_before·bytes + {formula}", f"{before:,} + {values}"
        source = "Megatron-LM, core/distributed/param_and_grad_buffer.py, and torch's DDP: parameters in reverse order"
    shard = -(-size // n)
    owner, offset = divmod(max(before, 0) + token_id * h * item, shard)
    owner, offset = (owner, offset) if owner < n else (n - 1, max(0, shard - h * item))
    return owner, offset, shard, Figure("offset of the token's row in its part", offset, "B", f"({formula}) mod S/n",
                                        f"({values}) mod {shard:,} B", source, source.split(": ")[-1])  # fmt: skip


def _elements_before_embedding(journey: Journey) -> int:
    """Return the elements that stand before the token table in Megatron's buffer: each tensor begins at a multiple of 64."""
    from tokenwire.plan import holdings

    held = holdings(journey.model().architecture, journey.plan(), 0)
    rest = held.filter(~held["tensor"].str.starts_with("embedding."))
    return int(sum(-(-int(count) // 64) * 64 for count in rest["elements"]))


# Where in the message -----------------------------------------------------------------------------------------------


class _Inner:
    """The token's place on its ranks: which context and tensor part of the sequence has it, and where in that part."""

    def __init__(self, journey: Journey, place: Placement, cuts: int) -> None:
        plan, s = journey.plan(), journey.config.training.sequence_length
        self.b, self.h = journey.config.training.micro_batch, journey.model().architecture.hidden_size
        self.slot, self.cuts, self.c = place.slot, cuts, plan.cp
        position, length = place.position, s
        self.context = 0
        if plan.cp > 1:
            # Rank i has pieces i and 2c-1-i of 2c, so that all have the same work under a causal mask.
            piece = s // (2 * plan.cp)
            number, rest = divmod(position, piece)
            self.context = min(number, 2 * plan.cp - 1 - number)
            position, length = rest + (piece if number >= plan.cp else 0), s // plan.cp
        self.local = length // cuts
        self.part, self.row = divmod(position, self.local)


class _Message:
    """Size of the message and offset of the token in it, in bytes of bfloat16."""

    def __init__(self, inner: _Inner, dialect: str) -> None:
        self.sequence_first = dialect == "megatron"
        b, h, rows = inner.b, inner.h, inner.local
        self.bytes = b * rows * h * 2
        self.length = h * 2
        if self.sequence_first:
            place, formula = inner.row * b + inner.slot, "(row·b + slot)·h·2"
            values = f"({inner.row}·{b} + {inner.slot})·{h:,}·2 B"
        else:
            place, formula = inner.slot * rows + inner.row, "(slot·rows + row)·h·2"
            values = f"({inner.slot}·{rows} + {inner.row})·{h:,}·2 B"
        self.offset = place * h * 2
        layout = f"[{rows}, {b}, {h:,}]" if self.sequence_first else f"[{b}, {rows}, {h:,}]"
        self.figure = Figure("offset of the token", self.offset, "B", formula, values, because=f"the message is {layout} in bf16")


def _ranks(journey: Journey, place: Placement, *, tp: int) -> Callable[[int], int]:
    """Return the rank of a pipeline stage that works on the token, for the tensor-parallel rank ``tp``."""
    plan = journey.plan()
    sizes = [(axis, size) for axis, size in plan.grid.axes if axis not in ("tp", "pp", "cp")]
    where, rest = {"tp": tp, "cp": _Inner(journey, place, 1).context}, place.replica
    for axis, size in sizes:
        where[axis] = rest % size
        rest //= size
    known = {axis for axis, _ in plan.grid.axes}
    return lambda stage: plan.grid.rank_of(**{axis: at for axis, at in {**where, "pp": stage}.items() if axis in known})


# The numbers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """What the sender brings: the whole array [s, b, h] of its rank as bfloat16 bits, or only the token's row."""

    whole: Bits | None
    row: Bits
    truth: str


def _activation(journey: Journey, token: int, place: Placement, op: str, rank: int) -> _Numbers:
    from tokenwire.model import bfloat16_bits, embedding_row

    plan, arch, training = journey.plan(), journey.model().architecture, journey.config.training
    first = plan.stages[0].chunks[0]
    share = journey.model().parameters.total * max(len(first), 1) / max(len(arch.layers), 1)
    too_large = share * training.micro_batch * training.sequence_length > LARGEST
    sent = None if too_large else _forward_sent(journey, place, op)
    if sent is None:
        row = bfloat16_bits(embedding_row(arch, int(journey.encoding().ids[token])))
        reason = "is too large to be run here" if too_large else "has no forward pass here"
        return _Numbers(None, row, f"the token's embedding row, seeded: the model {reason}, and its layers add to that row")
    # A send's ranks have parts of the sequence, or all of it each; a partial sum is over the whole sequence.
    parts = sent.ranks if op == "send" else sent.ranks[rank : rank + 1]
    array = bfloat16_bits(parts[0] if len(parts[0]) == training.sequence_length else np.concatenate(parts))
    kind = f"activation after layer {first[-1]}" if op == "send" else f"partial sum of tensor rank {rank} in layer 0"
    return _Numbers(array, array[0, 0], f"the token's true {kind}, of a seeded model")


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


def _made(
    numbers: _Numbers, shape: _Message, inner: _Inner, *, op: str, group: str, what: str, layer: int | None, source: int,
    target: int,
) -> Carried:  # fmt: skip
    data, row = _message_bytes(numbers, shape, inner)

    def around(first: int, last: int) -> bytes:
        return data[first:last] if data is not None else _window(row.tobytes(), shape.offset, first, last)

    return Carried(
        op=op, group=group, what=what, dtype="bf16", stage=0, layer=layer, source=source, target=target,
        message_bytes=shape.bytes, offset=shape.offset, length=shape.length, offset_figure=shape.figure, bits=row,
        truth=numbers.truth, around=around,
    )  # fmt: skip


def _message_bytes(numbers: _Numbers, shape: _Message, inner: _Inner) -> tuple[bytes | None, Bits]:
    if numbers.whole is None:
        return None, numbers.row
    array = numbers.whole
    if inner.c > 1:
        pieces = np.split(array, 2 * inner.c)
        array = np.concatenate([pieces[inner.context], pieces[2 * inner.c - 1 - inner.context]])
    array = array[inner.part * inner.local : (inner.part + 1) * inner.local]
    laid = array if shape.sequence_first else array.transpose(1, 0, 2)
    return np.ascontiguousarray(laid).tobytes(), array[inner.row, inner.slot]


def _window(row: bytes, offset: int, first: int, last: int) -> bytes:
    # Bytes around the token are zeros where they were not computed.
    out = bytearray(max(0, last - first))
    low, high = max(first, offset), min(last, offset + len(row))
    if low < high:
        out[low - first : high - first] = row[low - offset : high - offset]
    return bytes(out)
