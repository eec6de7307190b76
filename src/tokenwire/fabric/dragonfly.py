"""Dragonfly+: cells of leaves and spines, every spine with links to spines of other cells.

In a cell each leaf is joined to each spine. Between any two cells run as many links as there are spines in a cell, spine
i to spine i, so that each pair of cells is one hop apart. A unit of the facts is the nodes of a leaf, a pod is a cell.

Source: Shpiner et al. 2017, "Dragonfly+: low cost topology for scaling datacenters"; Turisini, Amati and Cestari 2023.
"""

from __future__ import annotations

import numpy as np

from tokenwire.fabric.assemble import Cables, assembled
from tokenwire.fabric.fabric import Fabric
from tokenwire.fabric.facts import ClusterFacts


def build_dragonfly_plus(name: str, facts: ClusterFacts) -> Fabric:
    """Return a dragonfly+ whose cells are filled one after the other."""
    N, g, k = facts.nodes, facts.gpus_per_node, facts.nics_per_node
    leaves = -(-N // facts.nodes_per_unit)
    cells, M = -(-leaves // facts.units_per_pod), facts.spines_per_pod
    domain = facts.domain != "none" and g > 1
    inside = "nvlink" if facts.domain == "nvlink" else "pcie"
    kinds = [
        ("gpu", N * g), ("nic", N * k), ("nvswitch" if inside == "nvlink" else "pcie", N if domain else 0), ("leaf", leaves),
        ("spine", cells * M),
    ]  # fmt: skip
    nic0, switch0, leaf0, spine0 = (int(x) for x in np.cumsum([count for _, count in kinds])[:4])
    gpu, nic = np.arange(N * g, dtype=np.int64), np.arange(N * k, dtype=np.int64)
    leaf, spine = np.repeat(np.arange(leaves), M), np.tile(np.arange(M), leaves)
    first, second = np.triu_indices(cells, 1)
    first, second, m = np.repeat(first, M), np.repeat(second, M), np.tile(np.arange(M), first.size)
    up = facts.uplink_rate or facts.nic_rate
    cables = [
        Cables(nic0 + nic, leaf0 + nic // k // facts.nodes_per_unit, facts.nic_rate, facts.link_latency, "leaf"),
        Cables(leaf0 + leaf, spine0 + leaf // facts.units_per_pod * M + spine, up, facts.link_latency, "spine"),
        Cables(spine0 + first * M + m, spine0 + second * M + m, up, facts.link_latency, "core"),
    ]
    if domain:
        cables.insert(0, Cables(gpu, switch0 + gpu // g, facts.domain_rate, facts.domain_latency, inside))
    local = np.maximum(gpu % g * k // g, 0)
    return assembled(name, facts, kinds, cables, nic0 + gpu // g * k + local)
