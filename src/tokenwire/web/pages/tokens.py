"""Tokens: the text in coloured pieces, tokenizers side by side, a text of one's own, and looking for a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dash_mantine_components as dmc
import polars as pl
from dash import html

from tokenwire.report.rooms import tokens as room
from tokenwire.report.rooms import typed as others
from tokenwire.tokens.kinds import KINDS
from tokenwire.units import counted
from tokenwire.web.parts.fields import area, choice, field, override, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import facts, part
from tokenwire.web.view import View

DRAWN = 400
"""Tokens drawn in colour at most."""
AROUND = 160
"""Tokens of the text drawn around the verses shown."""
OFFERED = tuple(kind for kind in KINDS if kind != "file")


def fields(view: View) -> list[Any]:
    """Return the tokenizer's fields and what is looked for."""
    config = view.journey.config.tokenizer
    return [row(
        choice(view, "set:tokenizer.kind", "Tokenizer", OFFERED, now=config.kind),
        override(view, "tokenizer.vocab_size", "Vocabulary, ids", config.vocab_size, width=120),
        dmc.MultiSelect(id={"field": "beside"}, label="Beside it", data=list(OFFERED), value=list(view.state.beside), size="xs", w=240, clearable=True,
                        maxValues=4, placeholder="" if view.state.beside else "bytes, words ..."),
        field(view, "find", "Find a token", hint="its id or a piece of text", width=170),
        field(view, "verse", "Place in the text", now=view.walk.shown.name, width=180),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of tokens."""
    figures = room.facts(view.journey)
    looked_for = others.found(view.journey, view.state.find) if view.state.find else None
    text = others.text_of(view.state.text) if view.state.text.strip() else None
    beside = others.beside(view.journey, view.state.beside[:4], text or view.walk.shown) if view.state.beside or text else []
    return [
        *fields(view), _drawn(view, looked_for), _selected(view),
        *([_found(view, looked_for)] if looked_for is not None else []),
        part("Your own text", area(view, "text", "Type here", placeholder="Nel mezzo del cammin…"), *_lines(beside if text else [])),
        *([_compared(view, beside, "your text" if text else "the verses shown"), *([] if text else [part("The same verses, cut by each", *_lines(beside))])]
          if beside else []),
        _figures(figures), _all(view),
    ]  # fmt: skip


def _drawn(view: View, looked_for: pl.DataFrame | None) -> html.Section:
    shown = view.walk.tokens_shown
    last = min(shown.stop, shown.start + DRAWN)
    found = set(looked_for["token"].to_list()) if looked_for is not None else set()
    ids = view.journey.encoding().ids
    spans = []
    for index in range(shown.start, last):
        text = view.piece(index)
        chosen, hit = index == view.state.token, index in found
        # Tokens keep their colours wherever the window begins.
        kind = " ".join(["abcd"[index % 4], *(["chosen"] if chosen else []), *(["found"] if hit else [])])
        spans.append(html.A([text, html.Span(str(int(ids[index])), className="id")], href=view.here(token=index), className=kind,
                            **({"aria-current": "true"} if chosen else {}), title=f"token {index:,}, id {int(ids[index]):,}"))  # fmt: skip
        spans.append(html.Br() if text.endswith("↵") else " ")
    total = len(view.journey.encoding())
    note = f"Tokens {shown.start:,} to {last - 1:,} of {total:,}. Spaces show as ␣ and line ends as ↵; the small number is the id. Select one to follow it."
    before, after = max(0, shown.start - 1), min(total - 1, last)
    turn = html.P([html.A("← earlier", href=view.here(token=before, verse="")), " · ", html.A("later →", href=view.here(token=after, verse=""))], className="note")
    return part(view.walk.shown.name, html.P(note, className="note"), html.Div(spans, className="tokens", lang="it"), turn)


def _selected(view: View) -> Any:
    if view.state.token is None:
        return html.Span()
    index, encoding = view.walk.followed, view.journey.encoding()
    start, end = int(encoding.starts[index]), int(encoding.ends[index])
    place = view.walk.placement
    return part("The selected token", facts([
        ("token", f"{index:,}"), ("text", view.piece(index)), ("id", html.A(f"{int(encoding.ids[index]):,}", href=view.here(find=str(int(encoding.ids[index]))))),
        ("bytes in the text", f"{start:,} to {end:,} ({end - start} B)"), ("UTF-8", view.journey.text().data[start:end].hex(" ")),
        ("sequence", f"{place.sequence:,}, position {place.position:,}"), ("step", f"{place.step:,}, micro-batch {place.micro_batch}, replica {place.replica}"),
        ("its vector", html.A("Vectors", href=view.state.href("vectors"))), ("its packet", html.A("Packet", href=view.state.href("packet"))),
    ]))  # fmt: skip


def _found(view: View, frame: pl.DataFrame) -> html.Section:
    columns = [Column("token", "token", "1", select="token"), Column("id", "id", "1"), Column("text", "text", wide=True), Column("start", "at byte", "1")]
    return table(view, "found", f"Where {view.state.find!r} occurs", frame, columns, chosen=view.state.token, height=240)


def _compared(view: View, beside: Sequence[dict[str, Any]], what: str) -> html.Section:
    rows = [{key: one.get(key) for key in ("kind", "vocabulary_size", "tokens", "fertility", "bytes_per_token", "shown", "error")} for one in beside]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    columns = [
        Column("kind", "tokenizer"), Column("vocabulary_size", "vocabulary", "1"), Column("tokens", "tokens of the whole text", "1"),
        Column("fertility", "tokens a word", "1"), Column("bytes_per_token", "bytes a token", "1"), Column("shown", f"tokens of {what}", "1"), Column("error", ""),
    ]  # fmt: skip
    return table(view, "beside", "Tokenizers side by side", frame, columns)


def _lines(beside: Iterable[dict[str, Any]]) -> list[Any]:
    out: list[Any] = []
    for one in beside:
        if one["error"]:
            out += [html.H3(one["kind"]), html.P(one["error"], className="note")]
            continue
        spans = []
        for number, token in enumerate(one["pieces"][:DRAWN]):
            spans.append(html.Span([token.text, html.Span(str(token.id), className="id")], className="piece " + "abcd"[number % 4]))
            spans.append(html.Br() if token.text.endswith("↵") else " ")
        out += [html.H3(f"{one['tokenizer']}: {one['shown']:,} tokens"), html.Div(spans, className="tokens")]
    return out


def _figures(figures: dict[str, Any]) -> html.Section:
    packing = figures["packing"]
    return part("What tokenization did to the whole text", facts([
        ("tokenizer", figures["tokenizer"]), ("vocabulary", f"{figures['vocabulary_size']:,} ids, {figures['used']:,} occur"),
        ("tokens", f"{figures['tokens']:,}"), ("fertility", f"{figures['fertility']:.3f} tokens a word"), ("bytes a token", f"{figures['bytes_per_token']:.3f} B"),
        ("entropy", f"{figures['entropy_bits']:.2f} bits a token"), ("stored as", figures["index_dtype"]),
        ("sequences", f"{packing['sequences']:,} of {packing['sequence_length']:,} tokens"), ("padding", f"{packing['padding']:,} places"),
        ("a step", f"{packing['tokens_per_step']:,} tokens"), ("the text lasts", counted(packing["steps"], "step")),
    ]), html.P(f"Read from storage in a step: {packing['storage_text']}", className="plain"))  # fmt: skip


def _all(view: View) -> html.Section:
    frame = room.table_of(view.journey)
    columns = [
        Column("index", "token", "1", select="token"), Column("id", "id", "1"), Column("text", "text", wide=True), Column("start", "first byte", "1"),
        Column("end", "byte after", "1"), Column("in_vocabulary", "in the vocabulary"),
    ]  # fmt: skip
    return table(view, "tokens", "All tokens", frame, columns, chosen=view.state.token)
