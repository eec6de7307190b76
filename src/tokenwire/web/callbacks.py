"""What the server does when an address or a field changes. It keeps nothing about who asked."""

from __future__ import annotations

from typing import Any

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, ctx, no_update, set_props

from tokenwire.errors import InputError
from tokenwire.web import shell
from tokenwire.web.making import PATIENCE, Pages
from tokenwire.web.rooms import ROOMS
from tokenwire.web.state import State as Address
from tokenwire.web.state import read

FIRST = next(iter(ROOMS))
POLLING = 0.3
"""Seconds that each later look at long work waits."""


def register(app: Dash, pages: Pages) -> None:
    """Connect the shell with the pages."""

    @app.callback(
        Output("main", "children"), Output("walk", "children"), Output("bar", "children"), Output("poll", "disabled"),
        Input("url", "pathname"), Input("url", "search"), Input("poll", "n_intervals"),
    )  # fmt: skip
    def show(pathname: str | None, search: str | None, polls: int | None) -> tuple[Any, Any, Any, bool]:
        return answer(pages, pathname or "/", search or "", POLLING if ctx.triggered_id == "poll" else PATIENCE)

    # A slider has no place for an error of its own. What is said and what says it must match by the same keys.
    slider = {"slide": MATCH, "part": "slider"}
    for said, by in ((Output({"field": MATCH}, "error"), {"field": MATCH}), (Output({**slider, "part": "error"}, "children"), slider)):

        @app.callback(said, Input(by, "value"), State("url", "pathname"), State("url", "search"), prevent_initial_call=True)
        def change(value: Any, pathname: str | None, search: str | None) -> Any:
            changed_ = ctx.triggered_id or {}
            key = changed_.get("field") or changed_.get("slide", "")
            query, error = changed(pages, pathname or "/", search or "", key, value)
            if query is not None:
                set_props("url", {"search": query})
            return error or None

    @app.callback(Output("main", "children", allow_duplicate=True), Output("poll", "disabled", allow_duplicate=True),
                  Input("stop", "n_clicks"), State("url", "pathname"), State("url", "search"), prevent_initial_call=True)  # fmt: skip
    def stop(clicks: int | None, pathname: str | None, search: str | None) -> tuple[Any, Any]:
        if not clicks:
            return no_update, no_update
        page, state = page_of(pathname or "/"), read(search or "")
        pages.stop(page, state)
        return shell.stopped(page, state), True

    for kind, event, name in (("graph", "clickData", "point"), ("graph-of-nodes", "tapNodeData", "node"), ("graph-of-nodes", "tapEdgeData", "node")):
        app.clientside_callback(ClientsideFunction("explorer", name), Input({kind: ALL}, event), prevent_initial_call=True)
    app.clientside_callback(ClientsideFunction("explorer", "window"), Input({"graph": "timeline-events"}, "relayoutData"), prevent_initial_call=True)
    app.clientside_callback(ClientsideFunction("explorer", "title"), Output("walk", "title"), Input("walk", "children"))
    app.clientside_callback(
        ClientsideFunction("explorer", "menu"), Output("menu", "opened"), Output("shell", "navbar"), Input("menu", "opened"), Input("url", "pathname"),
    )  # fmt: skip


def page_of(pathname: str) -> str:
    """Return the page of a path; "" for one that there is not."""
    name = pathname.strip("/") or FIRST
    return name if name in ROOMS else ""


def answer(pages: Pages, pathname: str, search: str, patience: float = PATIENCE) -> tuple[Any, Any, Any, bool]:
    """Return the page of an address, its menu, its bar, and whether there is nothing to wait for."""
    page = page_of(pathname)
    try:
        state = read(search)
        if not page:
            raise InputError(f"the page {pathname[:40]!r}", rule=f"known are {', '.join(ROOMS)}")
    except InputError as error:
        bare = Address()
        return shell.lost(str(error)), shell.menu("", bare), [], True
    made = pages.page(page, state, patience)
    fields = pages.fields(page, state) if made.error else []
    return shell.shown(page, state, made, fields), shell.menu(page, state), shell.bar(page, state), made.running is None


def changed(pages: Pages, pathname: str, search: str, key: str, value: Any) -> tuple[str | None, str]:
    """Return the query with a field's new value (None: it stays as it is), and what is wrong with the value ("": nothing)."""
    page = page_of(pathname)
    try:
        before = read(search)
        after = _after(before, key, value)
    except InputError as error:
        return None, str(error)
    if after == before or not page:
        return None, ""
    # The page is made with the new value: what it finds wrong is said in the field, and the address stays.
    made = pages.page(page, after)
    return (None, made.error) if made.error else (after.query, "")


def _after(before: Address, key: str, value: Any) -> Address:
    if key == "override":
        name, sign, text = str(value or "").partition("=")
        if not str(value or "").strip():
            return before
        if not sign or "." not in name or not text.strip():
            raise InputError(f"{value}"[:80], rule="must be section.key=value", nearest="plan.tp=4")
        return before.changed(f"set:{name.strip()}", text)
    if key == "scale":
        # Another journey has ranks, links and rows of its own.
        chosen = "" if value in (None, shell.OWN) else str(value)
        return before if chosen == before.scale else Address(scale=chosen, token=before.token, verse=before.verse, text=before.text)
    return before.changed(key, value)
