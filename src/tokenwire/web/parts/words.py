"""Words on a page: derivations, notes, facts by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dash import html

LONG = 26
"""Letters of a fact from which on it is given the room of two."""


def facts(pairs: Sequence[tuple[str, Any]]) -> html.Dl:
    """Return facts as a list of names and values."""
    return html.Dl([
        html.Div([html.Dt(name), html.Dd(value)], className="long" if isinstance(value, str) and len(value) > LONG else "") for name, value in pairs
    ], className="facts")  # fmt: skip


def derived(figures: Iterable[dict[str, Any]]) -> html.Div:
    """Return figures (``Figure.as_dict`` with ``text`` and ``derivation``) with how they came about."""
    return html.Div([
        html.Div([
            html.Div(one["text"], className="value"),
            html.Div([
                html.Strong(one["name"]),
                *[html.Div(line, className=kind) for line, kind in
                  ((one["derivation"] if one.get("formula") else "", "how"), (one.get("because", ""), "why"), (one.get("source", ""), "source")) if line],
            ]),
        ], className="figure") for one in figures
    ], className="figures")  # fmt: skip


def part(title: str, *below: Any) -> html.Section:
    """Return a part of a page without a table of its own."""
    return html.Section([html.Div(html.H2(title), className="part-head"), *below], className="part")


def paragraph(text: str) -> html.P:
    """Return a paragraph of at most a readable width."""
    return html.P(text, className="said")
