"""Who holds what: the parallel plan, the rank grid, and the ranks that work on the followed token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    from tokenwire.journey import Journey

DRAWN = 64
"""Ranks of the largest grid that is drawn."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return sizes, groups and stages at each scale, and where the token is worked on."""
    place = walk.placement
    return {
        "token": walk.token_text,
        "placement": {
            "sequence": place.sequence, "position": place.position, "step": place.step, "micro_batch": place.micro_batch,
            "replica": place.replica, "slot": place.slot,
        },
        "journeys": [_plan(name, journey) for name, journey in walk.journeys],
    }  # fmt: skip


def _plan(name: str, journey: Journey) -> dict[str, Any]:
    from tokenwire.plan import holdings

    plan, fabric = journey.plan(), journey.config.cluster
    arch = journey.model().architecture
    per_node = journey.fabric().gpus_per_node
    ends = sorted({0, plan.pp - 1})
    holds = {}
    for stage in ends:
        table = holdings(arch, plan, stage * (plan.world // plan.pp))
        holds[str(stage)] = {
            key: int(table[key].sum()) for key in ("elements", "weight_bytes", "gradient_bytes", "optimizer_bytes")
        }
    return {
        "name": name, "dialect": plan.config.dialect, "world": plan.world, "nodes": fabric.world // per_node,
        "gpus_per_node": per_node, "tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "dp": plan.dp, "ep": plan.ep,
        "micro_batches": plan.micro_batches, "axes": [list(axis) for axis in plan.grid.axes],
        "stages": [{"stage": s.index, "layers": list(s.layers), "embedding": s.has_embedding, "head": s.has_head} for s in plan.stages],
        "holds": holds, "notes": list(plan.notes),
        "grid": _grid(journey) if plan.world <= DRAWN else [],
    }  # fmt: skip


def _grid(journey: Journey) -> list[dict[str, Any]]:
    plan, per_node = journey.plan(), journey.fabric().gpus_per_node
    return [{"rank": rank, "node": rank // per_node, **plan.grid.coordinates(rank)} for rank in range(plan.world)]


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the grid, what ranks hold, and the token's place."""
    plans = facts["journeys"]
    rows = [
        ("GPUs (nodes × GPUs)", *[f"{p['world']:,} ({p['nodes']:,} × {p['gpus_per_node']})" for p in plans]),
        ("tensor t", *[p["tp"] for p in plans]),
        ("pipeline p", *[p["pp"] for p in plans]),
        *([("context c", *[p["cp"] for p in plans])] if any(p["cp"] > 1 for p in plans) else []),
        *([("expert e", *[p["ep"] for p in plans])] if any(p["ep"] > 1 for p in plans) else []),
        ("data D", *[f"{p['dp']:,}" for p in plans]),
        ("micro-batches a step m", *[p["micro_batches"] for p in plans]),
        ("weights a GPU, stage 0", *[format_bytes(p["holds"]["0"]["weight_bytes"]) for p in plans]),
        ("gradients", *[format_bytes(p["holds"]["0"]["gradient_bytes"]) for p in plans]),
        ("optimizer", *[format_bytes(p["holds"]["0"]["optimizer_bytes"]) for p in plans]),
    ]
    names = [p["name"] for p in plans]
    yield table(rows, ["", *names], right=names, title=f"in the words of {plans[0]['dialect']}")
    if plans[0]["grid"]:
        yield _drawn(plans[0])
    place = facts["placement"]
    where = f"step {place['step']:,}, micro-batch {place['micro_batch']}, data-parallel rank {place['replica']}, slot {place['slot']}"
    yield f"Token {facts['token']} is in sequence {place['sequence']:,} at position {place['position']:,}: {where}."
    for p in plans:
        for note in p["notes"]:
            yield f"note: {note}"


def _drawn(plan: dict[str, Any]) -> Any:
    columns = [axis for axis, size in plan["axes"] if size > 1 and axis != "pp"]
    rows = []
    for stage in plan["stages"]:
        mine = [cell for cell in plan["grid"] if cell.get("pp", 0) == stage["stage"]]
        layers = _runs(stage["layers"])
        extra = "".join([" + embedding" if stage["embedding"] else "", " + head" if stage["head"] else ""])
        for node in dict.fromkeys(cell["node"] for cell in mine):
            cells = [
                f"{cell['rank']}({','.join(f'{axis[0]}{cell[axis]}' for axis in columns)})" for cell in mine if cell["node"] == node
            ]
            rows.append((f"stage {stage['stage']}", f"layers {layers}{extra}", f"node {node}", " ".join(cells)))
    letters = ", ".join(f"{axis[0]} = {axis}" for axis in columns)
    return table(rows, ["", "holds", "", f"ranks ({letters})" if letters else "ranks"])


def _runs(layers: list[int]) -> str:
    out: list[list[int]] = []
    for layer in layers:
        if out and layer == out[-1][-1] + 1:
            out[-1] = [out[-1][0], layer]
        else:
            out.append([layer])
    return ", ".join("-".join(map(str, run)) for run in out) or "none"
