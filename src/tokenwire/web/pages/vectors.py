"""Vectors: the row of the embedding that a token becomes, its bits, its neighbours, and who holds which rows."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.report.rooms import vectors as room
from tokenwire.report.scenes import vector as scene
from tokenwire.units import format_bytes
from tokenwire.web.parts.charts import chart
from tokenwire.web.parts.fields import choice, field, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import facts, paragraph, part
from tokenwire.web.view import View

BLUE_RED = [[0, "#2166ac"], [0.25, "#92c5de"], [0.5, "#f7f7f7"], [0.75, "#f4a582"], [1, "#b2182b"]]


def fields(view: View) -> list[Any]:
    """Return the fields: the token, and the model whose table it is looked up in."""
    from tokenwire.model import presets

    return [row(field(view, "token", "Token of the text", now=view.walk.followed, width=140),
                choice(view, "set:model.preset", "Model", presets(), now=view.journey.config.model.preset, search=True))]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of vectors."""
    told = scene.facts(view.walk)
    row_ = told["journeys"][0]
    return [*fields(view), _about(told, row_), html.Div([_bits(view, told), _holders(view, row_)], className="side first-wide"), _matrix(view)]


def _about(told: dict[str, Any], row_: dict[str, Any]) -> html.Section:
    where = (
        f"tensor rank {row_['tensor_rank']} as its row {row_['local_row']:,}; the others bring zeros to the sum" if row_["tp"] > 1 else "every rank of stage 0"
    )
    position = ", ".join(f"{x:+.4f}" for x in row_["position"]["numbers"][:5])
    return part(f"Token {told['text']}, id {told['id']:,}, is row {told['id']:,} of the table", facts([
        ("table", f"{row_['vocabulary_size']:,} × {row_['hidden_size']:,}"), ("numbers in it", f"{row_['table_elements']:,}"),
        ("in bf16", format_bytes(row_["table_bytes"])), ("a row", f"{row_['hidden_size']:,}·2 B = {format_bytes(row_['row_bytes'])}"),
        ("length of the row", f"{row_['norm']:.4f}"), ("positions", row_["positions"]), ("held by", where),
    ]), paragraph(f"At position {told['position']:,} of sequence {told['sequence']:,}: {scene.POSITION[row_['positions']]}"
                  + (f": {position} …" if position else ".")))  # fmt: skip


def _bits(view: View, told: dict[str, Any]) -> html.Section:
    frame = room.numbers(view.journey, told["id"])
    columns = [
        Column("column", "i", "1"), Column("number", "number", "1"), Column("sign", "sign"), Column("exponent", "exponent"), Column("fraction", "fraction"),
        Column("bf16", "is", "1"), Column("bytes", "on the wire"),
    ]  # fmt: skip
    return table(view, "numbers", "Its numbers and their bits in bfloat16", frame, columns, note="Seeded as training begins: N(0, 0.02²).")


def _holders(view: View, row_: dict[str, Any]) -> html.Section:
    columns = [
        Column("tensor_rank", "tensor rank", "1"), Column("first_row", "first row", "1"), Column("last_row", "last row", "1"), Column("padding", "padding", "1"),
        Column("rank", "first rank", "1", select="rank", page="plan"),
    ]  # fmt: skip
    return table(view, "holders", "Which rank holds which rows", room.holders(view.journey), columns,
                 note=f"Padded to {row_['padded_rows']:,} rows, so that they divide." if row_["tp"] > 1 else "The table is not cut.")  # fmt: skip


def _matrix(view: View) -> html.Section:
    tokens, rows = room.matrix(view.journey, view.walk.tokens_shown)
    names = [f"{token} {view.piece(token)}" for token in tokens]
    frame = pl.DataFrame(rows.astype(float), schema=[f"c{i}" for i in range(rows.shape[1])], orient="row").insert_column(0, pl.Series("token", tokens))
    heat = {"type": "heatmap", "z": rows.round(5).tolist(), "y": list(range(len(tokens))), "colorscale": BLUE_RED, "zmid": 0, "colorbar": {"thickness": 10},
            "customdata": [[view.here(token=token)] * rows.shape[1] for token in tokens] if rows.shape[1] <= 64 else None,
            "hovertemplate": "%{y}, column %{x}: %{z:.5f}<extra></extra>"}  # fmt: skip
    layout = {"yaxis": {"autorange": "reversed", "tickvals": list(range(len(tokens))), "ticktext": names}, "xaxis": {"title": {"text": "column of the row"}},
              "margin": {"l": 110, "r": 10, "t": 10, "b": 44}}  # fmt: skip
    shown = [Column("token", "token", "1", select="token"), *(Column(f"c{i}", str(i), "1") for i in range(min(6, rows.shape[1])))]
    return chart(view, "matrix", "The rows of the verses shown", [heat], frame, shown, layout=layout, height=max(220, 17 * len(tokens) + 60), zoomable=True,
                 note=f"The first {rows.shape[1]:,} columns; drag to look closer, double-click to come back.")  # fmt: skip
