"""Flows: who talks to whom, each kind of communication sharing the links, and what holds it up."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.flows import reading_flows
from tokenwire.flows.heat_plot import SCALE
from tokenwire.report.rooms import fabric as fabrics
from tokenwire.report.scenes import traffic as scene
from tokenwire.units import format_bytes, format_seconds
from tokenwire.web.parts.charts import BYTES, SECONDS, chart, folded_name
from tokenwire.web.parts.fields import choice, field, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import facts, part
from tokenwire.web.view import View

LARGEST = 1 << 15
"""GPUs up to which the flows share the links here."""


def fields(view: View) -> list[Any]:
    """Return the fields: which kind, and what has failed."""
    said = view.journey.step()
    known = sorted({*said["group"], *said["parallelism"], *said["phase"]} - {"setup"}) if len(said) else []
    return [row(choice(view, "only", "Only of", ["all", *known], now="all", width=140),
                field(view, "fail", "Failed devices or links", hint="leaf0, nic5, leaf0-spine1", width=220))]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of flows."""
    traffic = fabrics.loaded(view.journey, view.state.fail)
    told = scene.facts(view.walk)["journeys"][0]
    parts = [*fields(view), _totals(told), html.Div([_matrix(view, told), _by(view, told)], className="side") if told["matrix"] else _by(view, told)]
    if view.journey.plan().world <= LARGEST:
        only = [view.state.only] if view.state.only and view.state.only != "all" else []
        parts.append(_kinds(view, reading_flows.flows(view.journey.traffic(), list(view.state.fail), only).facts))
    else:
        parts.append(part("Who is in whose way", html.P(f"Above {LARGEST:,} GPUs ask `tokenwire flows`.", className="said")))
    return [*parts, _per_rank(view, traffic), _transfers(view, traffic)]


def _totals(told: dict[str, Any]) -> html.Section:
    totals = told["totals"]
    return part("In one step", facts([
        ("sent by all GPUs", format_bytes(totals["sent_bytes"])), ("a GPU sends", format_bytes(totals["sent_bytes_per_gpu"])),
        ("inside nodes", format_bytes(totals["nvlink_bytes"])), ("between nodes", format_bytes(totals["network_bytes"])),
        ("of each token over the network", format_bytes(totals["network_bytes_per_token"])), ("on all links", format_bytes(totals["link_bytes"])),
        ("tokens", f"{totals['tokens']:,}"),
    ]))  # fmt: skip


def _matrix(view: View, told: dict[str, Any]) -> html.Section:
    sent = told["matrix"]
    rows = [{"src": a, "dst": b, "bytes": size} for a, sizes in enumerate(sent) for b, size in enumerate(sizes) if size]
    frame = pl.DataFrame(rows, schema={"src": pl.Int64, "dst": pl.Int64, "bytes": pl.Int64}).sort("bytes", descending=True)
    scale = [[at, "#" + "".join(f"{c:02x}" for c in rgb)] for at, rgb in SCALE]
    n = len(sent)
    heat = {
        # Bytes span decades, so that the colour is of a root; the text is exact.
        "type": "heatmap", "z": [[size**0.4 if size else None for size in sizes] for sizes in sent], "x": [str(k) for k in range(n)], "y": [str(k) for k in range(n)],
        "colorscale": scale, "showscale": False, "xgap": 2, "ygap": 2, "text": [[format_bytes(size) if size else "" for size in sizes] for sizes in sent],
        "texttemplate": "%{text}" if n <= 8 else "", "textfont": {"size": 11}, "hovertemplate": "GPU %{y} to GPU %{x}: %{text}<extra></extra>",
    }  # fmt: skip
    layout = {"yaxis": {"autorange": "reversed", "title": {"text": "from GPU"}, "type": "category"}, "xaxis": {"title": {"text": "to GPU"}, "type": "category"}}
    columns = [Column("src", "from", "1", select="rank"), Column("dst", "to", "1", select="rank"), Column("bytes", "bytes a step", "B")]
    return chart(view, "matrix", "Who talks to whom", [heat], frame, columns, layout=layout, height=420)


