"""The PCIe links of nodes on every way: what GPUs and NICs share below one switch, or on the way over the CPU.

A fabric whose ways go from a GPU to its NIC for free gets the links of a node's tree (``pcie_tree``) in each node. Wherever a way
leaves a node by a NIC or comes in by one, the links between that NIC and the GPU go in; a pair in one node without NVLink goes over
the tree alone. They have no latency: the link's of the network has it all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.choice import Choice
from tokenwire.fabric.fabric import TIERS, Fabric, Floats, Ints, Parts, Routes
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.fabric.pcie_tree import Tree, read_tree
from tokenwire.fabric.ways import expanded


class OverPcie:
    """Ways of a base fabric with the PCIe links of each node in them."""

    def __init__(self, base: Fabric, tree: Tree) -> None:
        self.base, self.tree = base, tree
        self.nic0, self.g, self.k = base.starts["nic"], base.gpus_per_node, base.facts.nics_per_node
        self.joined = base.facts.domain == "none" and self.g > 1
        every, nics = range(self.g), [tree.g + nic for nic in range(self.k)]
        self.out = _table([[tree.path(gpu, nic) for nic in nics] for gpu in every])
        self.back = _table([[tree.path(nic, gpu) for nic in nics] for gpu in every])
        self.between = _table([[tree.path(a, b) for b in every] for a in every])

    def __call__(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Routes:
        """Return the routes of all pairs; see ``fabric.routes``."""
        far = ~self._inside(src, dst)
        return self._with(src, dst, far, self.base.router(src[far], dst[far], choice.of(np.flatnonzero(far)), pxn))

    def sprayed(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Parts:
        """Return every link of each pair's ways and the part of the pair's bytes that it carries."""
        far = ~self._inside(src, dst)
        found = expanded(self.base.router.sprayed(src[far], dst[far], choice.of(np.flatnonzero(far)), pxn))
        use = np.ones(found.entries.size) if found.use is None else found.use
        pair, entry, part = self._all(src, dst, far, (found.offsets, found.entries), use)
        # A pair may leave by several ports of one NIC: its PCIe links are there once, with all of it.
        links = self.base.links + self.tree.links[0].size * self.base.nodes
        key, place = np.unique(pair * links + entry, return_inverse=True)
        sums = np.bincount(place, weights=part, minlength=key.size)
        counts = np.bincount(key // links, minlength=src.size)
        return Parts(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), key % links, np.minimum(sums, 1.0), None)

    def least_loaded(self, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, pxn: bool) -> Routes:
        """Return one way each, pair after pair that which is least busy (PCIe links are no matter of choice)."""
        far = ~self._inside(src, dst)
        own = self.base.router.least_loaded(
            src[far], dst[far], size[far], rate[: self.base.links], choice.of(np.flatnonzero(far)), pxn
        )
        return self._with(src, dst, far, own)

    def _inside(self, src: Ints, dst: Ints) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = (src // self.g == dst // self.g) & self.joined
        return inside

    def _with(self, src: Ints, dst: Ints, far: npt.NDArray[np.bool_], found: Routes) -> Routes:
        pair, entry, _ = self._all(src, dst, far, found, np.ones(found[1].size))
        counts = np.bincount(pair, minlength=src.size)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), entry

    def _all(self, src: Ints, dst: Ints, far: npt.NDArray[np.bool_], found: Routes, use: Floats) -> tuple[Ints, Ints, Floats]:
        """Return pair, link and part of every entry, in the order of pairs and ways; ``found`` are the ways of the far pairs."""
        offsets, links = found
        pair = np.repeat(np.flatnonzero(far), np.diff(offsets))
        a, b = self.base.src[links].astype(np.int64), self.base.dst[links].astype(np.int64)
        many = self.base.nodes * self.k
        out, back = (a >= self.nic0) & (a < self.nic0 + many), (b >= self.nic0) & (b < self.nic0 + many)
        # The GPU at a NIC is the one that the way goes over by NVLink in that node (PXN), else the pair's own end.
        before, after, world, g = src.copy(), dst.copy(), self.base.world, self.g
        there, here = (b < world) & (b // g == src[pair] // g), (a < world) & (a // g == dst[pair] // g)
        before[pair[there]], after[pair[here]] = b[there], a[here]
        before, after = before[pair], after[pair]
        rows = np.concatenate([
            self._links(self.out, before, a - self.nic0, out), links[:, None], self._links(self.back, after, b - self.nic0, back)
        ], axis=1)  # fmt: skip
        near = np.flatnonzero(~far)
        inner = self.between[src[near] % self.g, dst[near] % self.g]
        inner = np.where(inner >= 0, self._number(inner, (src[near] // self.g)[:, None]), -1)
        every = [(np.repeat(pair, (rows >= 0).sum(axis=1)), rows[rows >= 0], np.repeat(use, (rows >= 0).sum(axis=1))),
                 (np.repeat(near, (inner >= 0).sum(axis=1)), inner[inner >= 0], np.ones(int((inner >= 0).sum())))]  # fmt: skip
        pairs, entries, parts = (np.concatenate([one[i] for one in every]) for i in range(3))
        order = np.argsort(pairs, kind="stable")
        return pairs[order], entries[order], parts[order]

    def _links(self, table: Ints, gpu: Ints, nic: Ints, here: npt.NDArray[np.bool_]) -> Ints:
        own = table[gpu % self.g, np.where(here, nic, 0) % self.k]
        node = (np.where(here, nic, 0) // self.k)[:, None]
        return np.where((own >= 0) & here[:, None], self._number(own, node), -1)

    def _number(self, link: Ints, node: Ints) -> Ints:
        return self.base.links + node * self.tree.links[0].size + link


def _table(paths: list[list[list[int]]]) -> Ints:
    width = max(len(path) for row in paths for path in row) or 1
    return np.array([[path + [-1] * (width - len(path)) for path in row] for row in paths], dtype=np.int64)


def over_pcie(base: Fabric, tree: Tree) -> Fabric:
    """Return the fabric with the tree's links in every node. Raises ``InputError`` where it has other GPUs or NICs a node."""
    g, k, N = base.gpus_per_node, base.facts.nics_per_node, base.nodes
    if "nic" not in base.starts:
        raise InputError(f"topology = {base.facts.topology!r}", where="[cluster]", rule="has no NICs that a node's file could describe")
    if g > tree.g or k > tree.k:
        raise InputError(f"{g} GPUs and {k} NICs a node", where="[cluster]", rule=f"the file has {tree.g} and {tree.k}")
    tree = tree.first(g, k)
    switches = len(tree.parent) - g - k
    # Of each kind: the first device, how many a node has, in the order of the tree's vertices.
    rows = ((0, g), (base.starts["nic"], k), (base.devices, switches), (base.devices + N * switches, tree.cpus))
    counts = [many for _, many in rows]
    first, each = (np.repeat([row[i] for row in rows], counts) for i in range(2))
    place = np.concatenate([np.arange(many) for many in counts])
    low, high, rate = tree.links
    node = np.repeat(np.arange(N), low.size)
    src, dst = (first[np.tile(end, N)] + node * each[np.tile(end, N)] + place[np.tile(end, N)] for end in (low, high))
    tier = np.full(src.size, TIERS.index("pcie"), dtype=np.int8)
    name = f"PCIe of the file: {switches} switches, {tree.cpus} CPUs a node; GPU to NIC {tree.nic_path}"
    kinds = tuple((kind, many) for kind, many in base.kinds if kind != "pcie" or many)
    return replace(
        base, kinds=(*kinds, ("pcie", N * switches), ("cpu", N * tree.cpus)), src=np.append(base.src, src.astype(np.int32)),
        dst=np.append(base.dst, dst.astype(np.int32)), rate=np.append(base.rate, np.tile(rate, N)),
        latency=np.append(base.latency, np.zeros(src.size)), tier=np.append(base.tier, tier), router=OverPcie(base, tree),
        notes=(*base.notes, name),
    )  # fmt: skip


def build_with_node(path: str, base: Callable[[ClusterFacts], Fabric], facts: ClusterFacts) -> Fabric:
    """Return the fabric that ``base`` makes of the facts, with the nodes of NCCL's file ``path``."""
    # Without NVLink GPUs meet over the tree, not over a switch of their own.
    plain = facts if facts.domain == "nvlink" else facts.model_copy(update={"domain": "none"})
    return replace(over_pcie(base(plain), read_tree(path)), facts=facts)
