"""Compare: two journeys side by side, differences first; and design choices as the verb ``compare`` has them."""

from __future__ import annotations

from math import log10
from typing import Any

import dash_mantine_components as dmc
import polars as pl
from dash import html

from tokenwire.journey import SCALES
from tokenwire.report.comparison import COMPARISONS
from tokenwire.report.comparison import compare as compared
from tokenwire.report.comparison.chart import COLOURS, Chart
from tokenwire.report.rooms import beside as room
from tokenwire.web.parts.charts import chart, folded_name
from tokenwire.web.parts.fields import choice, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import derived, part
from tokenwire.web.view import View

GPUS = 8
"""GPUs of the comparisons of pure methods."""
MOST_POWER = 2.0
"""Powers of ten at which ratios are cut in the drawing."""


def fields(view: View) -> list[Any]:
    """Return the fields: the second journey, and the design choice."""
    return [row(
        choice(view, "other", "The second journey", ("the same", *SCALES), now="the same", width=160),
        dmc.TagsInput(id={"field": "with_set"}, label="with these values", value=list(view.state.with_set), placeholder="" if view.state.with_set else "plan.tp=4, then Enter",
                      size="xs", w=320, maxTags=16, splitChars=[]),
        choice(view, "only", "A design choice", ("none", *COMPARISONS), now="none", width=160),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page that compares."""
    first, second = view.journey, view.journeys.beside(view.state)
    figures = room.compared(first, second, room.figures)
    chosen = view.state.only if view.state.only in COMPARISONS else ""
    return [*fields(view), *(_choice(view, chosen) if chosen else []), _ratios(view, figures), _table(view, "figures", "What comes of it", figures),
            _table(view, "configuration", "What was asked for", room.compared(first, second, room.configuration))]  # fmt: skip


def _table(view: View, name: str, title: str, frame: pl.DataFrame) -> html.Section:
    different = int(frame["differs"].sum())
    note = f"{different:,} of {len(frame):,} differ; they stand first." if different else "Nothing differs: choose another journey, or give it other values."
    columns = [Column("room", "room"), Column("what", "what", wide=True), Column("first", "this journey"), Column("second", "the second"), Column("ratio", "second / first", "1")]
    return table(view, name, title, frame, columns, note=note, height=380)


def _ratios(view: View, figures: pl.DataFrame) -> Any:
    frame = figures.filter(pl.col("differs") & (pl.col("ratio") > 0)).select("room", "what", "first", "second", "ratio")
    if frame.is_empty():
        return html.Span()
    names = [folded_name(f"{room_}: {what}") for room_, what in frame.select("room", "what").iter_rows()]
    powers = [max(-MOST_POWER, min(MOST_POWER, log10(ratio))) for ratio in frame["ratio"]]
    bars = [{"type": "bar", "orientation": "h", "y": names, "x": powers, "customdata": [f"{a} and {b}, × {ratio:.3g}" for a, b, ratio in frame.select("first", "second", "ratio").iter_rows()],
             "marker": {"color": ["#b86e00" if power > 0 else "#4269d0" for power in powers]}, "hovertemplate": "%{y}: %{customdata}<extra></extra>"}]  # fmt: skip
    most = max(abs(power) for power in powers) or 1.0
    near = {log10(0.5): "÷2", log10(2): "×2"} if most < 1 else {}
    known = {-2: "÷100", -1: "÷10", 0: "×1", 1: "×10", 2: "×100", **near}
    ticks = {"tickvals": list(known), "ticktext": list(known.values()), "tickangle": 0, "tickfont": {"size": 11}}
    layout = {"xaxis": {**ticks, "range": [-1.1 * most, 1.1 * most]}, "yaxis": {"autorange": "reversed", "automargin": True, "tickfont": {"size": 11}}, "bargap": 0.3}
    columns = [Column("room", "room"), Column("what", "what"), Column("first", "this journey"), Column("second", "the second"), Column("ratio", "ratio", "1")]
    return chart(view, "ratios", "How many times as much", bars, frame, columns, layout=layout, height=100 + 14 * sum(2 + name.count("<br>") for name in names),
                 note="The second journey over this one, on a logarithmic axis; what is more than a hundred times is cut there.")  # fmt: skip


def _choice(view: View, name: str) -> list[Any]:
    gpus = GPUS if name != "parallelism" else view.journey.plan().world
    found = compared(name, view.journey, gpus)
    units = {unit: unit for unit in ("short", "B", "s", "B/s")}
    columns = [Column(column, head, units.get(found.units[column], "1" if found.units[column] else "")) for column, head in found.columns]
    drawn = chart(view, "choice", found.title, _traces(found.chart), found.frame, columns, layout=_axes(found.chart), height=400, opened=True, note=" ".join(f"{note}." for note in found.notes))
    return [drawn, part("How its numbers come about", derived({**figure.as_dict(), "text": figure.text, "derivation": figure.derivation} for figure in found.formulas))]


def _traces(drawn: Chart) -> list[dict[str, Any]]:
    lines = drawn.kind == "lines"
    return [{"type": "scatter" if lines else "bar", "name": one.name, "x": list(drawn.x_values if lines else drawn.places), "y": list(one.values),
             "marker": {"color": COLOURS[number % len(COLOURS)]}, **({"mode": "lines+markers"} if lines else {})} for number, one in enumerate(drawn.series)]  # fmt: skip


def _axes(drawn: Chart) -> dict[str, Any]:
    x: dict[str, Any] = {"title": {"text": drawn.x_title}}
    if drawn.kind == "lines":
        x |= {"type": "log", "tickvals": list(drawn.x_values), "ticktext": list(drawn.places)}
    return {"barmode": "stack" if drawn.kind == "stacked" else "group", "xaxis": x, "yaxis": {"title": {"text": drawn.y_title}, "type": "log" if drawn.log_y else "linear", "exponentformat": "SI"}}