def _by(view: View, told: dict[str, Any]) -> html.Section:
    rows = [{"parallelism": name, "nvlink": sizes["nvlink"], "network": sizes["network"]} for name, sizes in told["by"].items()]
    frame = pl.DataFrame(rows, schema={"parallelism": pl.String, "nvlink": pl.Int64, "network": pl.Int64})
    bars = [{"type": "bar", "name": text, "x": frame["parallelism"].to_list(), "y": frame[key].to_list(), "marker": {"color": colour}}
            for key, text, colour in (("nvlink", "inside nodes", "#8b46d6"), ("network", "over the network", "#b86e00"))]  # fmt: skip
    layout = {"barmode": "stack", "yaxis": {"title": {"text": "a step, all GPUs"}, **BYTES}, "xaxis": {"title": {"text": "demanded by"}}}
    columns = [Column("parallelism", "demanded by"), Column("nvlink", "inside nodes", "B"), Column("network", "over the network", "B")]
    return chart(view, "by", "Who asks for it, and where it goes", bars, frame, columns, layout=layout, height=420)


def _kinds(view: View, told: dict[str, Any]) -> html.Section:
    frame = pl.DataFrame(told["kinds"]).with_columns(kind=pl.concat_str("op", pl.lit(" "), "group", pl.lit(", "), "phase")) if told["kinds"] else pl.DataFrame({"kind": []})
    columns = [
        Column("kind", "kind"), Column("flows", "flows", "1"), Column("bytes", "bytes", "B"), Column("seconds", "time", "s"), Column("bound_seconds", "busiest link alone", "s"),
        Column("healthy_seconds", "without the failure", "s"), Column("slowdown", "times slower", "1"), Column("worst_link", "worst link"), Column("worst_link_flows", "flows on it", "1"),
    ]  # fmt: skip
    failed = ", ".join(told["failed"])
    title = f"Who is in whose way: each kind on its own{f', without {failed}' if failed else ''}"
    note = "All flows of a kind begin together and share the links max-min fairly: what the fabric allows, not when a framework would send."
    if frame.is_empty():
        return part(title, html.P("Nothing is sent.", className="said"))
    names = [folded_name(kind) for kind in frame["kind"]]
    bars = [{"type": "bar", "orientation": "h", "name": name, "y": names, "x": frame[key].to_list(), "text": [format_seconds(s) for s in frame[key]], "marker": {"color": colour},
             "hovertemplate": "%{y}: %{text}<extra></extra>", "textposition": "none"}
            for key, name, colour in (("seconds", "sharing the links", "#4269d0"), ("bound_seconds", "the busiest link alone", "#efb118"))]  # fmt: skip
    layout = {"barmode": "group", "xaxis": {"type": "log", "title": {"text": "time (logarithmic)"}, "nticks": 6, **SECONDS}, "yaxis": {"autorange": "reversed", "tickfont": {"size": 11}}}
    return chart(view, "kinds", title, bars, frame, columns, layout=layout, height=90 + 30 * len(names), note=note, opened=True)


def _per_rank(view: View, traffic: Any) -> html.Section:
    columns = [
        Column("rank_class", "ranks of"), Column("ranks", "ranks", "1"), Column("op", "call"), Column("group", "group"), Column("sent_bytes", "a rank sends", "B"),
        Column("total_bytes", "all send", "B"),
    ]  # fmt: skip
    return table(view, "per-rank", "What a rank sends, by class", traffic.per_rank, columns, height=300)


def _transfers(view: View, traffic: Any) -> html.Section:
    columns = [
        Column("src", "from", "1", select="rank"), Column("dst", "to", "1", select="rank"), Column("bytes", "bytes a step", "B"), Column("op", "call"), Column("group", "group"),
        Column("parallelism", "for"), Column("phase", "phase"),
    ]  # fmt: skip
    frame = traffic.transfers
    rank = view.state.rank
    if rank is not None:
        frame = frame.filter((pl.col("src") == rank) | (pl.col("dst") == rank))
    return table(view, "transfers", f"Transfers of rank {rank}" if rank is not None else "The largest transfers", frame.sort("bytes", "src", "dst", descending=[True, False, False]), columns)
