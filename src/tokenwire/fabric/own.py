"""A user's own topology as a fabric: what is a node, what is not connected, who has no NIC.

All links are those of the file: also between a GPU and its NIC, if it says so. A node is what hangs together by links between
GPUs, NVSwitches, PCIe switches, CPUs and NICs; nodes must be of one size. A GPU may also be at a switch directly: then it is
its own NIC. GPUs are ranks in the order of their nodes and names (numbers in names count as numbers). No way leads through a
NIC from one device of its node to another, nor from the network to the network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.fabric import TIERS, Fabric, Floats, Ints
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.fabric.graph import Graph, GraphRouter, graph
from tokenwire.fabric.own_links import KINDS, Link, read_links
from tokenwire.files import read_limited

LIMIT = 64 * 2**20
"""Bytes of the largest topology file that is read."""
ENDINGS = (".csv", ".graphml")
HOST = ("gpu", "nvswitch", "pcie", "cpu")
"""Kinds on the inner side of a NIC."""


@dataclass(frozen=True)
class Own:
    """Devices in their order (GPUs first) and directed links as columns; GPUs of a node, NICs of a node."""

    labels: tuple[str, ...]
    kinds: tuple[tuple[str, int], ...]
    src: Ints
    dst: Ints
    rate: Floats
    latency: Floats
    tier: npt.NDArray[np.int8]
    gpus: int
    gpus_per_node: int
    nics_per_node: int


def read_own(path: str) -> Own:
    """Return the topology of a file. Raises ``InputError`` for a file that is none."""
    try:
        stat = os.stat(path)
        key = (stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError):
        key = (0, 0)  # what is wrong will be said when it is opened
    return _read(path, key)


@lru_cache(maxsize=2)
def _read(path: str, _key: tuple[int, int]) -> Own:
    where = f"topology file {path!r}"
    data = read_limited(path, limit=LIMIT, what="topology file")
    links, kinds = read_links(data, path, where)
    return arranged(links, kinds, where)


def natural(name: str) -> list[tuple[int, int | str]]:
    """Return what names are sorted by: numbers in them as numbers.

    >>> sorted(["gpu10", "gpu9", "a"], key=natural)
    ['a', 'gpu9', 'gpu10']
    """
    return [(0, int(part)) if part.isdecimal() and len(part) < 19 else (1, part) for part in re.split(r"(\d+)", name) if part]


def arranged(links: list[Link], kinds: dict[str, str], where: str) -> Own:
    """Return the topology of links between devices of those kinds."""
    import rustworkx

    names = sorted(kinds, key=natural)
    number = {name: i for i, name in enumerate(names)}
    first = [name for name in names if kinds[name] == "gpu"]
    if not first:
        raise InputError(where, rule="has no GPU", nearest="devices named gpu0, gpu1 ...")
    lonely = set(names) - {link.src for link in links} - {link.dst for link in links}
    if lonely:
        raise InputError(min(lonely, key=natural)[:80], where=where, rule="has no link")
    inner = (*HOST, "nic")
    shape = rustworkx.PyGraph()
    shape.add_nodes_from(range(len(names)))
    shape.extend_from_edge_list([(number[one.src], number[one.dst]) for one in links
                                 if kinds[one.src] in inner and kinds[one.dst] in inner])  # fmt: skip
    nodes = [sorted(part) for part in rustworkx.connected_components(shape)]
    nodes = sorted((part for part in nodes if any(kinds[names[i]] == "gpu" for i in part)), key=lambda part: part[0])
    sizes = [[sum(kinds[names[i]] == kind for i in part) for part in nodes] for kind in ("gpu", "nic")]
    if len(set(sizes[0])) > 1:
        raise InputError(f"nodes of {min(sizes[0])} and of {max(sizes[0])} GPUs", where=where, rule="nodes must be of one size")
    has_nics = any(kind == "nic" for kind in kinds.values())
    for part, nics in zip(nodes, sizes[1], strict=True):
        at_switch = any(kinds[names[i]] == "gpu" and _leaves_node(names[i], links, kinds) for i in part) if has_nics and not nics else False
        if has_nics and len(nodes) > 1 and not nics and not at_switch:
            gpu = next(names[i] for i in part if kinds[names[i]] == "gpu")
            raise InputError(gpu[:80], where=where, rule="has no NIC, while others have", nearest=f"a link from {gpu} to a NIC"[:80])
    order = [i for part in nodes for i in part if kinds[names[i]] == "gpu"]
    order += [number[name] for kind in KINDS[1:] for name in names if kinds[name] == kind]
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    counts = tuple((kind, sum(k == kind for k in kinds.values())) for kind in KINDS)
    columns = _columns(links, kinds, {name: int(place[i]) for name, i in number.items()})
    own = Own(tuple(names[i] for i in order), counts, *columns, len(first), sizes[0][0], max(sizes[1], default=0))
    _connected(own, where)
    return own


def _leaves_node(gpu: str, links: list[Link], kinds: dict[str, str]) -> bool:
    ends = [(one.src, one.dst) for one in links if gpu in (one.src, one.dst)]
    return any(kinds[name] not in (*HOST, "nic") for pair in ends for name in pair)


def _columns(
    links: list[Link], kinds: dict[str, str], place: dict[str, int]
) -> tuple[Ints, Ints, Floats, Floats, npt.NDArray[np.int8]]:
    rows = []
    for one in links:
        tier = TIERS.index(_tier(kinds[one.src], kinds[one.dst]))
        a, b = place[one.src], place[one.dst]
        for ends in ((a, b),) if one.one_way else ((a, b), (b, a)):
            rows += [(*ends, one.rate, one.latency, tier)] * one.count
    src, dst, rate, latency, code = zip(*rows, strict=True)
    return (np.array(src, dtype=np.int64), np.array(dst, dtype=np.int64), np.array(rate), np.array(latency),
            np.array(code, dtype=np.int8))  # fmt: skip


def _tier(a: str, b: str) -> str:
    ends = {a, b}
    if ends <= set(HOST) | {"nic"}:
        return "nvlink" if "nvswitch" in ends or ends == {"gpu"} else "pcie"
    if ends & {*HOST, "nic"}:
        return "leaf"
    return "core" if "core" in ends else "spine"


def own_graph(kinds: tuple[tuple[str, int], ...], src: Ints, dst: Ints, keep: Ints) -> Graph:
    """Return the graph of the links ``keep`` of a user's own topology."""
    starts = np.cumsum([0, *[count for _, count in kinds]])
    names = [name for name, _ in kinds]
    kind = np.repeat(np.arange(len(kinds)), [count for _, count in kinds])
    nics = np.arange(starts[names.index("nic")], starts[names.index("nic") + 1])
    inner = np.isin(kind, [names.index(name) for name in HOST])
    none = np.zeros(0, dtype=np.int64)
    return graph(kind.size, src[keep], dst[keep], keep, none, nics, inner)


