"""The timeline: what each stage computes and waits for over a step, and what a NIC sends meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from dash import html

from tokenwire.report.rooms import over_time, time
from tokenwire.units import format_quantity, format_rate, format_seconds
from tokenwire.web.parts.charts import SECONDS, chart, ink
from tokenwire.web.parts.fields import field, override, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import derived, facts, part
from tokenwire.web.view import View

HUES = {"forward": "#4269d0", "backward": "#3ca951", "backward for inputs": "#3ca951", "backward for weights": "#97d09f", "gradients": "#d6432f",
        "optimizer": "#8b46d6", "weights": "#efb118", "norms and flags": "#9c6b4e"}  # fmt: skip


def fields(view: View) -> list[Any]:
    """Return the fields of the timeline."""
    training, plan = view.journey.config.training, view.journey.config.plan
    return [row(
        field(view, "rank", "NIC of rank", now=view.state.rank or 0, width=100), override(view, "training.global_batch", "Global batch, sequences", training.global_batch, width=160),
        override(view, "training.micro_batch", "Micro-batch, sequences", training.micro_batch, width=150), override(view, "plan.vpp", "Virtual stages", plan.vpp, width=100),
        field(view, "zoom", "Window", hint="in seconds: from-to", width=170),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of the timeline."""
    step = time.timed(view.journey, whole=True)
    told = time.facts(step, view.journey)
    events = over_time.frame(step)
    end = float(events["end"].max() or step.step_seconds)  # type: ignore[arg-type]
    low, high = over_time.window(view.state.zoom, end)
    return [*fields(view), _sums(step, told), _events(view, step, events, low, high), _nic(view, events, low, high), _stages(view, step), _figures(told, step.notes)]


def _sums(step: Any, told: dict[str, Any]) -> html.Section:
    peaks = told.get("peak_memory_bytes_by_stage")
    return part("One step", facts([
        ("takes", format_seconds(step.step_seconds)), ("computing", format_seconds(step.compute_seconds)),
        ("exposed communication", format_seconds(step.exposed_communication_seconds)), ("bubble", format_seconds(step.bubble_seconds)), ("MFU", f"{100 * step.mfu:.1f} %"),
        ("a GPU does", format_quantity(step.tflops_per_gpu * 1e12, "FLOP/s")), ("tokens", f"{step.tokens_per_second:,.0f}/s"), ("schedule", step.schedule),
        *([("peak memory, most of a stage", format_quantity(max(peaks), "B"))] if peaks else []),
    ]))  # fmt: skip


