"""Routes over any graph: a shortest way, among equal ones by a hash of the pair (ECMP).

From a GPU to a NIC of its own, and from there in, is free; ways are counted in links. So a way leaves a node by another
GPU's NIC only where that is shorter or the only one (a failed leaf): NVLink to that GPU is two links more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.choice import Choice
from tokenwire.fabric.fabric import Floats, Ints, Parts, Routes, packed

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


def graph(
    devices: int, src: Ints, dst: Ints, link: Ints, gpus: Ints, nics: Ints, inner: npt.NDArray[np.bool_] | None = None
) -> Graph:  # fmt: skip
    """Return the graph of links ``src`` to ``dst``, where ``gpus[i]`` may use ``nics[i]`` (itself: it has its own links).

    A NIC is two vertices, one on the way out and one on the way in, so that no way leads from GPU to GPU through a NIC. With
    ``inner`` (devices on the inner side of a NIC) all links are real: ``nics`` are the NICs, and nothing is free.
    """
    if inner is not None:
        is_nic = np.zeros(devices, dtype=np.bool_)
        is_nic[nics] = True
        a = np.where(is_nic[src] & ~inner[dst], src + devices, src)
        b = np.where(is_nic[dst] & inner[src], dst + devices, dst)
        return _csr(a, b, link, 2 * devices)
    apart = gpus != nics
    gpus, nics = gpus[apart], nics[apart]
    is_nic = np.zeros(devices, dtype=np.bool_)
    is_nic[nics] = True
    a = np.concatenate([np.where(is_nic[src], src + devices, src), gpus, nics]).astype(np.int64)
    b = np.concatenate([dst, nics + devices, gpus]).astype(np.int64)
    name = np.concatenate([link, np.full(2 * gpus.size, -1, dtype=np.int64)])
    return _csr(a, b, name, 2 * devices)


def _csr(a: Ints, b: Ints, name: Ints, vertices: int) -> Graph:
    out, into = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    return Graph(_first(a, vertices), b[out], name[out], _first(b, vertices), a[into], name[into] < 0)


def _first(ends: Ints, vertices: int) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(ends, minlength=vertices))])


class GraphRouter:
    """Routes by search. ``strict`` raises for a pair without a way; ``ordered``: static ways are the first of equal ones.

    ``gpus_per_node`` makes the addresses of flows.
    """

    def __init__(self, found: Graph, gpus_per_node: int = 1, *, ordered: bool = False, strict: bool = True) -> None:
        self.graph, self.gpus_per_node, self.ordered, self.strict = found, gpus_per_node, ordered, strict

    def __call__(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        rows, found = self.rows(src, dst, choice)
        self._check(src, dst, found)
        return packed(rows)

    def _check(self, src: Ints, dst: Ints, found: npt.NDArray[np.bool_]) -> None:
        if self.strict and not found.all():
            i = int(np.flatnonzero(~found)[0])
            raise InputError(f"GPU {src[i]} to GPU {dst[i]}", rule="no way leads there: the fabric is not connected")

    def rows(self, src: Ints, dst: Ints, choice: Choice) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the links of each way, -1 filled, and whether there is one."""
        from tokenwire.fabric.search import DIGITS, FIRST, HASHED, shortest

        g = self.graph
        order = np.argsort(dst, kind="stable")
        if choice.by_hash:
            bits, mode = choice.flow(src, dst, self.gpus_per_node), HASHED
        else:
            bits = (src if choice.routing == "static" else dst).astype(np.uint64)
            mode = FIRST if self.ordered else DIGITS
        rows, found = shortest(
            src, dst, order, bits, mode, g.first_out, g.to_vertex, g.link, g.first_in, g.from_vertex, g.free_in, MOST_HOPS
        )
        width = int((rows >= 0).sum(axis=1).max(initial=1))
        return rows[:, :width], found

    def reachable(self, src: Ints, dst: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each pair has a way."""
        return self.rows(src, dst, Choice("static"))[1]

    def sprayed(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Parts:
        """Return the links of all shortest ways: at each device an equal part goes to each of the links that lead nearer."""
        parts, found = self.shares(src, dst)
        self._check(src, dst, found)
        return parts

    def shares(self, src: Ints, dst: Ints) -> tuple[Parts, npt.NDArray[np.bool_]]:
        """Return the same, and whether there is a way."""
        from tokenwire.fabric.search import shares

        g = self.graph
        order = np.argsort(dst, kind="stable")
        counts, links, use, found = shares(
            src, dst, order, g.first_out, g.to_vertex, g.link, g.first_in, g.from_vertex, g.free_in, MOST_HOPS
        )
        # They come in the order of destinations.
        at = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts[order])])
        start = np.empty(src.size, dtype=np.int64)
        start[order] = at[:-1]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        take = np.repeat(start - offsets[:-1], counts) + np.arange(links.size)
        return Parts(offsets, links[take], use[take], None), found

    def least_loaded(
        self, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, pxn: bool
    ) -> Routes:
        """Return one shortest way each: pair after pair that whose busiest link is least busy after."""
        rows, found = self.least_loaded_rows(src, dst, size, rate, choice)
        self._check(src, dst, found)
        return packed(rows)

    def least_loaded_rows(
        self, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, busy: Floats | None = None
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the links of each way, -1 filled, and whether there is one; ``busy`` has the seconds of each link before."""
        from tokenwire.fabric.search import least_loaded

        g = self.graph
        with np.errstate(divide="ignore"):
            slow = 1.0 / rate
        turn = (choice.ports(src, dst, 3) >> np.uint64(32)).astype(np.int64)
        rows, found = least_loaded(
            src, dst, size.astype(np.float64), slow, np.zeros(rate.size) if busy is None else busy, turn, g.first_out,
            g.to_vertex, g.link, g.first_in, g.from_vertex, g.free_in, MOST_HOPS,
        )  # fmt: skip
        width = int((rows >= 0).sum(axis=1).max(initial=1))
        return rows[:, :width], found