def _connected(own: Own, where: str) -> None:
    router = GraphRouter(own_graph(own.kinds, own.src, own.dst, np.arange(own.src.size)), strict=False)
    others = np.arange(1, own.gpus, dtype=np.int64)
    zero = np.zeros_like(others)
    for src, dst in ((others, zero), (zero, others)):
        if src is zero:
            # Searching from every destination is dear: a few will do, since links mostly go both ways.
            pick = np.unique(np.linspace(0, others.size - 1, min(others.size, 16)).astype(np.int64)) if others.size else others
            src, dst = src[pick], dst[pick]
        found = router.reachable(src, dst)
        if not found.all():
            i = int(np.flatnonzero(~found)[0])
            raise InputError(f"{own.labels[src[i]]} to {own.labels[dst[i]]}"[:100], where=where,
                             rule="no way leads there: the fabric is not connected")  # fmt: skip


def own_facts(path: str) -> ClusterFacts:
    """Return what the file says of the cluster as a whole."""
    own = read_own(path)
    leaf, inside = own.tier == TIERS.index("leaf"), own.tier <= TIERS.index("pcie")
    domain = "nvlink" if (own.tier == TIERS.index("nvlink")).any() else "pcie" if inside.any() else "none"
    nic = float(own.rate[leaf].max()) if leaf.any() else float(own.rate.max())
    told = {
        "title": os.path.basename(path), "source": "the user's file", "topology": "file", "rails": 1, "domain": domain,
        "nodes": own.gpus // own.gpus_per_node, "gpus_per_node": own.gpus_per_node,
        "nics_per_node": own.nics_per_node or own.gpus_per_node, "nic_rate": nic,
        **({"domain_rate": float(own.rate[inside].max())} if inside.any() else {}),
    }  # fmt: skip
    return ClusterFacts().model_copy(update=told)


def build_own(name: str, facts: ClusterFacts) -> Fabric:
    """Return the fabric of a user's file (``name`` is its path)."""
    own = read_own(name)
    have = own.gpus
    if facts.nodes * facts.gpus_per_node > have:
        raise InputError(f"{facts.nodes * facts.gpus_per_node:,} ranks", where=f"topology file {name!r}", rule=f"has {have:,} GPUs",
                         nearest=f"cluster.gpus = {have}")  # fmt: skip
    router = GraphRouter(own_graph(own.kinds, own.src, own.dst, np.arange(own.src.size)), facts.gpus_per_node)
    gpus = np.arange(facts.nodes * facts.gpus_per_node, dtype=np.int64)
    return Fabric(
        name, facts, own.kinds, own.src.astype(np.int32), own.dst.astype(np.int32), own.rate, own.latency, own.tier, gpus, router,
        labels=own.labels,
    )  # fmt: skip
