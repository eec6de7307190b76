"""The fabric: devices and links with the load of a step as heat, tier by tier; what a failure does."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
import polars as pl
from dash import html

from tokenwire.fabric.choice import ROUTINGS, SHORTEST, WITHOUT_DETOURS
from tokenwire.fabric.facts import presets as clusters
from tokenwire.flows.heat_plot import SCALE
from tokenwire.flows.reading import rate_text
from tokenwire.report.rooms import fabric as room
from tokenwire.units import format_bytes, format_seconds
from tokenwire.web.parts.charts import SECONDS, chart
from tokenwire.web.parts.fields import choice, field, override, row
from tokenwire.web.parts.tables import Column, table, titled, whole
from tokenwire.web.parts.words import facts, part
from tokenwire.web.view import View

HUES = {"gpu": "#4269d0", "nic": "#a05f00", "nvswitch": "#8b46d6", "leaf": "#147a63", "spine": "#1f6fa8", "core": "#8a5a3c"}

_SHEET = [
    {"selector": "node", "style": {"label": "data(label)", "background-color": "data(colour)", "width": "data(wide)", "height": 30, "shape": "round-rectangle", "font-size": 14,
                                   "color": "#fff", "text-valign": "center", "text-halign": "center", "text-outline-width": 0}},
    {"selector": ".failed", "style": {"background-color": "#c92a2a", "border-width": 3, "border-color": "#17202a", "border-style": "dashed"}},
    {"selector": ".chosen", "style": {"border-width": 4, "border-color": "#e8590c"}},
    {"selector": "edge", "style": {"width": "data(width)", "line-color": "data(colour)", "curve-style": "straight"}},
    {"selector": "edge.chosen", "style": {"line-color": "#e8590c", "width": 7}},
]  # fmt: skip


def fields(view: View) -> list[Any]:
    """Return the fields of the cluster."""
    cluster = view.journey.config.cluster
    facts_ = cluster.facts
    return [row(
        choice(view, "set:cluster.preset", "Cluster", clusters(), now=cluster.preset, search=True, width=220),
        override(view, "cluster.nodes", "Nodes", facts_.nodes, width=76),
        override(view, "cluster.nic_rate", "NIC", rate_text("leaf", facts_.nic_rate), width=110),
        override(view, "cluster.oversubscription", "Oversubscription", facts_.oversubscription, width=120),
        choice(view, "set:cluster.routing", "Routing", ROUTINGS if facts_.topology not in WITHOUT_DETOURS else SHORTEST, now=facts_.routing, width=110),
        field(view, "fail", "Failed devices or links", hint="leaf0, nic5, leaf0-spine1", width=220),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of the fabric."""
    traffic = room.loaded(view.journey, view.state.fail)
    view.journey.plan().members("world", view.state.rank or 0)
    return [
        *fields(view), _about(view, traffic), _drawn(view, traffic), *([_link(view, traffic)] if view.state.link is not None else []),
        _heat(view, traffic), _links(view, traffic),
    ]  # fmt: skip


def _about(view: View, traffic: Any) -> html.Section:
    fabric, facts_ = traffic.fabric, view.journey.config.cluster.facts
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in fabric.kinds if count)
    notes = [html.P(f"Note: {note}.", className="note") for note in fabric.notes]
    return part(facts_.title or fabric.name, facts([
        ("devices", kinds), ("links, each way", f"{fabric.links:,}"), ("topology", facts_.topology), ("rails", f"{facts_.rails}"), ("NIC", rate_text("leaf", fabric.nic_rate)),
        ("on all links in a step", format_bytes(int(traffic.link_bytes.sum()))), ("equal ways", facts_.routing),
    ]), *notes)  # fmt: skip


def _drawn(view: View, traffic: Any) -> html.Section:
    state = view.state
    drawing = room.drawing(traffic, state.rank or 0, state.link)
    nodes = [{
        "data": {"id": d["name"], "label": d["name"].removeprefix(d["kind"]) if drawing["whole"] else d["name"], "colour": HUES.get(d["kind"], "#555e67"), "wide": 46 if drawing["whole"] else 84,
                 "href": _pressed(view, d)},
        "position": {"x": d["x"], "y": d["y"]}, "classes": " ".join([*(["failed"] if d["failed"] else []), *(["chosen"] if d["name"] == f"gpu{state.rank or 0}" else [])]),
    } for d in drawing["devices"]]  # fmt: skip
    wires = [{
        "data": {"id": f"{w['a']}-{w['b']}", "source": w["a"], "target": w["b"], "colour": w["colour"], "width": 1.2 + 5 * w["share"] ** 0.4 if w["bytes"] else 1,
                 "href": view.here(link=w["link"]) if w["link"] is not None else ""},
        "classes": "chosen" if w["chosen"] else "",
    } for w in drawing["wires"]]  # fmt: skip
    frame = pl.DataFrame([{key: w[key] for key in ("a", "b", "link", "links", "bytes")} for w in drawing["wires"]],
                         schema={"a": pl.String, "b": pl.String, "link": pl.Int64, "links": pl.Int64, "bytes": pl.Int64}).sort("bytes", descending=True)  # fmt: skip
    graph = cyto.Cytoscape(
        id={"graph-of-nodes": "fabric"}, elements=[*nodes, *wires], layout={"name": "preset", "fit": True, "padding": 18}, stylesheet=_SHEET,
        style={"width": "100%", "height": "430px"}, minZoom=0.2, maxZoom=3, autoungrabify=True, boxSelectionEnabled=False, responsive=True,
    )  # fmt: skip
    legend = html.Div([html.Span(kind, className="kind", style={"background": HUES.get(kind, "#555e67")}) for kind in dict.fromkeys(d["kind"] for d in drawing["devices"])], className="legend")
    what = "Every device." if drawing["whole"] else f"Too large to draw whole: what is around rank {state.rank or 0}; the tiers below have all of it."
    note = f"{what} The warmer and wider a line, the more bytes cross it in a step, both ways. Select a line for its load; a switch or NIC to let it fail, or work again."
    columns = [Column("a", "between"), Column("b", "and"), Column("link", "busiest link", "1", select="link"), Column("links", "links", "1"), Column("bytes", "both ways", "B")]
    view.tables["wires"] = frame
    data = html.Details([html.Summary("The lines as a table"), whole(view, frame.head(60), columns, state.link, "The lines of the drawing")], className="data")
    canvas = html.Div(graph, role="group", className="canvas", **{"aria-label": "Drawing of the fabric; the table below has the same"})
    return titled(view, "wires", "Devices and links", html.Div([legend, canvas, data, _failures(view, drawing)]), note)


