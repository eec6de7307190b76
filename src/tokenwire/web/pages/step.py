"""The step: every call of a rank by phase and group, the formula of any of them, the schedule of the pipeline."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.errors import InputError
from tokenwire.report.comparison.chart import COLOURS
from tokenwire.report.rooms import schedule as pipeline
from tokenwire.step import explain
from tokenwire.web.parts.charts import BYTES, chart, ink
from tokenwire.web.parts.fields import choice, field, override, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import part
from tokenwire.web.view import View

KINDS = {"F": ("forward", "#4269d0"), "B": ("backward", "#3ca951"), "I": ("backward for inputs", "#6cc5b0"), "W": ("backward for weights", "#efb118")}


def fields(view: View) -> list[Any]:
    """Return the fields: the rank whose calls are shown, the batch, the group."""
    training = view.journey.config.training
    return [row(
        field(view, "rank", "A rank", now=view.state.rank or 0, width=90),
        override(view, "training.micro_batch", "Micro-batch, sequences", training.micro_batch, width=150),
        override(view, "training.global_batch", "Global batch, sequences", training.global_batch, width=150),
        override(view, "plan.vpp", "Virtual stages", view.journey.config.plan.vpp, width=100),
        choice(view, "only", "Only of", ["all", *_known(view)], now="all", width=120),
    )]  # fmt: skip


def _known(view: View) -> list[str]:
    said = view.journey.step()
    return sorted({*said["group"], *said["parallelism"]}) if len(said) else []


def page(view: View) -> list[Any]:
    """Return the page of the step."""
    plan, numbered = view.journey.plan(), view.journey.step().with_row_index("row").with_columns(step_bytes=pl.col("bytes") * pl.col("count"))
    op = view.state.op
    if op is not None and op >= len(numbered):
        raise InputError(f"op {op}", rule=f"the step has rows 0 to {len(numbered) - 1}", nearest=str(max(len(numbered) - 1, 0)))
    plan.members("world", view.state.rank or 0)
    stage = int(numbered["stage"][op]) if op is not None else plan.stage_of(view.state.rank or 0)
    rows = numbered.filter(pl.col("stage") == stage)
    if view.state.only and view.state.only != "all":
        rows = explain.of_group(rows, view.state.only)
    return [
        *fields(view), *([_one(view, numbered, op)] if op is not None else []), *([] if rows.is_empty() else [_phases(view, rows, stage)]),
        _calls(view, rows, stage, op), _pipeline(view),
    ]  # fmt: skip


def _one(view: View, numbered: pl.DataFrame, op: int) -> html.Section:
    row_ = numbered.row(op, named=True)
    way = html.A("How this call is carried out", href=view.state.href("collective", call="", ranks="", bytes=""))
    return part(f"Row {op}: {row_['op']} on {row_['group']}", html.P(explain.one(numbered, op), className="plain"), html.P(way, className="said"))


def _phases(view: View, rows: pl.DataFrame, stage: int) -> html.Section:
    sums = rows.group_by("phase", "group", maintain_order=True).agg(pl.col("step_bytes").sum(), pl.col("count").sum())
    bars = []
    # Only the groups of a phase stand side by side there, around its name.
    placed = sums.with_columns(at=pl.int_range(pl.len()).over("phase"), of=pl.len().over("phase"))
    wide = 0.8 / max(placed["of"].to_list(), default=1)
    for number, ((group,), mine) in enumerate(placed.group_by("group", maintain_order=True)):
        bars.append({"type": "bar", "name": group, "x": mine["phase"].to_list(), "y": mine["step_bytes"].to_list(), "marker": {"color": COLOURS[number % len(COLOURS)]},
                     "width": wide, "offset": (wide * (mine["at"] - mine["of"] / 2)).to_list(), "hovertemplate": f"{group}, %{{x}}: %{{y:.3s}}B<extra></extra>"})  # fmt: skip
    columns = [Column("phase", "phase"), Column("group", "group"), Column("count", "calls", "1"), Column("step_bytes", "full tensors", "B")]
    return chart(view, "phases", f"What a rank of stage {stage} says, by phase and group", bars, sums, columns, height=280,
                 layout={"barmode": "overlay", "yaxis": {"type": "log", "title": {"text": "bytes a step (logarithmic)"}, **BYTES},
                         "xaxis": {"categoryarray": sums["phase"].unique(maintain_order=True).to_list()}},
                 note="Sizes are of the full tensor of each call, times its calls.")  # fmt: skip


def _calls(view: View, rows: pl.DataFrame, stage: int, op: int | None) -> html.Section:
    columns = [
        Column("row", "row", "1", select="op"), Column("phase", "phase"), Column("op", "call"), Column("group", "group"), Column("group_size", "ranks", "1"),
        Column("count", "times", "1"), Column("bytes", "a call", "B"), Column("step_bytes", "a step", "B"), Column("dtype", "dtype"), Column("what", "what"),
        Column("formula", "elements"),
    ]  # fmt: skip
    return table(view, "calls", f"The calls of a rank of stage {stage}", rows, columns, chosen=op, height=420,
                 note="Nothing is said: every group of this plan has one rank." if rows.is_empty() else "Select a row for its derivation.")  # fmt: skip


def _pipeline(view: View) -> html.Section:
    about, frame = pipeline.actions(view.journey)
    bars = []
    for kind, (name, colour) in KINDS.items():
        mine = frame.filter(pl.col("action") == kind)
        if len(mine):
            bars.append({"type": "bar", "orientation": "h", "name": name, "y": mine["stage"].to_list(), "base": mine["start"].to_list(),
                         "x": (mine["end"] - mine["start"]).to_list(), "marker": {"color": colour, "line": {"width": 0.6, "color": "#fff"}},
                         "text": [f"{m}" for m in mine["micro_batch"]] if len(frame) <= 600 else None, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "insidetextfont": {"color": ink(colour)},
                         "customdata": mine.select("micro_batch", "chunk").rows(),
                         "hovertemplate": f"stage %{{y}}, {name} of micro-batch %{{customdata[0]}}, chunk %{{customdata[1]}}<extra></extra>"})  # fmt: skip
    stages = int(frame["stage"].max() or 0) + 1  # type: ignore[arg-type]
    layout = {"barmode": "overlay", "bargap": 0.18, "xaxis": {"title": {"text": "time, in forwards of a stage"}},
              "yaxis": {"autorange": "reversed", "title": {"text": "stage"}, "dtick": 1 if stages <= 16 else None, "fixedrange": True}}  # fmt: skip
    cut = f" Of {about['micro_batches']:,} micro-batches {about['shown']:,} are drawn." if about["shown"] < about["micro_batches"] else ""
    columns = [Column("stage", "stage", "1"), Column("action", "action"), Column("chunk", "chunk", "1"), Column("micro_batch", "micro-batch", "1"), Column("start", "from", "1"), Column("end", "to", "1")]
    return chart(view, "pipeline", f"The pipeline: {about['name']}", bars, frame, columns, layout=layout, height=min(120 + 30 * stages, 560), zoomable=True,
                 note=f"A bubble of {100 * about['bubble']:.1f} %; a backward takes two forwards, sending takes no time here (Timeline has real times).{cut}")  # fmt: skip
