"""Rows of the embedding table as a matrix, and which rank holds which rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.model import bfloat16_bits, bfloat16_values, embedding_row

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey

MOST_ROWS, MOST_COLUMNS = 48, 256
"""Size of the largest matrix that is drawn."""


def matrix(journey: Journey, tokens: range) -> tuple[list[int], np.ndarray[Any, np.dtype[np.float32]]]:
    """Return tokens of the text and the beginning of their rows, float32[tokens, columns]."""
    arch, ids = journey.model().architecture, journey.encoding().ids
    chosen = list(tokens[:MOST_ROWS])
    width = min(arch.embedding_size or arch.hidden_size, MOST_COLUMNS)
    rows = [embedding_row(arch, int(ids[token]))[:width] for token in chosen]
    return chosen, np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32)


def numbers(journey: Journey, token_id: int) -> pl.DataFrame:
    """Return the whole row of a token: column, number, bits of bfloat16 (sign, exponent, fraction), the number they stand for."""
    import polars as pl

    row = embedding_row(journey.model().architecture, token_id)
    bits = bfloat16_bits(row)
    texts = [f"{b:016b}" for b in bits.tolist()]
    return pl.DataFrame({
        "column": np.arange(row.size, dtype=np.int64), "number": row.astype(np.float64), "sign": [t[0] for t in texts],
        "exponent": [t[1:9] for t in texts], "fraction": [t[9:] for t in texts], "bf16": bfloat16_values(bits).astype(np.float64),
        "bytes": [b.to_bytes(2, "little").hex(" ") for b in bits.tolist()],
    })  # fmt: skip


def holders(journey: Journey) -> pl.DataFrame:
    """Return which tensor rank holds which rows of the token table: tensor_rank, first_row, last_row, rows, padding, rank.

    ``rank`` is the first rank of stage 0 with that place on the tensor axis.
    """
    import polars as pl

    plan, real = journey.plan(), journey.model().architecture.vocabulary_size
    held = plan.vocabulary_size // plan.tp
    out = []
    for part in range(plan.tp):
        first, last = part * held, (part + 1) * held - 1
        axes = {axis for axis, _ in plan.grid.axes}
        out.append({"tensor_rank": part, "first_row": first, "last_row": last, "rows": held,
                    "padding": min(held, max(0, last + 1 - real)), "rank": plan.grid.rank_of(**({"tp": part} if "tp" in axes else {}))})  # fmt: skip
    return pl.DataFrame(out)
