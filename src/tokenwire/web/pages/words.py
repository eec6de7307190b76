"""Words: the verses, their words, and the laws of the whole text."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.report.charts.words import charts as laws
from tokenwire.report.comparison.chart import Chart
from tokenwire.report.rooms import words as room
from tokenwire.report.scenes import verse as verses
from tokenwire.report.scenes import words as scene
from tokenwire.report.terminal import harmless, shortened
from tokenwire.text import types
from tokenwire.units import format_bytes
from tokenwire.web.parts.charts import chart
from tokenwire.web.parts.fields import field, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import facts, part
from tokenwire.web.view import View

MOST_VERSES = 60
"""Verses drawn at most."""


def fields(view: View) -> list[Any]:
    """Return the field that says which verses are shown."""
    return [row(field(view, "verse", "Place in the text", now=view.walk.shown.name, hint="such as Inferno I 49-60", width=220))]


def page(view: View) -> list[Any]:
    """Return the page of words."""
    shown, counted, of_text = verses.facts(view.walk), scene.facts(view.walk), room.facts(view.journey.text())
    return [*fields(view), _verses(shown), _of_text(of_text), html.Div([_words(view, counted), _common(view, of_text)], className="side"), _laws(view)]


def _verses(shown: dict[str, Any]) -> html.Section:
    lines, before = [], None
    for verse in shown["verses"][:MOST_VERSES]:
        where = f"{verse['canto']} {verse['number']}".strip()
        new = before is not None and before != (verse["canto"], verse["stanza"])
        before = (verse["canto"], verse["stanza"])
        text = shortened(harmless(verse["text"]), 300)
        lines.append(html.Li([html.Span(where, className="where"), html.Span(text, className="verse", lang="it")], className="stanza" if new else ""))
    more = len(shown["verses"]) - MOST_VERSES
    note = f"{shown['characters']:,} characters are {shown['bytes']:,} bytes of UTF-8." + (f" {more:,} verses more are not drawn." if more > 0 else "")
    return part(f"{shown['place']}", html.Ul(lines, className="verses"), html.P(note, className="note"))


def _of_text(of_text: dict[str, Any]) -> html.Section:
    pairs = [
        ("size", f"{of_text['bytes']:,} B ({format_bytes(of_text['bytes'])})"), ("characters", f"{of_text['characters']:,}"),
        ("verses", f"{of_text['verses']:,}"), ("words", f"{of_text['words']:,}"), ("types", f"{of_text['types']:,}"),
        ("types that occur once", f"{of_text['once']:,}"), ("characters a word", f"{of_text['mean_word_characters']:.2f}"),
    ]  # fmt: skip
    for law, x, y, sign in (("zipf", "rank", "frequency", "-"), ("heaps", "words", "types", "")):
        fit = of_text[law]
        if fit:
            pairs.append((f"{law.capitalize()} (R² = {fit['r2']:.3f})", f"{y} = {fit['scale']:,.3g} · {x}^{sign}{fit['exponent']:.3f}"))
    return part(f"The whole text: {of_text['name']}", facts(pairs))


def _words(view: View, counted: dict[str, Any]) -> html.Section:
    frame = pl.DataFrame(counted["words"], schema={"text": pl.String, "times": pl.Int64})
    return table(view, "words", "The words shown", frame, [Column("text", "word", wide=True), Column("times", "times in the whole text", "1")], height=330)


def _laws(view: View) -> html.Div:
    text = view.journey.text()
    return html.Div([_law(view, name, drawn) for name, drawn in zip(("zipf", "heaps"), laws(text), strict=True)] if types(text.content) else [], className="side")


def _law(view: View, name: str, drawn: Chart) -> html.Section:
    x = list(drawn.x_values)
    lines = [{"type": "scatter", "mode": "lines", "name": one.name, "x": x, "y": list(one.values)} for one in drawn.series]
    keys = [("counted", "fit")[number] for number in range(len(drawn.series))]
    frame = pl.DataFrame({"x": x, **{key: list(one.values) for key, one in zip(keys, drawn.series, strict=True)}})
    columns = [Column("x", drawn.x_title, "1"), *(Column(key, one.name, "1") for key, one in zip(keys, drawn.series, strict=True))]
    layout = {axis: {"type": "log", "dtick": 1, "title": {"text": said}} for axis, said in (("xaxis", drawn.x_title), ("yaxis", drawn.y_title))}
    return chart(view, name, drawn.title, lines, frame, columns, layout=layout, height=320)


def _common(view: View, of_text: dict[str, Any]) -> html.Section:
    frame = pl.DataFrame(of_text["most_common"], schema={"type": pl.String, "count": pl.Int64})
    bars = {"type": "bar", "orientation": "h", "y": frame["type"].to_list(), "x": frame["count"].to_list()}
    return chart(view, "common", "The most common words", [bars], frame, [Column("type", "word"), Column("count", "times", "1")],
                 layout={"yaxis": {"autorange": "reversed"}, "xaxis": {"title": {"text": "times in the text"}}}, height=330)  # fmt: skip
