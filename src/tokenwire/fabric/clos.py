"""Leaf, spine and core: the folded Clos that GPU clusters are built as, with rails, planes and pods.

Numbers follow from the place, so that routes need no search. A leaf is (unit, rail, plane); it has U uplinks, the j-th of
which goes to spine j mod M of its cell. A *cell* is what shares spines: the leaves of one pod in one plane (and on one
rail, where ``rail_only``). Spine m of every cell of a plane has V uplinks, the k-th to core k mod C of core group m.

M and C are the fewest switches whose ports suffice. U = ports down / oversubscription.

Source: NVIDIA, DGX SuperPOD Reference Architecture (1 unit: 8 leaves, 4 spines; 4: 32, 16; 8: 64, 32; 16: 128, 128, 64 cores;
64: 512, 512, 256), which this rule reproduces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenwire.errors import InputError
from tokenwire.fabric.fabric import TIERS, Fabric, Floats, Ints
from tokenwire.fabric.facts import ClusterFacts


@dataclass(frozen=True)
class Shape:
    """How many of everything: N nodes of g GPUs and k NICs, R rails, P planes, cells of L leaves and M spines, U, V, C."""

    N: int
    g: int
    k: int
    R: int
    P: int
    units: int
    nodes_per_unit: int
    units_per_pod: int
    pods: int
    rail_only: bool
    U: int
    M: int
    V: int
    C: int
    core_ports: int

    @property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return self.units * self.R * self.P

    @property
    def cells(self) -> int:
        """Return the number of cells: what shares spines."""
        return self.pods * self.P * (self.R if self.rail_only else 1)

    @property
    def spines(self) -> int:
        """Return the number of spines."""
        return self.cells * self.M

    @property
    def cores(self) -> int:
        """Return the number of cores."""
        return self.P * (self.R if self.rail_only else 1) * self.M * self.C

    def nic(self, gpu: Ints, chance: Ints) -> Ints:
        """Return the NIC of each GPU; of several the one that ``chance`` chooses."""
        node, local = gpu // self.g, gpu % self.g
        several = max(1, self.k // self.g)
        return node * self.k + local * self.k // self.g + chance % several

    def place(self, nic: Ints) -> Ints:
        """Return the place of each NIC among those of its leaf."""
        return nic // self.k % self.nodes_per_unit * (self.k // self.R) + nic % self.k // self.R

    def leaf(self, nic: Ints, plane: Ints) -> Ints:
        """Return the leaf that a NIC's port in a plane is at."""
        unit = nic // self.k // self.nodes_per_unit
        return (unit * self.R + nic % self.k % self.R) * self.P + plane

    def cell(self, leaf: Ints) -> Ints:
        """Return the cell of a leaf: (pod, rail where rails are apart, plane)."""
        pod = leaf // (self.R * self.P * self.units_per_pod)
        plane, rail = leaf % self.P, leaf // self.P % self.R
        return (pod * self.R + rail) * self.P + plane if self.rail_only else pod * self.P + plane

    def seat(self, leaf: Ints) -> Ints:
        """Return the place of each leaf among those of its cell."""
        unit, rail = leaf // (self.R * self.P) % self.units_per_pod, leaf // self.P % self.R
        return unit if self.rail_only else unit * self.R + rail


