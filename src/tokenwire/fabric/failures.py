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
from tokenwire.fabric.fabric import Fabric, Ints, Router, Routes, packed
from tokenwire.fabric.graph import GraphRouter, graph


class Rerouted:
    """Routes as before where nothing failed on them, else shortest ways over what is left."""

    def __init__(self, before: Router, dead: npt.NDArray[np.bool_], left: GraphRouter, failed: Sequence[str]) -> None:
        self.before, self.dead, self.left, self.failed = before, dead, left, failed

    def __call__(self, src: Ints, dst: Ints, seed: int, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        offsets, links = self.before(src, dst, seed, pxn)
        lengths = np.diff(offsets)
        pair = np.repeat(np.arange(src.size), lengths)
        hit = np.zeros(src.size, dtype=np.bool_)
        hit[pair[self.dead[links]]] = True
        if not hit.any():
            return offsets, links
        rows, found = self.left.rows(src[hit], dst[hit], seed)
        if not found.all():
            i = np.flatnonzero(hit)[np.flatnonzero(~found)[0]]
            raise InputError(f"GPU {src[i]} to GPU {dst[i]}", rule=f"no way is left without {', '.join(self.failed)}")
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
        first, dash, second = name.strip().partition("-")
        a = fabric.device(first)
        if not dash:
            if first.startswith("gpu"):
                raise InputError(f"--fail {first}", rule="a job does not outlive its GPU", nearest="a switch, NIC or link")
            dead |= (fabric.src == a) | (fabric.dst == a)
            continue
        b = fabric.device(second)
        between = ((fabric.src == a) & (fabric.dst == b)) | ((fabric.src == b) & (fabric.dst == a))
        if not between.any():
            raise InputError(f"link {name}", rule=f"{first} and {second} are not joined")
        dead |= between
    return dead


def without(fabric: Fabric, names: Sequence[str]) -> Fabric:
    """Return the fabric with the named devices and links failed; see ``Fabric.without``."""
    dead = failed_links(fabric, names)
    alive = np.flatnonzero(~dead)
    left = graph(
        fabric.devices, fabric.src[alive].astype(np.int64), fabric.dst[alive].astype(np.int64), alive, *fabric.attachments,
    )  # fmt: skip
    router = Rerouted(fabric.router, dead, GraphRouter(left), names)
    return replace(fabric, router=router, failed=(*fabric.failed, *names))