def _events(view: View, step: Any, events: pl.DataFrame, low: float, high: float) -> html.Section:
    shown = over_time.inside(events, low, high)
    many = len(shown) > over_time.ONE_BY_ONE
    drawn = over_time.summed(shown, low, high) if many else shown
    bars = []
    for kind in drawn["kind"].unique(maintain_order=True).to_list():
        mine = drawn.filter(pl.col("kind") == kind)
        length = (mine["end"] - mine["start"]).to_list()
        bar = {"type": "bar", "orientation": "h", "name": kind, "y": mine["stage"].to_list(), "base": mine["start"].to_list(), "x": length,
               "marker": {"color": HUES.get(kind, "#868e96"), "line": {"width": 0}}}  # fmt: skip
        if many:
            bar["marker"]["opacity"] = mine["share"].round(3).to_list()
            bar["hovertemplate"] = f"stage %{{y}}, {kind}: %{{customdata:.0%}} of this slice<extra></extra>"
            bar["customdata"] = mine["share"].to_list()
        else:
            bar["text"] = mine["name"].to_list() if len(drawn) <= 400 else None
            bar |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "insidetextfont": {"color": ink(bar["marker"]["color"])}}
            bar["customdata"] = [format_seconds(s) for s in length]
            bar["hovertemplate"] = f"stage %{{y}}, {kind}: %{{customdata}}<extra></extra>"
        bars.append(bar)
    stages = len(step.stages)
    layout = {"barmode": "overlay", "bargap": 0.15, "xaxis": {"range": [low, high], **SECONDS},
              "yaxis": {"autorange": "reversed", "title": {"text": "stage"}, "dtick": 1 if stages <= 16 else None, "fixedrange": True}}  # fmt: skip
    run = step.run
    note = f"{len(events):,} events. Drag to look closer, double-click for all; the window stands in the address."
    if many:
        note += f" {len(shown):,} are in the window: summed in {over_time.SLICES} slices, the fuller the colour, the more of the slice."
    if run.left_out:
        note += f" Of {step.micro_batches:,} micro-batches {run.shown:,} are shown; each other one takes {format_seconds(run.pace)} between them."
    columns = [Column("stage", "stage", "1"), Column("kind", "what"), Column("name", "name"), Column("share", "share", "1"), Column("start", "from", "s"), Column("end", "to", "s")]
    back = [html.P([html.A("All of the step", href=view.here(zoom="")), " · ", html.A("the first tenth of the window", href=view.here(zoom=f"{low:.6g}-{low + (high - low) / 10:.6g}")), " · ",
                    html.A("later", href=view.here(zoom=f"{high:.6g}-{2 * high - low:.6g}"))], className="note")]  # fmt: skip
    trace = html.P([html.A("The step as a trace", href=f"/trace{view.state.query}", download="step.json"), " to open in Perfetto (ui.perfetto.dev) or chrome://tracing."], className="note")
    drawn_part = chart(view, "events", "What each stage does", bars, drawn, columns, layout=layout, height=min(130 + 32 * stages, 620), zoomable=True, note=note)
    return html.Div([drawn_part, html.Div([*back, trace], className="rounds")], className="joined")


def _nic(view: View, events: pl.DataFrame, low: float, high: float) -> html.Section:
    rank = view.state.rank or 0
    frame = over_time.nic(view.journey, events, rank, low, high)
    has = view.journey.fabric().nic_rate
    title = f"What the NIC of rank {rank} sends meanwhile"
    if frame.is_empty():
        return part(title, html.P("Nothing of this rank leaves its node.", className="said"))
    areas = [{"type": "scatter", "mode": "lines", "stackgroup": "one", "name": phase, "x": mine["start"].to_list(), "y": (mine["rate"] * 8 / 1e9).to_list(), "line": {"shape": "hv", "width": 0.5},
              "hovertemplate": f"{phase}: %{{y:.2f}} Gb/s<extra></extra>"}
             for (phase,), mine in frame.group_by("phase", maintain_order=True)]  # fmt: skip
    layout = {"xaxis": {"range": [low, high], **SECONDS}, "yaxis": {"title": {"text": "Gb/s"}, "rangemode": "tozero"}}
    columns = [Column("phase", "phase"), Column("start", "from", "s"), Column("end", "to", "s"), Column("bytes", "bytes", "B"), Column("rate", "rate", "B/s")]
    return chart(view, "nic", title, areas, frame, columns, layout=layout, height=260, zoomable=True,
                 note=f"The bytes of each phase, spread evenly over its actions: how many is exact, when is not. The NIC has {format_rate(has)}.")  # fmt: skip


def _stages(view: View, step: Any) -> html.Section:
    frame = step.table()
    names = {"stage": "stage", "forward": "forward, a micro-batch", "backward": "backward, a micro-batch", "compute": "computing", "bubble": "bubble", "optimizer": "optimizer"}
    columns = [Column(name, names.get(name, name.replace("exposed_", "exposed: ")), "1" if name == "stage" else "s") for name in frame.columns if not name.startswith("part_")]
    return table(view, "stages", "By stage", frame, columns)


def _figures(told: dict[str, Any], notes: Sequence[str]) -> html.Section:
    from tokenwire.figures import Figure

    figures = [Figure(**one) for one in told["figures"]]
    said = [html.P(f"Note: {note}.", className="note") for note in notes]
    return part("How the numbers come about", *said, derived({**figure.as_dict(), "text": figure.text, "derivation": figure.derivation} for figure in figures))