def _pressed(view: View, device: dict[str, Any]) -> str:
    if device["kind"] == "gpu":
        return view.here(rank=device["device"])
    failed = view.state.fail
    name = device["name"]
    return view.here(fail=tuple(one for one in failed if one != name) if name in failed else (*failed, name))


def _failures(view: View, drawing: dict[str, Any]) -> html.P:
    able = [d for kind in ("leaf", "spine", "core") for d in drawing["devices"] if d["kind"] == kind][:16]
    links = [html.A(("mend " if d["failed"] else "fail ") + d["name"], href=_pressed(view, d)) for d in able]
    return html.P([part_ for link in links for part_ in (link, " · ")][:-1], className="note")


def _link(view: View, traffic: Any) -> html.Section:
    about, by = room.link_facts(traffic, view.state.link or 0)
    columns = [Column("parallelism", "for"), Column("op", "call"), Column("group", "group"), Column("phase", "phase"), Column("bytes", "bytes a step", "B")]
    return html.Div([
        part(f"Link {about['link']:,}: {about['src']} to {about['dst']}", facts([
            ("tier", about["tier"]), ("rate", rate_text(about["tier"], about["rate"])), ("latency", format_seconds(about["latency"])), ("bytes a step", format_bytes(about["bytes"])),
            ("at full rate they take", format_seconds(about["seconds"]))])),
        table(view, "load", "Who loads it", by, columns, note="" if len(by) else "Nothing crosses it in a step."),
    ])  # fmt: skip


def _heat(view: View, traffic: Any) -> html.Section:
    tiers = room.tiers(traffic)
    frame = pl.DataFrame([{key: value for key, value in tier.items() if key != "curve"} for tier in tiers])
    names = [f"{tier['tier']} {tier['direction']}" for tier in tiers]
    scale = [[at, "#" + "".join(f"{c:02x}" for c in rgb)] for at, rgb in SCALE]
    count = len(tiers[0]["curve"]) if tiers else 0
    heat = {
        "type": "heatmap", "z": [[x or None for x in tier["curve"]] for tier in tiers], "y": names, "x": [f"{100 * k // max(count - 1, 1)} %" for k in range(count)], "colorscale": scale, "zmin": 0, "zmax": max((x for tier in tiers for x in tier["curve"]), default=0.0),
        "xgap": 1, "ygap": 3, "colorbar": {"thickness": 10, **SECONDS}, "text": [[format_seconds(x) for x in tier["curve"]] for tier in tiers],
        "hovertemplate": "%{y}, link at %{x}: %{text}<extra></extra>",
    }  # fmt: skip
    columns = [
        Column("tier", "tier"), Column("direction", "way"), Column("links", "links", "1"), Column("idle", "idle", "1"), Column("median_seconds", "median", "s"),
        Column("most_seconds", "busiest", "s"), Column("imbalance", "busiest / mean", "1"), Column("busiest", "which"),
    ]  # fmt: skip
    layout = {"yaxis": {"autorange": "reversed"}, "xaxis": {"type": "category", "nticks": 5, "tickangle": 0, "title": {"text": "links of the tier, the least busy first"}}, "margin": {"l": 104, "r": 10, "t": 10, "b": 44}}
    return chart(view, "heat", "How hot the links are, tier by tier", [heat], frame, columns, layout=layout, height=90 + 38 * len(tiers), opened=True,
                 note="The time that the bytes of a step need at the link's full rate; a link that stays idle has no colour.")  # fmt: skip


def _links(view: View, traffic: Any) -> html.Section:
    columns = [
        Column("link", "link", "1", select="link"), Column("src", "from"), Column("dst", "to"), Column("tier", "tier"), Column("bytes", "bytes a step", "B"), Column("seconds", "bytes / rate", "s"),
    ]  # fmt: skip
    return table(view, "links", "The links, the busiest first", room.links(traffic), columns, chosen=view.state.link)
