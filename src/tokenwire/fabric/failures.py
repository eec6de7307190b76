"""What is left of a fabric when devices or links have failed.

Routes that do not touch what failed stay as they were; the others are searched anew over what is left, which may lead
over NVLink to another GPU's NIC. A pair without any way is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.choice import Choice
from tokenwire.fabric.fabric import Fabric, Floats, Ints, Parts, Router, Routes, packed
from tokenwire.fabric.graph import GraphRouter, graph
from tokenwire.fabric.own import own_graph
from tokenwire.fabric.pcie import OverPcie, over_pcie
from tokenwire.fabric.ways import expanded


class Rerouted:
    """Ways as before where nothing failed on them, else shortest ways over what is left."""

    def __init__(self, before: Router, dead: npt.NDArray[np.bool_], left: GraphRouter, failed: Sequence[str]) -> None:
        self.before, self.dead, self.left, self.failed = before, dead, left, failed

    def __call__(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        offsets, links = self.before(src, dst, choice, pxn)
        hit = self._hit(offsets, links)
        if not hit.any():
            return offsets, links
        rows, found = self.left.rows(src[hit], dst[hit], choice.of(np.flatnonzero(hit)))
        return self._mended(src, dst, offsets, links, hit, rows, found)

    def sprayed(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Parts:
        """Return every link of the ways; a pair some of whose ways have failed is sprayed anew over what is left."""
        whole = expanded(self.before.sprayed(src, dst, choice, pxn))
        hit = self._hit(whole.offsets, whole.entries)
        if not hit.any():
            return whole
        new, found = self.left.shares(src[hit], dst[hit])
        self._check(src, dst, hit, found)
        lengths = np.diff(whole.offsets)
        stays = np.repeat(~hit, lengths)
        pair = np.concatenate([
            np.repeat(np.arange(src.size), lengths)[stays], np.repeat(np.flatnonzero(hit), np.diff(new.offsets))
        ])  # fmt: skip
        order = np.argsort(pair, kind="stable")
        use = np.ones(whole.entries.size) if whole.use is None else whole.use
        share = np.ones(new.entries.size) if new.use is None else new.use
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(pair, minlength=src.size))])
        return Parts(
            offsets, np.concatenate([whole.entries[stays], new.entries])[order], np.concatenate([use[stays], share])[order], None
        )

    def least_loaded(
        self, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, pxn: bool
    ) -> Routes:
        """Return one way each; pairs that every way of theirs has failed for choose last, over what is left."""
        offsets, links = self.before.least_loaded(src, dst, size, np.where(self.dead, 0.0, rate), choice, pxn)
        hit = self._hit(offsets, links)
        if not hit.any():
            return offsets, links
        stays = np.repeat(~hit, np.diff(offsets))
        carried = np.repeat(size.astype(np.float64), np.diff(offsets))
        busy = np.bincount(links[stays], weights=carried[stays], minlength=rate.size).astype(np.float64)
        busy = np.divide(busy, rate, out=np.zeros(rate.size), where=rate > 0)
        rows, found = self.left.least_loaded_rows(
            src[hit], dst[hit], size[hit], rate, choice.of(np.flatnonzero(hit)), busy
        )
        return self._mended(src, dst, offsets, links, hit, rows, found)

    def _hit(self, offsets: Ints, links: Ints) -> npt.NDArray[np.bool_]:
        hit = np.zeros(offsets.size - 1, dtype=np.bool_)
        hit[np.repeat(np.arange(hit.size), np.diff(offsets))[self.dead[links]]] = True
        return hit

    def _check(self, src: Ints, dst: Ints, hit: npt.NDArray[np.bool_], found: npt.NDArray[np.bool_]) -> None:
        if not found.all():
            i = np.flatnonzero(hit)[np.flatnonzero(~found)[0]]
            raise InputError(f"GPU {src[i]} to GPU {dst[i]}", rule=f"no way is left without {', '.join(self.failed)}")

    def _mended(
        self, src: Ints, dst: Ints, offsets: Ints, links: Ints, hit: npt.NDArray[np.bool_], rows: Ints,
        found: npt.NDArray[np.bool_],
    ) -> Routes:  # fmt: skip
        self._check(src, dst, hit, found)
        lengths = np.diff(offsets)
        pair = np.repeat(np.arange(src.size), lengths)
        width = max(int(lengths.max(initial=0)), rows.shape[1])
        matrix = np.full((src.size, width), -1, dtype=np.int64)
        matrix[pair, np.arange(links.size) - np.repeat(offsets[:-1], lengths)] = links
        matrix[hit] = -1
        matrix[np.ix_(hit, np.arange(rows.shape[1]))] = rows
        return packed(matrix)


def failed_links(fabric: Fabric, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which links are dead when the named devices (``leaf3``) or links (``leaf3-spine1``) have failed."""
    dead = np.zeros(fabric.links, dtype=np.bool_)
    for name in names:
        first, dash, second = _ends(fabric, name.strip())
        a = fabric.device(first)
        if not dash:
            if a < fabric.starts["gpu"] + dict(fabric.kinds)["gpu"]:
                raise InputError(f"--fail {first}", rule="a job does not outlive its GPU", nearest="a switch, NIC or link")
            dead |= (fabric.src == a) | (fabric.dst == a)
            continue
        b = fabric.device(second)
        between = ((fabric.src == a) & (fabric.dst == b)) | ((fabric.src == b) & (fabric.dst == a))
        if not between.any():
            raise InputError(f"link {name}", rule=f"{first} and {second} are not joined")
        dead |= between
    return dead


def _ends(fabric: Fabric, name: str) -> tuple[str, str, str]:
    # A user's own names may have dashes in them: the one that parts two devices counts.
    labels = set(fabric.labels)
    if name in labels:
        return name, "", ""
    for at in [i for i, sign in enumerate(name) if sign == "-" and labels]:
        if name[:at] in labels and name[at + 1 :] in labels:
            return name[:at], "-", name[at + 1 :]
    return (name, "", "") if labels else name.partition("-")


def without(fabric: Fabric, failed: Sequence[str]) -> Fabric:
    """Return the fabric after devices (``leaf3``) or links (``leaf3-spine1``, both directions) have failed."""
    if isinstance(fabric.router, OverPcie):
        # What fails is of the network; the nodes are as they were.
        return replace(over_pcie(without(fabric.router.base, failed), fabric.router.tree), facts=fabric.facts)
    names = (*fabric.failed, *failed)
    dead = failed_links(fabric, names)
    alive = np.flatnonzero(~dead)
    src, dst = fabric.src.astype(np.int64), fabric.dst.astype(np.int64)
    if fabric.labels:
        left = own_graph(fabric.kinds, src, dst, alive)
    else:
        left = graph(fabric.devices, src[alive], dst[alive], alive, *fabric.attachments)
    router = Rerouted(fabric.router, dead, GraphRouter(left, fabric.gpus_per_node), names)
    return replace(fabric, router=router, failed=names)