def _fewest(links: int, lines: int, ports: int) -> int:
    # Fewest switches that share `links` evenly and have the ports for `lines` such bundles.
    for switches in range(1, links + 1):
        if links % switches == 0 and lines * (links // switches) <= ports:
            return switches
    return links


def _leaf_ports(facts: ClusterFacts, nodes_per_unit: int) -> tuple[int, int]:
    # Ports of a leaf down, to NICs, and up, to spines.
    down = nodes_per_unit * (facts.nics_per_node // facts.rails)
    port_rate = facts.nic_rate / facts.planes
    capacity = down * port_rate / (facts.uplink_rate or port_rate)
    return down, facts.uplinks or max(1, round(capacity / facts.oversubscription))


def _fits(facts: ClusterFacts, nodes: int, nodes_per_unit: int) -> bool:
    down, up = _leaf_ports(facts, nodes_per_unit)
    alone = nodes <= nodes_per_unit and facts.rails == 1
    return down + (0 if alone else up) <= (facts.leaf_radix or down + up)


def _nearest_leaf(facts: ClusterFacts) -> str:
    """Return what has the ports: as many nodes as one leaf takes, where it may stand alone; smaller leaves; larger switches."""
    out = []
    if _fits(facts, facts.nodes_per_unit, facts.nodes_per_unit):
        out.append(f"nodes = {facts.nodes_per_unit} (gpus = {facts.nodes_per_unit * facts.gpus_per_node})")
    smaller = next((u for u in range(facts.nodes_per_unit, 0, -1) if _fits(facts, facts.nodes, u)), 0)
    if smaller:
        out.append(f"nodes_per_unit = {smaller}")
    return " or ".join(out) or f"leaf_radix = {sum(_leaf_ports(facts, facts.nodes_per_unit))}"


def shape(facts: ClusterFacts) -> Shape:
    """Return how many of everything a cluster has. Raises ``InputError`` where the switches have too few ports."""
    N, g, k, R, P = facts.nodes, facts.gpus_per_node, facts.nics_per_node, facts.rails, facts.planes
    if k % R:
        raise InputError(f"rails = {R}", where="[cluster]", rule=f"must divide the {k} NICs of a node", nearest=f"rails = {k}")
    units = -(-N // facts.nodes_per_unit)
    down, U = _leaf_ports(facts, facts.nodes_per_unit)
    if facts.leaf_radix and not _fits(facts, N, facts.nodes_per_unit):
        up = f" and {U} up" if units * R > 1 else ""
        raise InputError(f"{N:,} nodes: a leaf of {down} ports down{up}", where="[cluster]", rule=f"leaf_radix is {facts.leaf_radix}",
                         nearest=_nearest_leaf(facts))  # fmt: skip
    deep = units > facts.units_per_pod
    per_pod = facts.deep_units_per_pod if deep else facts.units_per_pod
    pods = -(-units // per_pod)
    L = min(units, per_pod) * (1 if facts.rail_only else R)
    # With cores above, half of a spine's ports (less where oversubscribed) look down.
    ports_down = facts.spine_radix
    if deep:
        ports_down = int(facts.spine_radix * facts.core_oversubscription / (1 + facts.core_oversubscription))
    M = _fewest(U, L, ports_down)
    V = C = 0
    if deep and facts.rail_only:
        raise InputError(f"nodes = {N:,}", where="[cluster]", nearest=f"nodes = {facts.nodes_per_unit * facts.units_per_pod}",
                         rule="rails that share no spine have no core to grow by")  # fmt: skip
    if deep:
        V = max(1, round(L * (U // M) / facts.core_oversubscription))
        C = _fewest(V, pods, facts.core_radix)
    return Shape(N, g, k, R, P, units, facts.nodes_per_unit, per_pod, pods, facts.rail_only, U, M, V, C,
                 pods * V // C if C else 0)  # fmt: skip


def build_clos(name: str, facts: ClusterFacts) -> Fabric:
    """Return the fabric of a leaf-spine(-core) cluster."""
    s = shape(facts)
    from tokenwire.fabric.clos_routes import ClosRouter

    domain = facts.domain != "none" and s.g > 1
    router = ClosRouter(s, domain)
    kinds = (
        ("gpu", s.N * s.g), ("nic", s.N * s.k), ("nvswitch" if facts.domain == "nvlink" else "pcie", s.N if domain else 0),
        ("leaf", s.leaves), ("spine", s.spines), ("core", s.cores),
    )  # fmt: skip
    nic0, switch0, leaf0, spine0, core0 = np.cumsum([count for _, count in kinds])[:5]
    gpu, nics = np.arange(s.N * s.g, dtype=np.int64), np.arange(s.N * s.k, dtype=np.int64)
    nic, plane = np.repeat(nics, s.P), np.tile(np.arange(s.P, dtype=np.int64), nics.size)
    leaf, j = np.repeat(np.arange(s.leaves, dtype=np.int64), s.U), np.tile(np.arange(s.U, dtype=np.int64), s.leaves)
    spine, v = np.repeat(np.arange(s.spines, dtype=np.int64), s.V), np.tile(np.arange(s.V, dtype=np.int64), s.spines)
    group = (spine // s.M % (s.P * (s.R if s.rail_only else 1))) * s.M + spine % s.M
    pairs = [
        (gpu, switch0 + gpu // s.g) if domain else (gpu[:0], gpu[:0]),
        (nic0 + nic, leaf0 + s.leaf(nic, plane)),
        (leaf0 + leaf, spine0 + s.cell(leaf) * s.M + j % s.M),
        (spine0 + spine, core0 + group * s.C + v % max(s.C, 1)),
    ]
    port = facts.nic_rate / s.P
    up = facts.uplink_rate or port
    rates, tiers = (facts.domain_rate, port, up, up), ("nvlink" if facts.domain == "nvlink" else "pcie", "leaf", "spine", "core")
    late = (facts.domain_latency, *[facts.link_latency] * 3)
    both = [end for low, high in pairs for end in ((low, high), (high, low))]
    lengths = [low.size for low, _ in both]

    def column(values: tuple[float, ...]) -> Floats:
        return np.repeat(np.repeat(np.asarray(values, dtype=np.float64), 2), lengths)

    return Fabric(
        name, facts, kinds,
        np.concatenate([low for low, _ in both]).astype(np.int32), np.concatenate([high for _, high in both]).astype(np.int32),
        column(rates), column(late), column(tuple(TIERS.index(t) for t in tiers)).astype(np.int8),
        nic0 + s.nic(gpu, np.zeros_like(gpu)), router, _notes(facts, s),
    )  # fmt: skip


def _notes(facts: ClusterFacts, s: Shape) -> tuple[str, ...]:
    out = []
    if s.core_ports > facts.core_radix:
        out.append(f"{s.pods} pods need cores of {s.core_ports} ports, more than the {facts.core_radix} of its switches")
    return tuple(out)
