"""A torus: every chip has a link to either neighbour along each dimension; there are no switches.

The sides are ``shape``, or as equal as the number of chips allows. Routes are shortest ways, equal ones shared by hash; static
ones go along one dimension after the other.

Source: Jouppi et al. 2023, "TPU v4: an optically reconfigurable supercomputer" (ISCA), section 2.
"""

from __future__ import annotations

import math

import numpy as np

from tokenwire.fabric.assemble import Cables, assembled
from tokenwire.fabric.detour import Places
from tokenwire.fabric.fabric import Fabric, Ints
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.fabric.hyperx import shape_of


def neighbours(shape: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return each cable of a torus once, as its two ends. A side of 2 has one cable between the two, a side of 1 none."""
    at = np.arange(math.prod(shape), dtype=np.int64)
    low, high, stride = [], [], at.size
    for side in shape:
        stride //= side
        if side == 1:
            continue
        place = at // stride % side
        start = at if side > 2 else at[place == 0]
        here = start // stride % side
        low.append(start)
        high.append(start + ((here + 1) % side - here) * stride)
    empty = at[:0]
    return np.concatenate([empty, *low]), np.concatenate([empty, *high])


def build_torus(name: str, facts: ClusterFacts) -> Fabric:
    """Return the torus of a cluster: as many chips as it has GPUs."""
    n = facts.nodes * facts.gpus_per_node
    shape = shape_of(facts, n, "chips")
    low, high = neighbours(shape)
    cables = [Cables(low, high, facts.nic_rate, facts.link_latency, "torus")]
    chips = np.arange(n, dtype=np.int64)
    return assembled(name, facts, [("gpu", n)], cables, chips, (f"a torus of {' × '.join(map(str, shape))}",),
                     ordered=True, places=Places(chips, chips, chips))
