"""Routes over any graph: a shortest way, among equal ones by a hash of the pair (ECMP).

From a GPU to a NIC of its own, and from there in, is free; ways are counted in links. So a way leaves a node by another
GPU's NIC only where that is shorter or the only one (a failed leaf): NVLink to that GPU is two links more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.choice import Choice
from tokenwire.fabric.fabric import Floats, Ints, Parts, Routes, packed

if TYPE_CHECKING:
    from tokenwire.fabric.detour import Places

FREE, LENGTH = -1, -2
"""Edges that are no links: one that adds nothing to a way (a GPU to its NIC), one that adds to its length alone."""
HOPS, MOST_CELLS = 96, 1 << 28
"""Links of a way that there is place for at first (longer ones get more), and the places for all ways together."""


@dataclass(frozen=True)
class Graph:
    """Edges as CSR, out of and into each vertex; ``link`` is FREE or LENGTH for an edge that is none."""

    first_out: Ints
    to_vertex: Ints
    link: Ints
    first_in: Ints
    from_vertex: Ints
    free_in: npt.NDArray[np.bool_]


def graph(
    devices: int, src: Ints, dst: Ints, link: Ints, gpus: Ints, nics: Ints, inner: npt.NDArray[np.bool_] | None = None,
    lengths: Ints | None = None,
) -> Graph:  # fmt: skip
    """Return the graph of links ``src`` to ``dst``, where ``gpus[i]`` may use ``nics[i]`` (itself: it has its own links).

    A NIC is two vertices, one on the way out and one on the way in, so that no way leads from GPU to GPU through a NIC. With
    ``inner`` (devices on the inner side of a NIC) all links are real: ``nics`` are the NICs, and nothing is free.
    ``lengths``: as how many links each counts where ways are compared (one).
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
    name = np.concatenate([link, np.full(2 * gpus.size, FREE, dtype=np.int64)])
    if lengths is None:
        return _csr(a, b, name, 2 * devices)
    return _csr(*_drawn_out(a, b, name, np.append(lengths, np.ones(2 * gpus.size, dtype=np.int64)), 2 * devices))


def _drawn_out(a: Ints, b: Ints, name: Ints, lengths: Ints, vertices: int) -> tuple[Ints, Ints, Ints, int]:
    """Return the edges with those longer than one as chains over new vertices; the last of a chain is the link."""
    edge = np.repeat(np.arange(a.size), lengths)
    place = np.arange(edge.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    new = vertices + np.cumsum(place > 0) - 1  # the vertex before an edge that is not the first of its chain
    last = place == lengths[edge] - 1
    return (np.where(place > 0, new, a[edge]), np.where(last, b[edge], np.append(new[1:], 0)),
            np.where(last, name[edge], LENGTH), vertices + int((place > 0).sum()))  # fmt: skip


def _csr(a: Ints, b: Ints, name: Ints, vertices: int) -> Graph:
    out, into = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    return Graph(_first(a, vertices), b[out], name[out], _first(b, vertices), a[into], name[into] == FREE)


def _first(ends: Ints, vertices: int) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(ends, minlength=vertices))])


