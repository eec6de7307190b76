"""Ways through a folded Clos, by arithmetic on the numbers of devices: no search. Letters are those of ``clos.Shape``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.choice import Choice
from tokenwire.fabric.clos import Shape
from tokenwire.fabric.fabric import Floats, Ints, Parts, Routes, Trunks, packed

_BLOCK = 1 << 20  # pairs whose routes are worked out at once


@dataclass(frozen=True)
class Ends:
    """The pairs that use NICs: which (``across``), the GPU whose NIC sends (``by``), the NICs, their plane, their choice."""

    across: npt.NDArray[np.bool_]
    a: Ints
    b: Ints
    by: Ints
    nic: Ints
    to: Ints
    plane: Ints
    choice: Choice

    @property
    def other(self) -> npt.NDArray[np.bool_]:
        """Return which have two NICs."""
        other: npt.NDArray[np.bool_] = self.nic != self.to
        return other


class ClosRouter:
    """Routes by arithmetic on the numbers of devices."""

    def __init__(self, s: Shape, domain: bool) -> None:
        self.shape, self.domain = s, domain
        nics = s.N * s.k * s.P
        sizes = [s.N * s.g if domain else 0] * 2 + [nics] * 2 + [s.leaves * s.U] * 2 + [s.spines * s.V] * 2
        at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.out, self.back, self.nic_up, self.nic_down = (int(x) for x in at[:4])
        self.leaf_up, self.leaf_down, self.spine_up, self.spine_down, self.links = (int(x) for x in at[4:])

    def __call__(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        return self._blocks(src, dst, lambda part: packed(self._rows(src[part], dst[part], choice.of(part), pxn)))

    def _blocks(self, src: Ints, dst: Ints, work: Callable[[slice], Routes]) -> Routes:
        if src.size <= _BLOCK:
            return work(slice(None))
        offsets, parts = [np.zeros(1, dtype=np.int64)], []
        for first in range(0, src.size, _BLOCK):
            at, ids = work(slice(first, first + _BLOCK))
            offsets.append(at[1:] + offsets[-1][-1])
            parts.append(ids)
        return np.concatenate(offsets), np.concatenate(parts)

    # Where the ends are ----------------------------------------------------------------------------------------------

    def _ends(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Ends:
        s = self.shape
        # No link inside the node: out of the NIC and back in by the leaf, unless both share one NIC.
        across = src // s.g != dst // s.g if self.domain else src != dst
        a, b, choice = src[across], dst[across], choice.of(np.flatnonzero(across))
        chance = choice.ports(a, b)
        to = s.nic(b, (chance >> np.uint64(40)).astype(np.int64))
        by = a.copy()
        rail = s.nic(a, np.zeros_like(a)) % s.k % s.R != s.nic(b, np.zeros_like(b)) % s.k % s.R
        if s.R > 1 and self.domain and (pxn or s.rail_only):
            by = np.where(rail, a // s.g * s.g + b % s.g, a)
        nic = s.nic(by, (chance >> np.uint64(48)).astype(np.int64))
        if choice.by_hash:
            plane = (choice.ports(a, b, 2) % np.uint64(s.P)).astype(np.int64)
        else:
            plane = s.place(nic if choice.routing == "static" else to) % s.P
        return Ends(across, a, b, by, nic, to, plane, choice)

    def _inside(self, out: Ints, src: Ints, dst: Ints) -> None:
        if self.domain:
            s = self.shape
            inside = (src // s.g == dst // s.g) & (src != dst)
            out[inside, 0] = self.out + src[inside]
            out[inside, 7] = self.back + dst[inside]

    def _apart(self, up: Ints, down: Ints) -> npt.NDArray[np.bool_]:
        apart: npt.NDArray[np.bool_] = self.shape.cell(up) != self.shape.cell(down)
        if self.shape.rail_only and apart.any():
            raise InputError("a message across rails", rule="rails that share no spine meet only inside a node",
                             nearest="a domain of nvlink")  # fmt: skip
        return apart

    # One way each ----------------------------------------------------------------------------------------------------

    def _rows(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Ints:
        s = self.shape
        out = np.full((src.size, 8), -1, dtype=np.int64)
        self._inside(out, src, dst)
        ends = self._ends(src, dst, choice, pxn)
        if not ends.a.size:
            return out
        rows = self._first_and_last(ends)
        up, down = s.leaf(ends.nic, ends.plane), s.leaf(ends.to, ends.plane)
        high = up != down
        if high.any():
            self._climb(rows, up, down, high, ends)
        out[ends.across] = rows
        return out

    def _first_and_last(self, ends: Ends) -> Ints:
        s = self.shape
        rows = np.full((ends.a.size, 8), -1, dtype=np.int64)
        moved, other = ends.by != ends.a, ends.other
        rows[moved, 0] = self.out + ends.a[moved]
        rows[moved, 1] = self.back + ends.by[moved]
        rows[other, 2] = self.nic_up + (ends.nic * s.P + ends.plane)[other]
        rows[other, 7] = self.nic_down + (ends.to * s.P + ends.plane)[other]
        return rows

    def _climb(self, rows: Ints, up: Ints, down: Ints, high: npt.NDArray[np.bool_], ends: Ends) -> None:
        s, choice = self.shape, ends.choice
        apart = high & self._apart(up, down)
        if choice.by_hash:
            bits = choice.flow(ends.nic, ends.to, s.k)
            j = choice.pick(bits, 0, s.U)
            m = j % s.M
            back = m + s.M * choice.pick(bits, 3, s.U // s.M)
        else:
            nic, leaf = (ends.nic, up) if choice.routing == "static" else (ends.to, down)
            j = s.place(nic) // s.P % s.U
            m, back = j % s.M, j
        rows[high, 3] = (self.leaf_up + up * s.U + j)[high]
        rows[high, 6] = (self.leaf_down + down * s.U + back)[high]
        if not apart.any():
            return
        if choice.by_hash:
            v = choice.pick(bits, 1, s.V)
            w = v % s.C + s.C * choice.pick(bits, 2, s.V // s.C)
        else:
            v = w = (s.seat(leaf) * (s.U // s.M) + j // s.M) % s.V
        rows[apart, 4] = (self.spine_up + (s.cell(up) * s.M + m) * s.V + v)[apart]
        rows[apart, 5] = (self.spine_down + (s.cell(down) * s.M + m) * s.V + w)[apart]

    # All ways at once ------------------------------------------------------------------------------------------------

    @property
    def _bundles(self) -> list[tuple[int, int, int]]:
        # First link, links of a trunk, trunks: by kind of link, in the order of the links.
        s = self.shape
        gpus, nics, groups = s.N * s.g if self.domain else 0, s.N * s.k, s.leaves // s.P
        pods = s.cells // s.P
        return [
            (self.out, 1, gpus), (self.back, 1, gpus), (self.nic_up, s.P, nics), (self.nic_down, s.P, nics),
            (self.leaf_up, s.P * s.U, groups), (self.leaf_down, s.P * s.U, groups),
            (self.spine_up, s.P * s.M * s.V, pods if s.V else 0), (self.spine_down, s.P * s.M * s.V, pods if s.V else 0),
        ]  # fmt: skip

    def sprayed(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Parts:
        """Return the trunks of all pairs: the ports of a NIC, the uplinks of a leaf (in all planes), those of a pod's spines."""
        s, bundles = self.shape, self._bundles
        trunks = Trunks(
            np.concatenate([first + width * np.arange(many, dtype=np.int64) for first, width, many in bundles]),
            np.repeat(np.array([width for _, width, _ in bundles]), [many for _, _, many in bundles]).astype(np.int64),
        )
        at = np.concatenate([[0], np.cumsum([many for _, _, many in bundles])]).astype(np.int64)

        def rows(part: slice) -> Routes:
            a, b = src[part], dst[part]
            out = np.full((a.size, 8), -1, dtype=np.int64)
            self._inside(out, a, b)
            ends = self._ends(a, b, choice.of(part), pxn)
            mine = np.full((ends.a.size, 8), -1, dtype=np.int64)
            moved, other, none = ends.by != ends.a, ends.other, np.zeros_like(ends.nic)
            mine[moved, 0] = at[0] + ends.a[moved]
            mine[moved, 1] = at[1] + ends.by[moved]
            mine[other, 2] = at[2] + ends.nic[other]
            mine[other, 7] = at[3] + ends.to[other]
            up, down = s.leaf(ends.nic, none), s.leaf(ends.to, none)
            high = up != down
            mine[high, 3] = at[4] + (up // s.P)[high]
            mine[high, 6] = at[5] + (down // s.P)[high]
            apart = high & self._apart(up, down)
            mine[apart, 4] = at[6] + (s.cell(up) // s.P)[apart]
            mine[apart, 5] = at[7] + (s.cell(down) // s.P)[apart]
            out[ends.across] = mine
            return packed(out)

        offsets, entries = self._blocks(src, dst, rows)
        return Parts(offsets, entries, None, trunks)

    # The least loaded way --------------------------------------------------------------------------------------------

    def least_loaded(
        self, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, pxn: bool
    ) -> Routes:
        """Return one way each: pair after pair that whose busiest link, of those there is a choice of, is least busy after."""
        from tokenwire.fabric.adaptive import climb

        s = self.shape
        out = np.full((src.size, 8), -1, dtype=np.int64)
        self._inside(out, src, dst)
        ends = self._ends(src, dst, choice, pxn)
        if not ends.a.size:
            return packed(out)
        rows = self._first_and_last(ends)
        none = np.zeros_like(ends.nic)
        up, down, leaves = s.leaf(ends.nic, none), s.leaf(ends.to, none), np.arange(s.leaves, dtype=np.int64)
        self._apart(up, down)
        with np.errstate(divide="ignore"):
            slowness = 1.0 / rate
        climb(
            rows, ends.nic, ends.to, up, down, size[ends.across].astype(np.float64), s.cell(leaves), slowness,
            np.array([self.nic_up, self.nic_down, self.leaf_up, self.leaf_down, self.spine_up, self.spine_down]),
            np.array([s.P, s.U, s.M, s.V, s.C]), (ends.choice.ports(ends.a, ends.b, 3) >> np.uint64(32)).astype(np.int64),
        )  # fmt: skip
        out[ends.across] = rows
        return packed(out)
