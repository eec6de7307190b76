"""The plan: the ranks in their nodes, their groups lighted, and what each rank holds."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.fabric.facts import presets as clusters
from tokenwire.plan import holdings
from tokenwire.plan.plan import DIALECTS
from tokenwire.plan.tables import facts as plan_facts
from tokenwire.plan.tables import layers_text, rank_facts
from tokenwire.report.rooms import ranks as room
from tokenwire.web.parts.fields import choice, override, row
from tokenwire.web.parts.tables import Column, table
from tokenwire.web.parts.words import facts, part
from tokenwire.web.view import View

SIZES = ("tp", "pp", "cp", "ep", "vpp")
LISTED = 128
"""Members of a group drawn one by one."""


def fields(view: View) -> list[Any]:
    """Return the fields of the plan and the cluster."""
    config, cluster = view.journey.config.plan, view.journey.config.cluster
    return [row(
        choice(view, "set:plan.dialect", "Framework", tuple(DIALECTS), now=config.dialect, width=130),
        *(override(view, f"plan.{size}", size, getattr(config, size), width=62) for size in SIZES),
        choice(view, "set:cluster.preset", "Cluster", clusters(), now=cluster.preset, search=True, width=220),
        override(view, "cluster.nodes", "Nodes", cluster.facts.nodes, width=76),
        override(view, "training.global_batch", "Global batch, sequences", view.journey.config.training.global_batch, width=160),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of the plan."""
    plan = view.journey.plan()
    rank = view.state.rank or 0
    rank_facts(plan, rank)
    known = room.names(view.journey)
    group = view.state.group if view.state.group in known else (known[0] if known else "world")
    return [*fields(view), _sizes(view), _ranks(view, rank, group, known), _groups(view, rank), html.Div([_stages(view), _held(view, rank)], className="side last-wide")]


def _sizes(view: View) -> html.Section:
    told = plan_facts(view.journey.plan())
    names = {"world": "GPUs", "tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline", "ep": "expert", "vpp": "virtual stages"}
    shown = [(text, f"{told[key]:,}") for key, text in names.items() if told[key] > 1 or key in ("world", "tp", "dp", "pp")]
    place = view.walk.placement
    notes = [html.P(f"Note: {note}.", className="note") for note in told["notes"]]
    return part(f"In the words of {told['dialect']}", facts([*shown, ("micro-batches a step", f"{told['micro_batches']:,}")]), html.P(
        f"Token {view.walk.followed:,} ({view.walk.token_text}) is in sequence {place.sequence:,}: data-parallel rank {place.replica}, "
        f"micro-batch {place.micro_batch}, slot {place.slot} of step {place.step}.", className="said"), *notes)  # fmt: skip


def _ranks(view: View, rank: int, group: str, known: list[str]) -> html.Section:
    plan = view.journey.plan()
    members = set(plan.members(group, rank).tolist())
    whole = plan.world <= room.DRAWN
    shown = list(range(plan.world)) if whole else sorted({rank, *sorted(members)[:LISTED]})
    number = room.numbers(view.journey, group) if whole else dict.fromkeys(shown, 0)
    axes = [axis for axis, size in plan.grid.axes if size > 1]
    nodes: dict[int, list[Any]] = {}
    for cell in room.cells(view.journey, shown):
        nodes.setdefault(cell["node"], []).append(_cell(view, cell, axes, rank, members, f"{group} {number.get(cell['rank'], '-')}"))
    boxes = [html.Div([html.Div(f"node {node}", className="what"), html.Div(inside, className="ranks")], className="box") for node, inside in nodes.items()]
    letters = ", ".join(f"{axis[0]} = {axis}" for axis in axes)
    more = "" if whole else f" Of {plan.world:,} ranks only the group's {len(members):,} are drawn" + (f", of these the first {LISTED}." if len(members) > LISTED else ".")
    note = f"Rank {rank} and its {group} group are marked; point at a rank to light its group. {letters}.{more}"
    return part("The ranks in their nodes", row(choice(view, "group", "Light the group", known or ["world"], now=group, width=140),
                                                _rank_field(view, rank)), html.P(note, className="note"), html.Div(boxes, className="cells"))  # fmt: skip


def _rank_field(view: View, rank: int) -> Any:
    from tokenwire.web.parts.fields import field

    return field(view, "rank", "Rank", now=rank, width=90)


def _cell(view: View, cell: dict[str, Any], axes: list[str], rank: int, members: set[int], lit: str) -> html.A:
    number = cell["rank"]
    kind = " ".join(["cell", *(["member"] if number in members else []), *(["chosen"] if number == rank else [])])
    where = " ".join(f"{axis[0]}{cell['place'][axis]}" for axis in axes)
    said = f"rank {number}, node {cell['node']}, rail {cell['rail']}: " + ", ".join(f"{axis} {at}" for axis, at in cell["place"].items())
    return html.A([str(number), html.Small(where)], href=view.here(rank=number), className=kind, title=said,
                  **{"data-lit": lit, **({"aria-current": "true"} if number == rank else {})})  # fmt: skip


def _groups(view: View, rank: int) -> html.Section:
    columns = [
        Column("group", "group", select="group"), Column("ranks", "ranks", "1"), Column("nodes", "nodes", "1"), Column("rails", "rails", "1"),
        Column("members", "members", wide=True),
    ]  # fmt: skip
    return table(view, "groups", f"The groups of rank {rank}", room.spans(view.journey, rank), columns, chosen=view.state.group or None,
                 note="On one node they talk over NVLink; on several, over the network: on one rail by leaves alone.")  # fmt: skip


def _stages(view: View) -> html.Section:
    frame = pl.DataFrame([
        {"stage": s.index, "layers": layers_text(s), "number": len(s.layers), "and": ", ".join(["embedding"] * s.has_embedding + ["head"] * s.has_head)}
        for s in view.journey.plan().stages
    ])  # fmt: skip
    return table(view, "stages", "Stages of the pipeline", frame, [Column("stage", "stage", "1"), Column("layers", "layers", wide=True), Column("number", "number", "1"), Column("and", "and")])


def _held(view: View, rank: int) -> html.Section:
    frame = holdings(view.journey.model().architecture, view.journey.plan(), rank)
    columns = [
        Column("tensor", "tensor", select="tensor", page="model", wide=True), Column("held", "holds"), Column("slices", "slices"), Column("weight_bytes", "weights", "B"),
        Column("gradient_bytes", "gradients", "B"), Column("optimizer_bytes", "optimizer", "B"),
    ]  # fmt: skip
    sums = ", ".join(f"{name} {printed}" for name, printed in _sums(frame))
    return table(view, "held", f"What rank {rank} holds", frame, columns, note=f"In all {sums}.")


def _sums(frame: pl.DataFrame) -> list[tuple[str, str]]:
    from tokenwire.units import format_bytes

    return [(name, format_bytes(int(frame[key].sum()))) for name, key in (("weights", "weight_bytes"), ("gradients", "gradient_bytes"), ("optimizer", "optimizer_bytes"))]
