"""The NICs that NCCL's rings leave a node by.

``flows`` lays one ring a group, which leaves a node by one NIC. NCCL lays a channel or more by each NIC in reach of the group's ranks
(``collectives.nccl.graph``), and these share the bytes: what the groups of a kind send out of a node goes evenly over the NICs of their
channels. A send, and each part of an exchange, goes by the NIC of its own GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.collectives.nccl.constants import OPERATIONS
from tokenwire.timeline.communication import channel_nics, place_of

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric import ClusterFacts
    from tokenwire.plan import Plan


def busiest_by_channels(transfers: pl.DataFrame, plan: Plan, facts: ClusterFacts) -> float | None:
    """Return the bytes a step through the busiest NIC where rings are laid over all NICs; None where NCCL does not lay them, or nothing leaves a node.

    ``transfers`` are those between GPUs (``flows.Traffic.transfers``): src, dst, bytes, op, group.
    """
    import polars as pl

    g, k = facts.gpus_per_node, facts.nics_per_node
    if not k:
        return None
    leaving = transfers.filter(pl.col("src") // g != pl.col("dst") // g).with_columns(node=pl.col("src") // g)
    if not len(leaving):
        return None
    ring = pl.col("op").is_in(list(OPERATIONS))
    shared: dict[int, float] = {}
    for group, node, size in leaving.filter(ring).group_by("group", "node").agg(pl.col("bytes").sum()).iter_rows():
        place = place_of(plan, group, 0, g)
        nics = channel_nics(place, facts)
        if nics is None:
            return None
        groups = max(1, g // place.per_node)
        shared[node] = shared.get(node, 0.0) + size / min(k, groups * nics)
    own = leaving.filter(~ring).group_by("node", nic=pl.col("src") % g * k // g).agg(pl.col("bytes").sum())
    alone: dict[int, float] = {}
    for node, _, size in own.iter_rows():
        alone[node] = max(alone.get(node, 0.0), float(size))
    return max(shared.get(node, 0.0) + alone.get(node, 0.0) for node in {*shared, *alone})
