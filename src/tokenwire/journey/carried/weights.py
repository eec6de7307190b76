"""Data parallelism alone moves no activation: what it carries of a token is its row of the embedding table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenwire.figures import Figure
from tokenwire.journey.carried.message import Carried, window
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey.journey import Journey


def row_of_weights(journey: Journey, token: int) -> Carried | None:
    """Return the message with the token's row, or with its gradient; None where nothing is sent."""
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
        return window(numbers.tobytes(), offset, first, last)

    return Carried(
        op=row["op"], group=row["group"], what=row["what"], dtype=row["dtype"], stage=0, layer=None,
        source=int(members[sender]), target=int(members[(sender + 1) % n]), message_bytes=shard, offset=offset,
        length=min(width * item, shard - offset), offset_figure=figure, bits=numbers, truth=truth, around=around,
    )  # fmt: skip


def _with_embedding(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row of the call that carries the embedding: that of the embedding's own unit, else the last and largest buffer."""
    import polars as pl

    named = rows.filter(pl.col("role") == "embedding")
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
