"""A fabric from a list of cables: what topologies without a rule of their own for routes are built with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenwire.fabric.fabric import TIERS, Fabric, Ints
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.fabric.graph import GraphRouter, graph


@dataclass(frozen=True)
class Cables:
    """Cables of one kind between devices ``low`` and ``high``, both ways; rate in bytes/s of one way, latency in s."""

    low: Ints
    high: Ints
    rate: float
    latency: float
    tier: str


def assembled(
    name: str, facts: ClusterFacts, kinds: Sequence[tuple[str, int]], cables: Sequence[Cables], nic_of: Ints,
    notes: tuple[str, ...] = (), ordered: bool = False,
) -> Fabric:  # fmt: skip
    """Return the fabric of the cables, with shortest ways for routes. ``nic_of`` is each GPU's NIC as a device.

    ``ordered``: static ways take the first of equal links, so that cables in the order of dimensions are taken in that order.
    """
    src = np.concatenate([end for part in cables for end in (part.low, part.high)])
    dst = np.concatenate([end for part in cables for end in (part.high, part.low)])
    lengths = [2 * part.low.size for part in cables]
    devices = sum(count for _, count in kinds)
    gpus = np.arange(nic_of.size, dtype=np.int64)
    found = graph(devices, src, dst, np.arange(src.size, dtype=np.int64), gpus, nic_of)
    return Fabric(
        name, facts, tuple(kinds), src.astype(np.int32), dst.astype(np.int32),
        np.repeat(np.array([part.rate for part in cables], dtype=np.float64), lengths),
        np.repeat(np.array([part.latency for part in cables], dtype=np.float64), lengths),
        np.repeat(np.array([TIERS.index(part.tier) for part in cables], dtype=np.int8), lengths), nic_of,
        GraphRouter(found, facts.gpus_per_node, ordered=ordered), notes,
    )  # fmt: skip
