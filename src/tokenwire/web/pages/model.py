"""The model: its layers as blocks, its parameters as areas, its tensors and who holds them."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.model import presets
from tokenwire.model.words import tensor_table
from tokenwire.report.rooms import blocks as drawn
from tokenwire.report.rooms import model as room
from tokenwire.units import format_count, format_quantity
from tokenwire.web.parts.charts import chart
from tokenwire.web.parts.fields import choice, override, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import derived, facts, part
from tokenwire.web.view import View

AREAS = ("#a6c8ff", "#ffd98a", "#ffb9ae", "#a8e0cf", "#dcc5b1", "#d9c6ff", "#cfe0ff", "#b9e3b4")
"""Colours of areas; dark letters are easily read on each."""
MOST_HEADS = 64
"""Heads or experts drawn one by one."""


def fields(view: View) -> list[Any]:
    """Return the fields of the model."""
    config, training = view.journey.config.model, view.journey.config.training
    return [row(
        choice(view, "set:model.preset", "Model", presets(), now=config.preset, search=True, width=220),
        override(view, "training.sequence_length", "Sequence, tokens", training.sequence_length, width=130),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of the model."""
    model = view.journey.model()
    told = room.facts(model, sequence_length=view.journey.config.training.sequence_length)
    return [
        *fields(view), _counts(told), html.Div([_blocks(told, drawn.blocks(model.architecture)), _areas(view)], className="side"),
        *([_tensor(view)] if view.state.tensor else []), _derivations(told), _tensors(view),
    ]  # fmt: skip


def _counts(told: dict[str, Any]) -> html.Section:
    active = [("active for a token", format_count(told["active_parameters"]))] if told["active_parameters"] != told["parameters"] else []
    return part(f"{told['name']} ({told['family']})", facts([
        ("parameters", format_count(told["parameters"])), *active, ("layers", f"{told['layers']:,}"), ("hidden size h", f"{told['hidden_size']:,}"),
        ("vocabulary V", f"{told['vocabulary_size']:,}"), ("positions", f"{told['positions']}, {told['max_positions']:,}"), ("norm", told["norm"]),
        ("head", "tied to the embedding" if told["tied_embeddings"] else format_count(told["head_parameters"])),
    ]))  # fmt: skip


def _blocks(told: dict[str, Any], kinds: list[dict[str, Any]]) -> html.Section:
    layers = [html.Div([
        html.Div([html.Strong(f"{one['count']} × layer" if one["count"] > 1 else "layer"), html.Small(f"layers {one['layers']}"), _mixer(one), _feed_forward(one)],
                 className="block layer-0"),
    ]) for one in kinds]  # fmt: skip
    head = "head, tied to the embedding" if told["tied_embeddings"] else "head"
    return part("From token to next token", html.Div([
        html.Div([html.Strong("embedding"), html.Small(f"{told['vocabulary_size']:,} × {told['hidden_size']:,}")], className="block layer-1"),
        *layers,
        html.Div([html.Strong(head), html.Small(f"{told['hidden_size']:,} to {told['vocabulary_size']:,}")], className="block layer-1"),
    ], className="blocks"))  # fmt: skip


