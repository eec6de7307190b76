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
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.fabric import TIERS, Fabric, Floats, Ints, Routes, mixed, packed
from tokenwire.fabric.facts import ClusterFacts

_BLOCK = 1 << 20  # pairs whose routes are worked out at once


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

    def leaf(self, nic: Ints, plane: Ints) -> Ints:
        """Return the leaf that a NIC's port in a plane is at."""
        unit = nic // self.k // self.nodes_per_unit
        return (unit * self.R + nic % self.k % self.R) * self.P + plane

    def cell(self, leaf: Ints) -> Ints:
        """Return the cell of a leaf: (pod, rail where rails are apart, plane)."""
        pod = leaf // (self.R * self.P * self.units_per_pod)
        plane, rail = leaf % self.P, leaf // self.P % self.R
        return (pod * self.R + rail) * self.P + plane if self.rail_only else pod * self.P + plane


def _fewest(links: int, lines: int, ports: int) -> int:
    # Fewest switches that share `links` evenly and have the ports for `lines` such bundles.
    for switches in range(1, links + 1):
        if links % switches == 0 and lines * (links // switches) <= ports:
            return switches
    return links


def shape(facts: ClusterFacts) -> Shape:
    """Return how many of everything a cluster has. Raises ``InputError`` where the switches have too few ports."""
    N, g, k, R, P = facts.nodes, facts.gpus_per_node, facts.nics_per_node, facts.rails, facts.planes
    if k % R:
        raise InputError(f"rails = {R}", where="[cluster]", rule=f"must divide the {k} NICs of a node", nearest=f"rails = {k}")
    units = -(-N // facts.nodes_per_unit)
    down = facts.nodes_per_unit * (k // R)
    port_rate = facts.nic_rate / P
    capacity = down * port_rate / (facts.uplink_rate or port_rate)
    U = facts.uplinks or max(1, round(capacity / facts.oversubscription))
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


class ClosRouter:
    """Routes by arithmetic on the numbers of devices."""

    def __init__(self, s: Shape, domain: bool) -> None:
        self.shape, self.domain = s, domain
        nics = s.N * s.k * s.P
        sizes = [s.N * s.g if domain else 0] * 2 + [nics] * 2 + [s.leaves * s.U] * 2 + [s.spines * s.V] * 2
        at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.out, self.back, self.nic_up, self.nic_down = (int(x) for x in at[:4])
        self.leaf_up, self.leaf_down, self.spine_up, self.spine_down, self.links = (int(x) for x in at[4:])

    def __call__(self, src: Ints, dst: Ints, seed: int, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        if src.size <= _BLOCK:
            return packed(self._rows(src, dst, seed, pxn))
        offsets, parts = [np.zeros(1, dtype=np.int64)], []
        for first in range(0, src.size, _BLOCK):
            at, ids = packed(self._rows(src[first : first + _BLOCK], dst[first : first + _BLOCK], seed, pxn))
            offsets.append(at[1:] + offsets[-1][-1])
            parts.append(ids)
        return np.concatenate(offsets), np.concatenate(parts)

    def _rows(self, src: Ints, dst: Ints, seed: int, pxn: bool) -> Ints:
        s = self.shape
        out = np.full((src.size, 8), -1, dtype=np.int64)
        inside = (src // s.g == dst // s.g) & (src != dst)
        across = src // s.g != dst // s.g
        if self.domain:
            out[inside, 0] = self.out + src[inside]
            out[inside, 7] = self.back + dst[inside]
        else:
            # No link inside the node: out of the NIC and back in by the leaf, unless both share one NIC.
            across |= inside
        if not across.any():
            return out
        a, b = src[across], dst[across]
        chance = mixed(a, b, seed, 1)
        plane = (mixed(a, b, seed, 2) % np.uint64(s.P)).astype(np.int64)
        to = s.nic(b, (chance >> np.uint64(40)).astype(np.int64))
        by = a.copy()
        rail = s.nic(a, np.zeros_like(a)) % s.k % s.R != s.nic(b, np.zeros_like(b)) % s.k % s.R
        if s.R > 1 and self.domain and (pxn or s.rail_only):
            by = np.where(rail, a // s.g * s.g + b % s.g, a)
        nic = s.nic(by, (chance >> np.uint64(48)).astype(np.int64))
        rows = np.full((a.size, 8), -1, dtype=np.int64)
        moved = by != a
        rows[moved, 0] = self.out + a[moved]
        rows[moved, 1] = self.back + by[moved]
        other = nic != to
        rows[other, 2] = self.nic_up + (nic * s.P + plane)[other]
        rows[other, 7] = self.nic_down + (to * s.P + plane)[other]
        self._climb(rows, s.leaf(nic, plane), s.leaf(to, plane), chance)
        out[across] = rows
        return out

    def _climb(self, rows: Ints, up: Ints, down: Ints, bits: npt.NDArray[np.uint64]) -> None:
        s = self.shape
        high = up != down
        if not high.any():
            return
        one, two = s.cell(up), s.cell(down)
        apart = high & (one != two)
        if s.rail_only and apart.any():
            raise InputError("a message across rails", rule="rails that share no spine meet only inside a node",
                             nearest="a domain of nvlink")  # fmt: skip
        j = (bits % np.uint64(s.U)).astype(np.int64)
        m = j % s.M
        back = m + s.M * (((bits >> np.uint64(16)) % np.uint64(s.U // s.M)).astype(np.int64))
        rows[high, 3] = (self.leaf_up + up * s.U + j)[high]
        rows[high, 6] = (self.leaf_down + down * s.U + back)[high]
        if not apart.any():
            return
        v = ((bits >> np.uint64(24)) % np.uint64(s.V)).astype(np.int64)
        w = v % s.C + s.C * (((bits >> np.uint64(32)) % np.uint64(s.V // s.C)).astype(np.int64))
        rows[apart, 4] = (self.spine_up + (one * s.M + m) * s.V + v)[apart]
        rows[apart, 5] = (self.spine_down + (two * s.M + m) * s.V + w)[apart]


def build_clos(name: str, facts: ClusterFacts) -> Fabric:
    """Return the fabric of a leaf-spine(-core) cluster."""
    s = shape(facts)
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
