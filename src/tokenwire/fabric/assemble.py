"""A fabric from a list of cables: what topologies without a rule of their own for routes are built with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenwire.fabric.detour import Places
from tokenwire.fabric.fabric import TIERS, Fabric, Ints
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.fabric.graph import GraphRouter, graph


@dataclass(frozen=True)
class Cables:
    """Cables of one kind between devices ``low`` and ``high``, both ways; rate in bytes/s of one way, latency in s.

    ``length`` is as how many links one counts where ways are compared.
    """

    low: Ints
    high: Ints
    rate: float
    latency: float
    tier: str
    length: int = 1


def assembled(
    name: str, facts: ClusterFacts, kinds: Sequence[tuple[str, int]], cables: Sequence[Cables], nic_of: Ints,
    notes: tuple[str, ...] = (), ordered: bool = False, places: Places | None = None,
) -> Fabric:  # fmt: skip
    """Return the fabric of the cables, with shortest ways for routes. ``nic_of`` is each GPU's NIC as a device.

    ``ordered``: static ways take the first of equal links, so that cables in the order of dimensions are taken in that order.
    ``places`` is where detours may turn.
    """
    src = np.concatenate([end for part in cables for end in (part.low, part.high)])
    dst = np.concatenate([end for part in cables for end in (part.high, part.low)])
    lengths = [2 * part.low.size for part in cables]
    devices = sum(count for _, count in kinds)
    gpus = np.arange(nic_of.size, dtype=np.int64)
    found = graph(devices, src, dst, np.arange(src.size, dtype=np.int64), gpus, nic_of,
                  lengths=np.repeat(np.array([part.length for part in cables], dtype=np.int64), lengths))  # fmt: skip
    return Fabric(
        name, facts, tuple(kinds), src.astype(np.int32), dst.astype(np.int32),
        np.repeat(np.array([part.rate for part in cables], dtype=np.float64), lengths),
        np.repeat(np.array([part.latency for part in cables], dtype=np.float64), lengths),
        np.repeat(np.array([TIERS.index(part.tier) for part in cables], dtype=np.int8), lengths), nic_of,
        GraphRouter(found, facts.gpus_per_node, ordered=ordered, places=places), notes,
    )  # fmt: skip


def hosts(facts: ClusterFacts, leaves: int) -> tuple[list[tuple[str, int]], list[Cables], int, Ints]:
    """Return kinds of devices up to the leaves, the cables of nodes, the first leaf, and each GPU's NIC."""
    N, g, k = facts.nodes, facts.gpus_per_node, facts.nics_per_node
    domain = facts.domain != "none" and g > 1
    inside = "nvlink" if facts.domain == "nvlink" else "pcie"
    kinds = [("gpu", N * g), ("nic", N * k), ("nvswitch" if inside == "nvlink" else "pcie", N if domain else 0), ("leaf", leaves)]
    nic0, switch0, leaf0 = (int(x) for x in np.cumsum([count for _, count in kinds])[:3])
    gpu, nic = np.arange(N * g, dtype=np.int64), np.arange(N * k, dtype=np.int64)
    # Out by a NIC and in by one is as long as twice NVLink: GPUs of a node meet inside it.
    cables = [Cables(nic0 + nic, leaf0 + nic // k // facts.nodes_per_unit, facts.nic_rate, facts.link_latency, "leaf", length=2)]
    if domain:
        cables.insert(0, Cables(gpu, switch0 + gpu // g, facts.domain_rate, facts.domain_latency, inside))
    return kinds, cables, leaf0, nic0 + gpu // g * k + gpu % g * k // g
