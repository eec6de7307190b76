"""A collective: the algorithm round by round, bytes on each edge, what each algorithm would take."""

from __future__ import annotations

from math import atan2, cos, degrees, pi, sin
from typing import Any

import polars as pl
from dash import html

from tokenwire.collectives import algorithm, algorithms
from tokenwire.report.comparison.chart import COLOURS
from tokenwire.report.rooms import rounds as room
from tokenwire.units import counted, format_bytes, format_memory_rate, format_rate, format_seconds
from tokenwire.web.parts.charts import chart
from tokenwire.web.parts.fields import choice, field, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import facts, part
from tokenwire.web.view import View

MOST_ROUNDS = 64
"""Rounds that are animated."""
LABELLED = 8
"""Ranks up to which each arrow says its bytes."""


def _call(view: View) -> room.Call:
    state = view.state
    silent = state.op is None and view.journey.step().is_empty()
    if state.call or silent:
        return room.own_call(view.journey, state.call or "all_reduce", state.ranks or "8", state.bytes or "256 MiB")
    return room.call_of_step(view.journey, state.op, state.rank or 0)


def fields(view: View) -> list[Any]:
    """Return the fields: a row of the step, or a call of one's own."""
    state = view.state
    op = state.call if state.call in room.operations() else _call(view).op
    return [row(
        field(view, "op", "Row of the step", now=state.op if state.op is not None else "largest", width=120),
        choice(view, "algorithm", "Algorithm", algorithms(op), now=algorithm(op).name, width=170),
        choice(view, "call", "Or a call of your own", ("of the step", *room.operations()), now="of the step", width=160),
        *([field(view, "ranks", "Ranks", now="8", width=80), field(view, "bytes", "Full tensor", now="256 MiB", width=110)] if state.call else []),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of a collective."""
    call = _call(view)
    # An algorithm chosen for another operation gives way to the usual one.
    name = view.state.algorithm if view.state.algorithm in algorithms(call.op) else algorithm(call.op).name
    costs = room.costs(call)
    return [*fields(view), _about(view, call, name, costs), _rounds(view, call, name), html.Div([_costs(view, call, name, costs), _pairs(view, call, name)], className="side")]


def _about(view: View, call: room.Call, name: str, costs: pl.DataFrame) -> html.Section:
    mine = costs.filter(pl.col("algorithm") == name)
    rate = format_rate(call.rate) if call.network else format_memory_rate(call.rate)
    pairs: list[tuple[str, Any]] = [
        ("operation", call.op), ("algorithm", name), ("ranks", f"{call.n:,}"), ("full tensor", f"{format_bytes(call.bytes)} ({call.bytes:,} B)"),
        ("over", f"the network, {rate} a NIC" if call.network else f"NVLink, {rate}"),
    ]  # fmt: skip
    if call.row is not None:
        pairs.insert(0, ("row of the step", html.A(f"{call.row} on {call.group}", href=view.state.href("step", op=call.row))))
    below: list[Any] = []
    if view.journey.step().is_empty():
        below.append(html.P("This plan says nothing: every group has one rank. The call is an example.", className="note"))
    if len(mine):
        one = mine.row(0, named=True)
        pairs += [("alone it takes", format_seconds(one["seconds"])), ("busbw", format_memory_rate(one["busbw"])), ("a rank sends", format_bytes(one["sent_bytes"]))]
        below += [html.P(one["derivation"], className="plain"), html.P(f"Source: {one['source']}", className="note")]
    return part(f"{call.op} by {name}", facts(pairs), *below)


def _rounds(view: View, call: room.Call, name: str) -> html.Section:
    n, moved = room.rounds(call, name)
    if moved.is_empty():
        return part("Round by round", html.P("Nothing is sent: a group of one, or nothing to send.", className="said"))
    # Members beyond the ranks are switches that add or copy; they stand in the middle.
    members = max(n, int(max(moved["src"].max(), moved["dst"].max())) + 1)  # type: ignore[type-var, arg-type]
    places = [(sin(2 * pi * k / n), cos(2 * pi * k / n)) if k < n else (0.0, 0.25 * (k - n)) for k in range(members)]
    steps = sorted(moved["step"].unique().to_list())[:MOST_ROUNDS]
    frames: list[dict[str, Any]] = [{"name": str(step + 1), "data": _arrows(moved.filter(pl.col("step") == step), places, n)} for step in steps]
    at = min(max(int(view.state.zoom) if view.state.zoom.isdigit() else 1, 1), len(frames)) - 1
    names = [str(call.members[k]) if n == call.n and k < len(call.members) else str(k) if k < n else "switch" for k in range(members)]
    nodes = {"type": "scatter", "mode": "markers+text", "x": [x for x, _ in places], "y": [y for _, y in places], "text": names, "textposition": "middle center",
             "marker": {"size": 34 if n <= 16 else 24, "color": "#dbe4ff", "line": {"color": "#364fc7", "width": 1.5}}, "textfont": {"color": "#17202a"}, "hoverinfo": "text"}  # fmt: skip
    hidden = {"visible": False, "range": [-1.35, 1.35], "fixedrange": True}
    layout = {
        "xaxis": hidden, "yaxis": {**hidden, "scaleanchor": "x"}, "showlegend": False, "margin": {"l": 0, "r": 0, "t": 0, "b": 96},
        "sliders": [{"active": at, "currentvalue": {"prefix": "round "}, "pad": {"t": 10}, "steps": [
            {"label": one["name"], "method": "animate", "args": [[one["name"]], {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}]}
            for one in frames]}],
        "updatemenus": [{"type": "buttons", "direction": "left", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "showactive": False, "buttons": [
            {"label": "Play", "method": "animate", "args": [None, {"frame": {"duration": 900, "redraw": False}, "transition": {"duration": 0}, "fromcurrent": True}]},
            {"label": "Pause", "method": "animate", "args": [[None], {"mode": "immediate", "frame": {"duration": 0, "redraw": False}}]}]}],
    }  # fmt: skip
    here = [html.A(str(step + 1), href=view.here(zoom=str(step + 1)), **({"aria-current": "true"} if step == steps[at] else {})) for step in steps]
    total = int(moved["step"].max()) + 1  # type: ignore[arg-type]
    note = f"{counted(total, 'round')}{', each begun when the one before is done' if total > 1 else ''}. An arrow is a transfer; its colour is the piece of the tensor."
    if n < call.n:
        note += f" Drawn among {n} ranks in place of {call.n:,}: the way is the same, there are more rounds or more arrows."
    columns = [Column("step", "round, from 0", "1"), Column("src", "from", "1"), Column("dst", "to", "1"), Column("offset", "at byte", "1"), Column("bytes", "bytes", "B"),
               Column("chunk", "piece", "1"), Column("adds", "adds")]  # fmt: skip
    drawn = chart(view, "rounds", "Round by round", [*frames[at]["data"], nodes], moved, columns, layout=layout, height=480, note=note, frames=frames)
    turn = html.P(["Round ", *[part_ for link in here for part_ in (link, " ")]], className="note rounds")
    return html.Div([drawn, turn], className="joined")


def _arrows(moved: pl.DataFrame, places: list[tuple[float, float]], n: int) -> list[dict[str, Any]]:
    x: list[float | None] = []
    y: list[float | None] = []
    heads: dict[str, list[Any]] = {"x": [], "y": [], "angle": [], "color": [], "text": [], "said": [], "at_x": [], "at_y": []}
    for src, dst, size, chunk, adds in moved.select("src", "dst", "bytes", "chunk", "adds").iter_rows():
        (ax, ay), (bx, by) = places[src], places[dst]
        # The two ways between a pair lie side by side.
        long = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5 or 1.0
        sx, sy = (by - ay) / long * 0.03, -(bx - ax) / long * 0.03
        x += [ax + sx, bx + sx, None]
        y += [ay + sy, by + sy, None]
        heads["x"].append(ax + (bx - ax) * 0.62 + sx)
        heads["y"].append(ay + (by - ay) * 0.62 + sy)
        heads["at_x"].append((ax + bx) / 2 + 9.0 * sx)
        heads["at_y"].append((ay + by) / 2 + 5.0 * sy)
        heads["angle"].append(degrees(atan2(bx - ax, by - ay)))
        heads["color"].append(COLOURS[int(chunk) % len(COLOURS)])
        heads["text"].append(format_bytes(size) if n <= LABELLED else "")
        heads["said"].append(f"{src} to {dst}: piece {chunk}, {format_bytes(size)}, {'added' if adds else 'kept'}")
    line = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": "#868e96", "width": 1.6}, "hoverinfo": "skip"}
    labels = {"type": "scatter", "mode": "text", "x": heads["at_x"], "y": heads["at_y"], "text": heads["text"], "hoverinfo": "skip"}
    marks = {"type": "scatter", "mode": "markers", "x": heads["x"], "y": heads["y"], "hovertext": heads["said"], "hoverinfo": "text", "marker": {"symbol": "arrow", "size": 17, "angle": heads["angle"], "color": heads["color"], "line": {"width": 0.5, "color": "#495057"}}}  # fmt: skip
    return [line, marks, labels]


def _costs(view: View, call: room.Call, name: str, costs: pl.DataFrame) -> html.Section:
    columns = [
        Column("algorithm", "algorithm", select="algorithm"), Column("seconds", "time", "s"), Column("steps", "rounds", "1"), Column("sent_bytes", "a rank sends", "B"),
    ]  # fmt: skip
    return table(view, "costs", "What each algorithm takes", costs, columns, chosen=name,
                 note="Alone, through a switch whose links have the rate above; the fastest first. Select one to see its rounds.")  # fmt: skip


def _pairs(view: View, call: room.Call, name: str) -> html.Section:
    frame = room.pairs(call, name)
    if frame is None:
        return part("Bytes on each edge", html.P(f"Among {call.n:,} ranks there are too many pairs to list.", className="said"))
    columns = [
        Column("src_rank", "from rank", "1", select="rank"), Column("dst_rank", "to rank", "1", select="rank"), Column("bytes", "bytes of the call", "B"),
    ]  # fmt: skip
    return table(view, "edges", "Bytes on each edge", frame, columns, height=300)
