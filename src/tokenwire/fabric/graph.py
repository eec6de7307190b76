"""Routes over any graph: a shortest way, among equal ones by a hash of the pair (ECMP).

From a GPU to a NIC of its own, and from there in, is free; ways are counted in links. So a way leaves a node by another
GPU's NIC only where that is shorter or the only one (a failed leaf): NVLink to that GPU is two links more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.fabric import Ints, Routes, mixed, packed

MOST_HOPS = 96
"""Links of the longest way that is followed."""


@dataclass(frozen=True)
class Graph:
    """Edges as CSR, out of and into each vertex; ``link`` is -1 for a free edge."""

    first_out: Ints
    to_vertex: Ints
    link: Ints
    first_in: Ints
    from_vertex: Ints
    free_in: npt.NDArray[np.bool_]


def graph(devices: int, src: Ints, dst: Ints, link: Ints, gpus: Ints, nics: Ints) -> Graph:
    """Return the graph of links ``src`` to ``dst``, where ``gpus[i]`` may use ``nics[i]`` (itself: it has its own links).

    A NIC is two vertices, one on the way out and one on the way in, so that no way leads from GPU to GPU through a NIC.
    """
    apart = gpus != nics
    gpus, nics = gpus[apart], nics[apart]
    is_nic = np.zeros(devices, dtype=np.bool_)
    is_nic[nics] = True
    a = np.concatenate([np.where(is_nic[src], src + devices, src), gpus, nics]).astype(np.int64)
    b = np.concatenate([dst, nics + devices, gpus]).astype(np.int64)
    name = np.concatenate([link, np.full(2 * gpus.size, -1, dtype=np.int64)])
    out, into, vertices = np.argsort(a, kind="stable"), np.argsort(b, kind="stable"), 2 * devices
    return Graph(_first(a, vertices), b[out], name[out], _first(b, vertices), a[into], name[into] < 0)


def _first(ends: Ints, vertices: int) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(ends, minlength=vertices))])


class GraphRouter:
    """Routes by search. ``strict`` raises for a pair without a way; else such a pair has no links."""

    def __init__(self, found: Graph, *, strict: bool = True) -> None:
        self.graph, self.strict = found, strict

    def __call__(self, src: Ints, dst: Ints, seed: int, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        rows, found = self.rows(src, dst, seed)
        if self.strict and not found.all():
            i = int(np.flatnonzero(~found)[0])
            raise InputError(f"GPU {src[i]} to GPU {dst[i]}", rule="no way leads there: the fabric is not connected")
        return packed(rows)

    def rows(self, src: Ints, dst: Ints, seed: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the links of each way, -1 filled, and whether there is one."""
        from tokenwire.fabric.search import shortest

        g = self.graph
        order = np.argsort(dst, kind="stable")
        rows, found = shortest(
            src, dst, order, mixed(src, dst, seed, 3), g.first_out, g.to_vertex, g.link, g.first_in, g.from_vertex, g.free_in,
            MOST_HOPS,
        )  # fmt: skip
        width = int((rows >= 0).sum(axis=1).max(initial=1))
        return rows[:, :width], found
