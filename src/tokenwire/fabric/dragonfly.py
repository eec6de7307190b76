"""Dragonfly and dragonfly+: groups whose members are near each other, and a few long links between any two groups.

Dragonfly: a routers in a group, each joined to each; every router has h links to other groups. Counted through a group, link s
(of router s div h) goes to the group 1 + s mod (G-1) places on, so that any two of G groups have the same number of links, those
that are left over none. A unit of the facts is the nodes of a router, a pod is a group.

Dragonfly+: a group is leaves and spines, each joined to each. Between any two groups run as many links as there are
spines in one, spine i to spine i. A unit of the facts is the nodes of a leaf, a pod is a group (a cell).

Source: Kim, Dally, Scott and Abts 2008, "Technology-driven, highly-scalable dragonfly topology" (ISCA), section 3; Shpiner et al.
2017, "Dragonfly+: low cost topology for scaling datacenters"; Turisini, Amati and Cestari 2023.
"""

from __future__ import annotations

import numpy as np

from tokenwire.errors import InputError
from tokenwire.fabric.assemble import Cables, assembled, hosts
from tokenwire.fabric.detour import Places
from tokenwire.fabric.fabric import Fabric, Ints
from tokenwire.fabric.facts import ClusterFacts


def global_cables(groups: int, routers: int, links: int) -> tuple[Ints, Ints]:
    """Return the cables between groups once each, as their two routers (numbered through the groups).

    >>> [ends.tolist() for ends in global_cables(3, 2, 1)]      # 3 groups of 2 routers of a link: a triangle
    [[0, 1, 2], [3, 4, 5]]
    """
    first, second = np.triu_indices(groups, 1)
    each = routers * links // max(groups - 1, 1)  # links of each pair of groups
    turn = np.repeat(np.arange(each), first.size) * (groups - 1)
    a, b = np.tile(first, each), np.tile(second, each)
    there, back = turn + (b - a) - 1, turn + (a - b) % groups - 1
    return a * routers + there // links, b * routers + back // links


def build_dragonfly(name: str, facts: ClusterFacts) -> Fabric:
    """Return a dragonfly whose groups are filled one after the other; a started one has all its routers.

    Its routers are leaves; links in a group are of the tier ``spine``, those between groups ``core``.
    """
    a, k = facts.units_per_pod, facts.nics_per_node
    h = facts.global_links or max(a // 2, 1)
    G = -(-facts.nodes // (facts.nodes_per_unit * a))
    if a * h + 1 < G:
        most = (a * h + 1) * a * facts.nodes_per_unit
        raise InputError(f"{G:,} groups of {a} routers with {h} global links", where="[cluster]", nearest=f"nodes = {most}",
                         rule=f"reach {a * h + 1:,} groups, of {most:,} nodes")  # fmt: skip
    ports = facts.nodes_per_unit * k + a - 1 + h
    if facts.leaf_radix and ports > facts.leaf_radix:
        raise InputError(f"a router of {ports} ports", where="[cluster]", rule=f"leaf_radix is {facts.leaf_radix}",
                         nearest="fewer nodes_per_unit, units_per_pod or global_links")  # fmt: skip
    kinds, cables, leaf0, nic_of = hosts(facts, G * a)
    router = np.arange(G * a, dtype=np.int64)
    low, high = np.triu_indices(a, 1)
    group = np.repeat(np.arange(G) * a, low.size)
    first, second = global_cables(G, a, h)
    up = facts.uplink_rate or facts.nic_rate
    cables += [
        Cables(leaf0 + group + np.tile(low, G), leaf0 + group + np.tile(high, G), up, facts.link_latency, "spine"),
        # A shortest way has one link between groups: two of them, straight on, would be as short as one with a link on either side.
        Cables(leaf0 + first, leaf0 + second, up, facts.link_latency, "core", length=3),
    ]
    note = f"a dragonfly of {G} groups of {a} routers of {ports} ports"
    places = Places(leaf0 + router, router // a, _group_of_gpu(facts))
    return assembled(name, facts, kinds, cables, nic_of, (note,), places=places)


def build_dragonfly_plus(name: str, facts: ClusterFacts) -> Fabric:
    """Return a dragonfly+ whose cells are filled one after the other."""
    leaves = -(-facts.nodes // facts.nodes_per_unit)
    cells, M = -(-leaves // facts.units_per_pod), facts.spines_per_pod
    kinds, cables, leaf0, nic_of = hosts(facts, leaves)
    spine0 = leaf0 + leaves
    leaf, spine = np.repeat(np.arange(leaves), M), np.tile(np.arange(M), leaves)
    first, second = np.triu_indices(cells, 1)
    first, second, m = np.repeat(first, M), np.repeat(second, M), np.tile(np.arange(M), first.size)
    up = facts.uplink_rate or facts.nic_rate
    cables += [
        Cables(leaf0 + leaf, spine0 + leaf // facts.units_per_pod * M + spine, up, facts.link_latency, "spine"),
        Cables(spine0 + first * M + m, spine0 + second * M + m, up, facts.link_latency, "core"),
    ]
    every = np.arange(cells * M, dtype=np.int64)
    # A detour turns at a spine, from which the next cell is one link away.
    places = Places(spine0 + every, every // M, _group_of_gpu(facts))
    return assembled(name, facts, [*kinds, ("spine", cells * M)], cables, nic_of, places=places)


def _group_of_gpu(facts: ClusterFacts) -> Ints:
    node = np.arange(facts.nodes * facts.gpus_per_node, dtype=np.int64) // facts.gpus_per_node
    return node // facts.nodes_per_unit // facts.units_per_pod

