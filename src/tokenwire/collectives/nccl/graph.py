"""The channels that NCCL finds in a node: how many, and how fast each is, for a ring, a tree, NVLS and CollNet.

NCCL tries speeds from a table, fastest first, and packs as many channels of that speed as the links bear; the best product
wins, then a few are doubled or made faster. Here a packing is counted rather than searched for: a channel of speed s takes
s from every link that it crosses, evenly over the GPUs of a node. With g GPUs, N GB/s out of each, k NICs:

    ring           g hops in one node, g - 1 between nodes (in by one NIC, out by the next)
    balanced tree  g - 1 hops, and half a channel from the second GPU to the first one's NIC
    tree           g - 1 hops
    NVLS           c channels take c + 1 times s of each GPU that heads one

Real machines whose PCIe trees are uneven may do worse than this count.

Source: NVIDIA/nccl 2.30.7, src/graph/search.cc, ncclTopoCompute, ncclTopoCompareGraphs, ncclTopoDupChannels,
ncclTopoSearchTryNvls; src/init.cc, initTransportsRank (channels asked for).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from tokenwire.collectives.nccl.machine import Machine

MAXCHANNELS = 64
_NVLS_HEADS, _DIRECT_HEADS = 32, 8


@dataclass(frozen=True)
class Graph:
    """Channels of one pattern: ``channels`` of ``intra`` GB/s inside a node and ``inter`` GB/s between nodes."""

    pattern: str
    channels: int = 0
    intra: float = 0.0
    inter: float = 0.0


@cache
def graphs(machine: Machine) -> dict[str, Graph]:
    """Return the graph of each of NCCL's algorithms.

    >>> graphs(Machine("hopper"))["Ring"]
    Graph(pattern='ring', channels=12, intra=30.0, inter=30.0)
    >>> graphs(Machine("ampere", nodes=4, nvlink_rate=300e9, nic_rate=25e9))["Ring"]
    Graph(pattern='ring', channels=8, intra=24.0, inter=24.0)
    """
    ring = _search(machine, "ring", 1, MAXCHANNELS // 2)
    same = max(ring.channels, 1)
    # One GPU alone has no second one to balance with.
    tree = _search(machine, "balanced_tree" if machine.ranks_per_node > 1 else "tree", same, same)
    nvls, chain, direct = Graph("nvls"), Graph("tree"), Graph("direct")
    if machine.nvswitch and machine.nvlink and machine.generation.capability >= 90 and machine.ranks_per_node > 1:
        heads = min(_NVLS_HEADS, machine.ranks_per_node)
        nvls = _search(machine, "nvls", heads if machine.nodes == 1 else 1, heads)
    if machine.sharp and machine.nodes > 1:
        chain = _search(machine, "tree", same, same)
        direct = _search(machine, "direct", 1, min(_DIRECT_HEADS, machine.ranks_per_node))
    return {"Ring": ring, "Tree": tree, "PAT": tree, "NVLS": nvls, "NVLSTree": nvls, "CollNetChain": chain,
            "CollNetDirect": direct}  # fmt: skip


def _search(machine: Machine, pattern: str, least: int, most: int) -> Graph:
    speeds = machine.generation.inter if machine.nodes > 1 else machine.generation.intra
    widest = machine.inter if machine.nodes > 1 else machine.intra
    g = machine.ranks_per_node
    total = machine.total * (g / (g - 1) if g > 1 and pattern != "ring" else 1)
    fast = (i for i, s in enumerate(speeds) if s <= widest and s * least <= total)
    best, at = Graph(pattern), next(fast, len(speeds) - 1)
    shapes = ("balanced_tree", "tree") if pattern == "balanced_tree" and machine.generation.capability >= 90 else (pattern,)
    while True:
        best, perfect = _at(machine, shapes, speeds[at], least, most, best)
        wider = at + 1 < len(speeds) and (not best.channels or speeds[at + 1] / best.inter > 0.49)
        if perfect or not wider:
            break
        at += 1
    return _faster(machine, _doubled(machine, best, most), speeds, most)


def _at(
    machine: Machine, shapes: tuple[str, ...], s: float, least: int, most: int, best: Graph
) -> tuple[Graph, bool]:
    """Return the better of ``best`` and what fits at speed s, and whether nothing can be better."""
    for shape in shapes:
        found = Graph(shape, min(_fits(machine, shape, s, s), most), s, s)
        if found.channels >= least and _better(found, best):
            best = found
            if found.channels == most:
                return best, True
        if best.channels * best.inter >= machine.total:
            return best, True
    return best, False


def _better(new: Graph, old: Graph) -> bool:
    if new.pattern == "nvls":
        return new.channels > old.channels or new.channels * new.inter > old.channels * old.inter
    return new.channels * new.intra > old.channels * old.intra


def _doubled(machine: Machine, found: Graph, most: int) -> Graph:
    """Return twice the channels of half the speed, where one SM would have too much to do."""
    if not found.channels or found.pattern == "nvls" or found.intra < 25:
        return found
    if machine.generation.capability > 80 and found.intra < 50 and found.channels > 4:
        return found
    c = min(2 * found.channels, most)
    times = -(-c // found.channels)
    return replace(found, channels=c, intra=found.intra / times, inter=found.inter / times)


def _faster(machine: Machine, best: Graph, speeds: tuple[float, ...], most: int) -> Graph:
    """Return the same channels made faster: rings as a whole, NVLS between nodes, trees inside a node."""
    if not best.channels:
        return best
    at = next((i for i, s in enumerate(speeds) if s <= best.inter), len(speeds) - 1)
    tried = best
    while at > 0:
        at -= 1
        if best.pattern == "ring":
            tried = replace(best, intra=speeds[at], inter=speeds[at])
        elif best.pattern == "nvls" and tried.inter == best.inter and tried.inter < 2 * tried.intra:
            tried = replace(tried, inter=speeds[at])
        elif tried.intra == best.intra and tried.intra < 2 * tried.inter:
            tried = replace(tried, intra=speeds[at])
        else:
            break
        c = min(_fits(machine, tried.pattern, tried.intra, tried.inter), most)
        if c >= best.channels and _better(replace(tried, channels=c), best):
            best = tried = replace(tried, channels=c if best.pattern == "ring" else best.channels)
    return best


def _whole(a: float, b: float) -> int:
    return math.floor(a / b + 1e-6)


def _fits(machine: Machine, pattern: str, intra: float, inter: float) -> int:
    """Return how many channels of these speeds the links bear."""
    g, N, several = machine.ranks_per_node, machine.intra, machine.nodes > 1
    wide = MAXCHANNELS
    if several:
        wide = min(machine.nics_per_node * _whole(machine.inter, inter), g * _whole(machine.generation.pci, inter))
    if g == 1:
        return wide
    if pattern == "nvls":
        return min(_whole(N, intra) - 1, wide, g)
    if pattern == "direct":
        return min(_whole((N / intra - 1) * (g - 1) + 1, 1), wide, g)
    # On PCIe the way to the NIC is the way to the other GPUs.
    hops = g if pattern == "ring" and (not several or not machine.nvlink) else g - 1
    inside = g * _whole(N, intra) // hops
    if several and "tree" in pattern and not machine.nvlink:
        inside = min(inside, _whole(g * N, (g - 1) * intra + inter)) if intra + inter <= N else 0
    elif several and pattern == "balanced_tree" and machine.nics_per_node >= g:
        inside = min(inside, _whole(g * N, (g - 1) * intra + inter / 2))
    return min(inside, wide)
