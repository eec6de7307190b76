"""The ranks of a plan to look at: which node and rail each is on, and what the groups of one rank span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.plan.tables import groups, rank_facts

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey

DRAWN = 256
"""Ranks of the largest plan that is drawn whole."""


def cells(journey: Journey, ranks: list[int]) -> list[dict[str, Any]]:
    """Return ranks with their node, their rail and their place on every axis of the grid."""
    plan, per_node, rails = journey.plan(), journey.fabric().gpus_per_node, journey.fabric().facts.rails
    return [{"rank": rank, "node": rank // per_node, "rail": rank % per_node % rails, "place": plan.grid.coordinates(rank)} for rank in ranks]


def numbers(journey: Journey, group: str) -> dict[int, int]:
    """Return for every rank the number of its group of that name. Raises ``InputError`` for a group that is not there."""
    return {int(rank): number for number, members in enumerate(journey.plan().groups(group)) for rank in members.tolist()}


def names(journey: Journey) -> list[str]:
    """Return the groups of more than one rank."""
    return [group["name"] for group in groups(journey.plan())]


def spans(journey: Journey, rank: int) -> pl.DataFrame:
    """Return the groups of a rank: group, ranks, nodes and rails that they are on, members.

    Raises ``InputError`` for a rank that is not there.
    """
    import polars as pl

    per_node, rails = journey.fabric().gpus_per_node, journey.fabric().facts.rails
    rows = []
    for name, members in rank_facts(journey.plan(), rank)["groups"].items():
        found = np.asarray(members)
        rows.append({"group": name, "ranks": len(members), "nodes": len(np.unique(found // per_node)),
                     "rails": len(np.unique(found % per_node % rails)), "members": " ".join(map(str, members))})  # fmt: skip
    schema = {"group": pl.String, "ranks": pl.Int64, "nodes": pl.Int64, "rails": pl.Int64, "members": pl.String}
    return pl.DataFrame(rows, schema=schema)