class GraphRouter:
    """Routes by search. ``strict`` raises for a pair without a way; ``ordered``: static ways are the first of equal ones.

    ``gpus_per_node`` makes the addresses of flows; ``places`` is where detours may turn (without it there are none).
    """

    def __init__(
        self, found: Graph, gpus_per_node: int = 1, *, ordered: bool = False, strict: bool = True, places: Places | None = None
    ) -> None:
        self.graph, self.gpus_per_node, self.ordered, self.strict, self.places = found, gpus_per_node, ordered, strict, places

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
        """Return the links of each way, -1 filled, and whether there is one; by Valiant's detour where that is the routing."""
        from tokenwire.fabric.search import DIGITS, FIRST, HASHED

        if choice.by_hash:
            bits, mode = choice.flow(src, dst, self.gpus_per_node), HASHED
        else:
            bits = (src if choice.routing == "static" else dst).astype(np.uint64)
            mode = FIRST if self.ordered else DIGITS
        rows, found = self._shortest(src, dst, bits, mode)
        if choice.routing != "valiant" or self.places is None:
            return rows, found
        detour = self._detours(src, dst, choice, bits)
        return _either(rows, detour, detour[:, 0] >= 0), found

    def _shortest(
        self, src: Ints, dst: Ints, bits: npt.NDArray[np.uint64], mode: int
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        from tokenwire.fabric.search import shortest

        g = self.graph
        order = np.argsort(dst, kind="stable")
        return self._wide_enough(src.size, lambda most: shortest(
            src, dst, order, bits, mode, g.first_out, g.to_vertex, g.link, g.first_in, g.from_vertex, g.free_in, most
        ))  # fmt: skip

    def _wide_enough(
        self, pairs: int, search: Callable[[int], tuple[Ints, npt.NDArray[np.bool_], int]]
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return what a search finds with place enough for the longest way."""
        rows, found, longest = search(HOPS)
        if longest > HOPS:
            if pairs * longest > MOST_CELLS:
                raise InputError(f"{pairs:,} ways of up to {longest:,} links", rule="are too many to follow at once",
                                 nearest="fewer GPUs, or more dimensions")  # fmt: skip
            rows, found, _ = search(longest)
        width = int((rows >= 0).sum(axis=1).max(initial=1))
        return rows[:, :width], found

    def _detours(self, src: Ints, dst: Ints, choice: Choice, bits: npt.NDArray[np.uint64]) -> Ints:
        """Return the links of a way over a random place for each pair that has one, -1 filled; else none."""
        from tokenwire.fabric.search import HASHED

        out = np.full((src.size, 1), -1, dtype=np.int64)
        if self.places is None:
            return out
        turn = self.places.between(src, dst, choice.ports(src, dst, 7))
        far = np.flatnonzero(turn >= 0)
        there, one = self._shortest(src[far], turn[far], bits[far], HASHED)
        back, two = self._shortest(turn[far], dst[far], bits[far] ^ np.uint64(0x9E3779B97F4A7C15), HASHED)
        ways = one & two
        lengths = (there >= 0).sum(axis=1) + (back >= 0).sum(axis=1)
        whole = np.concatenate([there, back], axis=1)
        # A stable sort of "is no link" moves the second leg up to the first.
        whole = np.take_along_axis(whole, np.argsort(whole < 0, axis=1, kind="stable"), axis=1)
        out = np.full((src.size, int(lengths.max(initial=1))), -1, dtype=np.int64)
        out[far[ways]] = whole[ways, : out.shape[1]]
        return out

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
            src, dst, order, g.first_out, g.to_vertex, g.link, g.first_in, g.from_vertex, g.free_in, g.first_out.size
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
        if choice.routing == "ugal":
            return self._ugal(src, dst, size, slow, choice, busy)
        turn = (choice.ports(src, dst, 3) >> np.uint64(32)).astype(np.int64)
        before = np.zeros(rate.size) if busy is None else busy
        return self._wide_enough(src.size, lambda most: least_loaded(
            src, dst, size.astype(np.float64), slow, before.copy(), turn, g.first_out, g.to_vertex, g.link, g.first_in, g.from_vertex,
            g.free_in, most,
        ))  # fmt: skip

    def _ugal(
        self, src: Ints, dst: Ints, size: Ints, slow: Floats, choice: Choice, busy: Floats | None
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        from tokenwire.fabric.search import chosen

        straight, found = self.rows(src, dst, choice)
        detour = self._detours(src, dst, choice, choice.flow(src, dst, self.gpus_per_node))
        took = chosen(straight, detour, size.astype(np.float64), slow, np.zeros(slow.size) if busy is None else busy)
        return _either(straight, detour, took), found


def _either(rows: Ints, others: Ints, take: npt.NDArray[np.bool_]) -> Ints:
    """Return ``others`` in the rows that ``take`` says, -1 filled to one width."""
    out = np.full((rows.shape[0], max(rows.shape[1], others.shape[1])), -1, dtype=np.int64)
    out[:, : rows.shape[1]] = rows
    out[take] = -1
    out[np.ix_(take, np.arange(others.shape[1]))] = others[take]
    return out
