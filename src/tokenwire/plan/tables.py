"""A plan in words and as plain facts: sizes, grid, groups with members, stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.plan.plan import Plan, Stage
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    import polars as pl

LISTED = (
    "tp", "cp", "dp", "dp_cp", "dp_shard", "dp_shard_cp", "dp_replicate", "fsdp", "pp", "embedding", "mp", "ep", "etp", "edp",
    "tp_ep", "world",
)  # fmt: skip
"""Groups in the order in which they are listed."""


def groups(plan: Plan) -> list[dict[str, Any]]:
    """Return each group of more than one rank: ``name, size, groups`` (how many), ``stride`` and ``first`` (members).

    Groups with the same members as one before are left out.
    """
    out: list[dict[str, Any]] = []
    seen: set[tuple[int, ...]] = set()
    for name in LISTED:
        size = plan.group_size(name)
        members = tuple(int(rank) for rank in plan.members(name, 0))
        if size < 2 or members in seen:
            continue
        seen.add(members)
        number = plan.world // plan.pp if name == "embedding" else plan.world // size
        out.append({"name": name, "size": size, "groups": number, "first": members})
    return out


def listed(members: tuple[int, ...], most: int = 8) -> str:
    """Return members in short.

    >>> listed((0, 1, 2, 3)), listed(tuple(range(0, 64, 8)), 4)
    ('0 1 2 3', '0 8 … 56')
    """
    if len(members) <= most:
        return " ".join(str(m) for m in members)
    return f"{members[0]} {members[1]} … {members[-1]}"


def layers_text(stage: Stage) -> str:
    """Return the layers of a stage, chunk by chunk.

    >>> layers_text(Stage(0, ((0, 1), (4, 5)), True, False))
    '0–1, 4–5'
    """
    parts = [f"{c[0]}–{c[-1]}" if len(c) > 1 else (str(c[0]) if c else "none") for c in stage.chunks]
    return ", ".join(parts)


def facts(plan: Plan) -> dict[str, Any]:
    """Return the plan for JSON."""
    sizes = {key: getattr(plan, key) for key in ("world", "tp", "pp", "cp", "dp", "ep", "etp", "edp", "vpp")}
    return {
        "dialect": plan.config.dialect, **sizes, "micro_batches": plan.micro_batches,
        "sequence_parallel": plan.sequence_parallel, "vocabulary_size": plan.vocabulary_size,
        "grid": [{"axis": axis, "size": size} for axis, size in plan.grid.axes],
        "expert_grid": [{"axis": axis, "size": size} for axis, size in plan.expert_grid.axes],
        "groups": [{**group, "first": list(group["first"])} for group in groups(plan)],
        "stages": [
            {"stage": s.index, "chunks": [list(c) for c in s.chunks], "layers": len(s.layers),
             "has_embedding": s.has_embedding, "has_head": s.has_head, "has_next_tokens": s.has_next_tokens}
            for s in plan.stages
        ],
        "notes": list(plan.notes),
    }  # fmt: skip


def rank_facts(plan: Plan, rank: int) -> dict[str, Any]:
    """Return one rank's place and the members of its groups. Raises ``InputError`` for a rank that is not there."""
    members = {group["name"]: plan.members(group["name"], rank).tolist() for group in groups(plan)}
    return {
        "rank": rank, "stage": plan.stage_of(rank), "place": plan.grid.coordinates(rank),
        "expert_place": plan.expert_grid.coordinates(rank), "groups": {name: m for name, m in members.items() if m},
    }  # fmt: skip


Table = tuple[str, tuple[str, ...], list[tuple[Any, ...]], tuple[str, ...]]
"""Title, head, rows, columns aligned right."""

_NAMES = {
    "tp": "tensor", "cp": "context", "dp": "data", "dp_cp": "data × context", "pp": "pipeline", "ep": "expert",
    "etp": "expert tensor", "edp": "expert data", "embedding": "copies of the embedding", "mp": "model: tensor × pipeline",
    "tp_ep": "expert tensor × expert", "world": "all ranks", "dp_shard": "data, sharded", "dp_replicate": "data, replicated",
    "fsdp": "fully sharded data", "dp_shard_cp": "data, sharded × context",
}  # fmt: skip


def plan_tables(plan: Plan) -> Iterator[Table]:
    """Yield the tables of a plan: sizes, groups, stages."""
    sizes = [("GPUs", f"{plan.world:,}"), *((_NAMES[k], f"{getattr(plan, k):,}") for k in ("tp", "cp", "dp", "pp"))]
    if plan.ep > 1 or plan.etp != plan.tp:
        sizes += [(_NAMES[k], f"{getattr(plan, k):,}") for k in ("ep", "etp", "edp")]
    if plan.vpp > 1:
        sizes.append(("virtual stages", f"{plan.vpp}"))
    sizes += [("micro-batches a step", f"{plan.micro_batches:,}"), ("padded vocabulary", f"{plan.vocabulary_size:,} rows")]
    yield f"Plan, in the words of {plan.config.dialect}", ("what", "size"), list(sizes), ("size",)
    rows = [(g["name"], _NAMES[g["name"]], f"{g['size']:,}", f"{g['groups']:,}", listed(g["first"])) for g in groups(plan)]
    yield "Process groups", ("group", "what", "ranks", "groups", "that of rank 0"), list(rows), ("ranks", "groups")
    stages = [(s.index, layers_text(s), len(s.layers), _ends(s)) for s in plan.stages]
    yield "Stages", ("stage", "layers", "number", "and"), list(stages), ("stage", "number")


def _ends(stage: Stage) -> str:
    further = ["multi-token prediction"] * stage.has_next_tokens
    return ", ".join(["embedding"] * stage.has_embedding + further + ["head"] * stage.has_head)


def rank_tables(plan: Plan, rank: int, held: pl.DataFrame) -> Iterator[Table]:
    """Yield the tables of one rank: its place and groups, and what it holds, summed by part."""
    import polars as pl

    facts_ = rank_facts(plan, rank)
    place = ", ".join(f"{axis} {at}" for axis, at in facts_["place"].items())
    rows = [(name, _NAMES[name], len(members), listed(tuple(members))) for name, members in facts_["groups"].items()]
    yield f"Rank {rank}: {place}", ("group", "what", "ranks", "members"), list(rows), ("ranks",)
    kinds = ("weight_bytes", "gradient_bytes", "optimizer_bytes")
    sums = held.group_by("part", maintain_order=True).agg(
        pl.len(), pl.col("elements").sum(), *(pl.col(k).sum() for k in kinds)
    )
    total = ("all", len(held), *(int(held[k].sum()) for k in ("elements", *kinds)))
    table = [
        (part, n, f"{elements:,}", *(format_bytes(b) for b in sizes)) for part, n, elements, *sizes in [*sums.iter_rows(), total]
    ]
    head = ("part", "tensors", "numbers", "weights", "gradients", "optimizer")
    yield "It holds", head, list(table), head[1:]
    most = 24
    largest = held.head(most).select("tensor", "shape", "held", "slices")
    more = f" (the first {most} of {len(held):,}; all with --csv)" if len(held) > most else ""
    yield f"Tensors{more}", ("tensor", "shape", "held", "slices"), list(largest.iter_rows()), ()
