"""From calls to messages between ranks: the step table, or the calls of a run, through gloo's models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.collectives.gloo import messages
from tokenwire.collectives.gloo.pairs import pairs
from tokenwire.collectives.tables import Table
from tokenwire.measure.training.tensor import sums
from tokenwire.measure.training.zero import FP32, broadcasts
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

OUTSIDE = ("setup",)
"""Phases that are not of a step."""


def of_step(operations: pl.DataFrame, plan: Plan) -> Table:
    """Return who sends what to whom in one step, by the step table: ``PAIRS`` of ranks, a row a kind of call and pair."""
    return _together(_by_rank(row, plan) for row in operations.iter_rows(named=True) if row["phase"] not in OUTSIDE)


def by_phase(operations: pl.DataFrame, plan: Plan) -> list[dict[str, Any]]:
    """Return payload bytes of all ranks by phase and group, in the order of the table."""
    out: dict[tuple[str, str], int] = {}
    for row in operations.iter_rows(named=True):
        if row["phase"] not in OUTSIDE and row["op"] != "recv":
            key = (row["phase"], row["group"])
            out[key] = out.get(key, 0) + int(_by_rank(row, plan)["payload"].sum())
    return [{"phase": phase, "group": group, "payload_bytes": size} for (phase, group), size in out.items() if size]


def of_calls(calls: Iterable[Iterable[Mapping[str, Any]]]) -> Table:
    """Return the same of the calls that each rank made, in the order of ranks; a group's calls are read off its first rank."""
    parts = []
    for rank, own in enumerate(calls):
        for call in own:
            members = sorted(int(member) for member in call["members"])
            item = int(ITEM_BYTES[call["dtype"]])
            size = int(call["elements"]) * item
            if call["op"] == "send":
                parts.append(_named(messages("send", 2, size), [rank, int(call["peer"])], 1))
            elif call["op"] != "recv" and members[0] == rank and len(members) > 1:
                sizes = _handed_on(len(members), size, int(call.get("shift") or 0))
                parts.append(_named(messages(call["op"], len(members), size, item=item, root=int(call.get("root") or 0), sizes=sizes),
                                    members, 1))  # fmt: skip
    return _together(parts)


def of_zero(arch: Architecture, n: int) -> Table:
    """Return who sends what when each rank broadcasts the parameters that it has updated."""
    parts = [_named(messages("broadcast", n, size, root=owner), range(n), count)
             for owner, size, count in broadcasts(arch, n)]  # fmt: skip
    return _together(parts)


def of_tensor(arch: Architecture, plan: Plan) -> Table:
    """Return who sends what in a step of tensor parallelism without sequence parallelism, all ranks in one group."""
    return _together(_named(messages("all_reduce", plan.world, elements * FP32), range(plan.world), count)
                     for elements, count in sums(arch, plan))  # fmt: skip


def _by_rank(row: Mapping[str, Any], plan: Plan) -> Table:
    op, stage, count, size = row["op"], int(row["stage"]), int(row["count"]), int(row["bytes"])
    if op == "recv":
        return pairs([], [], [], [])
    if op == "send":
        per_stage = plan.world // plan.pp
        src = stage * per_stage + np.arange(per_stage, dtype=np.int64)
        return pairs(src, src + (int(row["peer"]) - stage) * per_stage, size * count, count)
    parts = []
    for members in plan.groups(row["group"], stage):
        if plan.stage_of(int(members[0])) == stage and len(members) > 1:
            item = max(1, size // max(1, int(row["elements"])))
            shift = 1 if op == "all_to_all" and row["group"] == "cp" else 0
            parts.append(_named(messages(op, len(members), size, item=item, sizes=_handed_on(len(members), size, shift)), members, count))
    return _together(parts)


def _handed_on(n: int, size: int, shift: int) -> Any:
    # Ring attention hands all of a tensor to one other member by an all_to_all whose other pieces are empty
    # (torch/distributed/_functional_collectives.py, permute_tensor).
    return size * np.roll(np.eye(n, dtype=np.int64), shift, axis=1) if shift else None


def _named(table: Table, members: Any, count: int) -> Table:
    ranks = np.asarray(members, dtype=np.int64)
    return pairs(ranks[table["src"]], ranks[table["dst"]], table["payload"] * count, table["messages"] * count)


def _together(parts: Iterable[Table]) -> Table:
    kept = [part for part in parts if part.size]
    return np.concatenate(kept) if kept else pairs([], [], [], [])