def _mixer(one: dict[str, Any]) -> html.Div:
    if not one["mixer"]:
        return html.Div()
    heads, groups = one["heads"], one["kv_heads"] or one["heads"]
    each = max(heads // max(groups, 1), 1)
    chips = [html.Span(str(h), className="on" if (h // each) % 2 else "", title=f"head {h}, KV head {h // each}") for h in range(min(heads, MOST_HEADS))]
    more = [html.Span(f"… {heads:,}")] if heads > MOST_HEADS else []
    said = f"; the same shade shares a KV head ({each} heads each)" if each > 1 else ""
    return html.Div([html.Small(one["mixer"] + said), html.Div([*chips, *more], className="heads")], className="block layer-2")


def _feed_forward(one: dict[str, Any]) -> html.Div:
    if not one["feed_forward"]:
        return html.Div()
    count = one["experts"]
    chips = [html.Span(str(e), className="on" if e < one["active"] else "", title=f"expert {e}") for e in range(min(count, MOST_HEADS))]
    more = [html.Span(f"… {count:,}")] if count > MOST_HEADS else []
    said = f"; {one['active']} of them see a token (marked as an example)" if count else ""
    return html.Div([html.Small(one["feed_forward"] + said), html.Div([*chips, *more], className="heads")], className="block layer-3")


def _areas(view: View) -> html.Section:
    frame = drawn.by_tensor(view.journey.model().architecture)
    parts = frame.group_by("part", maintain_order=True).agg(pl.col("elements").sum())
    ids = [*parts["part"].to_list(), *(f"{p}/{t}" for p, t in frame.select("part", "tensor").iter_rows())]
    hues = {name: AREAS[i % len(AREAS)] for i, name in enumerate(parts["part"])}
    tree = {
        "type": "treemap", "ids": ids, "labels": [*parts["part"].to_list(), *(t.removesuffix(".weight") for t in frame["tensor"])],
        "parents": [*[""] * len(parts), *frame["part"].to_list()], "values": [*parts["elements"].to_list(), *frame["elements"].to_list()],
        "branchvalues": "total", "customdata": [*[""] * len(parts), *(view.here(tensor=name) for name in frame["first"])],
        "marker": {"colors": [*(hues[p] for p in parts["part"]), *(hues[p] for p in frame["part"])]}, "texttemplate": "%{label}<br>%{percentRoot:.1%}",
        "hovertemplate": "%{id}<br>%{value:,} parameters<extra></extra>", "tiling": {"pad": 2}, "pathbar": {"visible": False},
    }  # fmt: skip
    columns = [Column("part", "part"), Column("tensor", "tensor"), Column("tensors", "of them", "1"), Column("elements", "parameters", "1")]
    return chart(view, "areas", "Where the parameters are", [tree], frame, columns, layout={"margin": {"l": 0, "r": 0, "t": 0, "b": 0}}, height=420,
                 note="Area is the number of parameters, all layers together. Select one to see its tensor.")  # fmt: skip


def _tensor(view: View) -> html.Section:
    about, held = drawn.holders(view.journey, view.state.tensor)
    split = about["split"] + ("" if about["split_dim"] is None else f" (dimension {about['split_dim']})")
    columns = [
        Column("rank", "rank", "1", select="rank", page="plan"), Column("held", "holds"), Column("slices", "slices of the whole"), Column("elements", "numbers", "1"),
        Column("weight_bytes", "weights", "B"), Column("gradient_bytes", "gradients", "B"), Column("optimizer_bytes", "optimizer", "B"),
    ]  # fmt: skip
    return html.Section([
        part(f"The tensor {about['name']}", facts([("shape", about["shape"]), ("parameters", f"{about['elements']:,}"), ("part", about["part"]),
             ("cut by tensor parallelism", split), ("on stage", str(about.get("stage", "none")))])),
        table(view, "holders", "Who holds it: the first ranks of its stage", held, columns, chosen=view.state.rank),
    ])  # fmt: skip


def _derivations(told: dict[str, Any]) -> html.Section:
    flops = [{**one, "name": f"FLOPs a token, as {name} counts", "derivation": one["text"], "text": format_quantity(one["value"], "FLOP")}
             for name, one in told["flops_per_token"].items()]  # fmt: skip
    return part("How the numbers come about", derived([*({**one, "text": f"{one['value']:,.0f}", "derivation": " = ".join(
        filter(None, (one["formula"], one["values"])))} for one in told["derivation"]), *flops]))  # fmt: skip


def _tensors(view: View) -> html.Section:
    columns = [
        Column("name", "tensor", select="tensor", wide=True), Column("part", "part"), Column("layer", "layer", "1"), Column("shape", "shape"),
        Column("elements", "parameters", "1"), Column("split", "cut by tensor parallelism"), Column("split_dim", "in dimension", "1"),
    ]  # fmt: skip
    return table(view, "tensors", "All tensors", tensor_table(view.journey.model().architecture, "megatron"), columns, chosen=view.state.tensor or None,
                 note="As Megatron fuses them, in the order of its modules.")  # fmt: skip
