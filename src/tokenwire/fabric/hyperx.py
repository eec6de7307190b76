"""HyperX: switches in a grid, each joined to every other along each dimension, hosts at every switch.

A unit of the facts is the nodes of a switch. Sides are ``shape``, or as equal as the number of switches allows in ``dimensions``
dimensions (a HyperX of 2 in every dimension is a hypercube, of one dimension a full mesh). Routes are shortest ways: one link
for each dimension in which two switches differ; static ways correct the dimensions in their order.

Source: Ahn et al. 2009, "HyperX: topology, routing, and packaging of efficient large-scale networks" (SC), section 2.
"""

from __future__ import annotations

import math

import numpy as np

from tokenwire.collectives.topology import sides
from tokenwire.errors import InputError
from tokenwire.fabric.assemble import Cables, assembled, hosts
from tokenwire.fabric.detour import Places
from tokenwire.fabric.fabric import Fabric, Ints
from tokenwire.fabric.facts import ClusterFacts

MOST_CABLES = 1 << 24
"""Cables between switches that are written out."""


def mesh(shape: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return each cable between switches once, as its two ends, dimension after dimension.

    >>> [ends.tolist() for ends in mesh((2, 3))]
    [[0, 1, 2, 0, 0, 1, 3, 3, 4], [3, 4, 5, 1, 2, 2, 4, 5, 5]]
    """
    at = np.arange(math.prod(shape), dtype=np.int64)
    low, high, stride = [at[:0]], [at[:0]], at.size
    for side in shape:
        stride //= side
        first, second = np.triu_indices(side, 1)
        base = at[at // stride % side == 0]
        low.append((base[:, None] + first * stride).reshape(-1))
        high.append((base[:, None] + second * stride).reshape(-1))
    return np.concatenate(low), np.concatenate(high)


def shape_of(facts: ClusterFacts, many: int, what: str) -> tuple[int, ...]:
    """Return the sides of a grid of ``many`` places. Raises ``InputError`` for a ``shape`` of another number."""
    if facts.shape is None:
        return sides(many, facts.dimensions)
    if math.prod(facts.shape) != many:
        near = " × ".join(map(str, sides(many, len(facts.shape)))) if len(facts.shape) <= 6 else ""
        raise InputError(f"shape = {list(facts.shape)}"[:80], where="[cluster]", nearest=near,
                         rule=f"has {math.prod(facts.shape):,} places, there are {many:,} {what}")  # fmt: skip
    return facts.shape


def build_hyperx(name: str, facts: ClusterFacts) -> Fabric:
    """Return the HyperX of a cluster. Its switches are leaves, and links between them of the tier ``spine``."""
    N, k = facts.nodes, facts.nics_per_node
    # Whole grids only: with nodes for 7 switches of a 2-dimensional one there would be no grid but 1 × 7.
    shape = facts.shape or sides(-(-N // facts.nodes_per_unit), facts.dimensions)
    leaves = math.prod(shape)
    if leaves * facts.nodes_per_unit < N:
        raise InputError(f"shape = {list(shape)}"[:80], where="[cluster]", nearest=f"nodes = {leaves * facts.nodes_per_unit}",
                         rule=f"{leaves:,} switches have places for {leaves * facts.nodes_per_unit:,} nodes")  # fmt: skip
    if leaves * sum(side - 1 for side in shape) // 2 > MOST_CABLES:
        raise InputError(f"a HyperX of {' × '.join(map(str, shape))}"[:80], where="[cluster]", nearest="more dimensions",
                         rule=f"has more than {MOST_CABLES:,} cables")  # fmt: skip
    ports = facts.nodes_per_unit * k + sum(side - 1 for side in shape)
    if facts.leaf_radix and ports > facts.leaf_radix:
        raise InputError(f"a switch of {ports} ports", where="[cluster]", rule=f"leaf_radix is {facts.leaf_radix}",
                         nearest="fewer nodes_per_unit or smaller sides")  # fmt: skip
    kinds, cables, leaf0, nic_of = hosts(facts, leaves)
    low, high = mesh(shape)
    cables.append(Cables(leaf0 + low, leaf0 + high, facts.uplink_rate or facts.nic_rate, facts.link_latency, "spine"))
    note = f"a HyperX of {' × '.join(map(str, shape))} switches of {ports} ports"
    switch = np.arange(leaves, dtype=np.int64)
    places = Places(leaf0 + switch, switch, np.arange(N * facts.gpus_per_node) // facts.gpus_per_node // facts.nodes_per_unit)
    return assembled(name, facts, kinds, cables, nic_of, (note,), ordered=True, places=places)
