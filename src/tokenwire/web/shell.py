"""What stands around every page: the head, the walk's menu, the journey and the selection, the state of long work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from tokenwire.journey import SCALES
from tokenwire.web.making import Made
from tokenwire.web.rooms import ROOMS
from tokenwire.web.state import SELECTION, State

PAGES_OF = {"token": "tokens", "tensor": "model", "rank": "plan", "op": "step", "link": "fabric", "packet": "packet"}
"""The page on which each kind of thing is at home."""

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""

OWN = "own"


def layout() -> Any:
    """Return the shell; pages are put into it by their address."""
    return dmc.MantineProvider(
        dmc.AppShell(
            [
                html.A("To the page", href="#main", className="skip"),
                dcc.Location(id="url", refresh=False),
                dcc.Interval(id="poll", interval=700, disabled=True),
                dmc.AppShellHeader(_head()),
                dmc.AppShellNavbar(html.Nav(id="walk", className="walk", **{"aria-label": "The walk"})),
                dmc.AppShellMain(html.Div([
                    html.Div(id="bar"),
                    html.Div(id="main", tabIndex=-1, style={"outline": "none"}, children=html.Div("Loading", className="working")),
                ], className="shell")),
            ],
            id="shell", header={"height": 52}, navbar={"width": 210, "breakpoint": "sm", "collapsed": {"mobile": True}}, padding="md",
        ),
        theme={"primaryColor": "blue", "cursorType": "pointer", "autoContrast": True},
        defaultColorScheme="auto",
    )  # fmt: skip


def _head() -> html.Div:
    toggle = dmc.ColorSchemeToggle(lightIcon="☀", darkIcon="☾", variant="default", size="lg", id="scheme", **{"aria-label": "Light or dark"})
    return html.Div([
        dmc.Burger(id="menu", opened=False, hiddenFrom="sm", size="sm", **{"aria-label": "Menu"}),
        html.A("tokenwire", href="/", className="name"),
        html.Span("from words to bits on the wire", className="tag"),
        html.Div(toggle, className="end"),
    ], className="head")  # fmt: skip


def menu(page: str, state: State) -> list[Any]:
    """Return the links to all pages, each with what is selected."""
    return [
        html.A(
            [html.Span(str(number), className="at"), html.Span(room.title, className="word")], href=state.href(name),
            **({"aria-current": "page"} if name == page else {}),
        )
        for number, (name, room) in enumerate(ROOMS.items(), 1)
    ]


def bar(page: str, state: State) -> html.Div:
    """Return the line above a page: which journey, what is overridden, what is selected."""
    chosen = [name for name in SELECTION if getattr(state, name) not in (None, "")]
    return html.Div([
        dmc.Select(id={"field": "scale"}, data=[{"value": OWN, "label": "this journey"}, *({"value": s, "label": s} for s in SCALES)],
                   value=state.scale or OWN, size="xs", w=130, allowDeselect=False, **{"aria-label": "Journey"}),
        dmc.TextInput(id={"field": "override"}, value="", placeholder="plan.tp=4", size="xs", w=150, debounce=True, autoComplete="off",
                      **{"aria-label": "Change a value of the journey, for example plan.tp=4"}),
        *[_chip(over, None, state.href(page, set=tuple(o for o in state.set if o != over)), f"without {over}") for over in state.set],
        *([html.Span("selected:", className="label")] if chosen else []),
        *[_chip(f"{name} {getattr(state, name)}", state.href(PAGES_OF[name]), state.href(page, **{name: "" if name == "tensor" else None}),
                f"select no {name}") for name in chosen],
    ], className="bar")  # fmt: skip


def _chip(text: str, href: str | None, off: str, said: str) -> html.Span:
    shown = html.A(text, href=href) if href else html.Span(text)
    return html.Span([shown, html.A("✕", href=off, className="off", title=said, **{"aria-label": said})], className="chip")


def shown(page: str, state: State, made: Made, fields: list[Any]) -> list[Any]:
    """Return a page with its heading; where it cannot be made, the reason and the fields to mend it with."""
    room = ROOMS[page]
    head = [html.H1(room.title), html.P(room.line, className="lead")]
    if made.running is not None:
        return [*head, _working(made.running)]
    if made.error:
        return [*head, *fields, dmc.Alert(made.error, title="This does not work", color="red", variant="outline", id="wrong", mt="md"), _way_back(page, state)]
    return [*head, *made.parts, _onward(page, state)]


def _working(seconds: float) -> html.Div:
    return html.Div([
        dmc.Loader(size="sm"), html.Span(f"Computing for {seconds:.0f} s", role="status"),
        html.Button("Stop", id="stop", n_clicks=0),
    ], className="working")  # fmt: skip


def _way_back(page: str, state: State) -> html.P:
    links = [html.A("Without the overrides", href=state.href(page, set=()))] if state.set else []
    bare = replace(State(), scale=state.scale, set=state.set)
    return html.P([*links, *([" or "] if links else []), html.A("with nothing selected", href=bare.href(page)), "."], className="said")


def _onward(page: str, state: State) -> html.Div:
    names = list(ROOMS)
    at = names.index(page)
    before, after = names[at - 1] if at else "", names[at + 1] if at + 1 < len(names) else ""
    return html.Div([
        html.A(f"← {ROOMS[before].title}", href=state.href(before)) if before else html.Span(),
        html.A(f"{ROOMS[after].title} →", href=state.href(after)) if after else html.Span(),
    ], className="more")  # fmt: skip


def stopped(page: str, state: State) -> list[Any]:
    """Return the page of work that its visitor has stopped."""
    return [html.H1(ROOMS[page].title), html.P(["Stopped. ", html.A("With nothing selected", href=f"/{page}"), "."], className="said", role="status")]


def lost(line: str) -> list[Any]:
    """Return the page of an address that says nothing."""
    return [html.H1("Nothing is here"), dmc.Alert(line, color="red", variant="outline", id="wrong"), html.P(html.A("To the beginning", href="/"), className="said")]
