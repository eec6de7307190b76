"""Latency and bandwidth of every algorithm and protocol on a machine, as NCCL's tuner estimates them.

    t = latency + S / (1000 · bandwidth)      t, latency in us; S the bytes of the full tensor; bandwidth in GB/s

With n ranks on N nodes, c channels of B GB/s (``graph``), and the steps of the ring m = 2(n-1) (all_reduce) or n - 1:

    ring       bandwidth c·B·n/m, cut for LL and LL128; latency: base + one hop a step, of which 2(N-1) or N-1 cross nodes
    tree       bandwidth c·B/2, cut by a limit a channel and by size; latency: base + 2(n/N-1) hops inside + 2·log2(N) between
    NVLS       bandwidth from what the switch bears; latency one hop inside, one between (tree: 2·log2(N))

Source: NVIDIA/nccl 2.30.7, src/graph/tuning.cc, ncclTopoTuneModel and ncclTopoGetAlgoTime.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tokenwire.collectives.nccl.constants import ALGORITHMS, PROTOCOLS, tuner
from tokenwire.collectives.nccl.graph import MAXCHANNELS, Graph, graphs
from tokenwire.collectives.nccl.machine import Machine

_GATHERS = ("all_gather", "reduce_scatter")


class Estimate(NamedTuple):
    """One way to carry an operation out: ``latency`` in us, ``bandwidth`` in GB/s of the tensor (not the bus)."""

    latency: float
    bandwidth: float


@cache
def estimates(machine: Machine, op: str) -> dict[tuple[str, str], Estimate]:
    """Return the estimates of an operation by (algorithm, protocol), only of those that can carry it out here.

    >>> e = estimates(Machine("hopper"), "all_reduce")
    >>> e["NVLS", "Simple"]                    # 8 channels of 40 GB/s: 40·0.85·7/8·2·8 = 476 GB/s of the bus, ·n/2(n-1)
    Estimate(latency=25.0, bandwidth=272.0)
    """
    out: dict[tuple[str, str], Estimate] = {}
    if machine.ranks < 2:
        return out
    for a in ALGORITHMS:
        for p in range(len(PROTOCOLS)):
            graph = graphs(machine)[a]
            if not graph.channels or not _can(machine, op, a, p, graph):
                continue
            found = Estimate(round(_latency(machine, op, a, p), 6), round(_bandwidth(machine, op, a, p, graph), 6))
            if found.bandwidth > 0:
                out[a, PROTOCOLS[p]] = found
    return out


def _can(machine: Machine, op: str, a: str, p: int, graph: Graph) -> bool:
    """Return whether the algorithm carries the operation out on this machine by NCCL's defaults."""
    several, simple = machine.nodes > 1, PROTOCOLS[p] == "Simple"
    if op in ("broadcast", "reduce") and a != "Ring":
        return False
    if op in _GATHERS and a not in ("PAT", "Ring", "NVLS", "CollNetDirect"):
        return False
    if a == "PAT":  # one rank a node only
        return op in _GATHERS and simple and machine.nodes == machine.ranks
    if a in ("NVLS", "NVLSTree"):
        # Over several nodes a tree joins the switches, or the network adds.
        reaches = several if a == "NVLSTree" else not several or machine.sharp
        if not simple or graph.channels < 2 or not reaches:
            return False
        # A gather over nodes wants CollNet and a NIC for every rank.
        return not (op in _GATHERS and several) or machine.nics_per_node >= machine.ranks_per_node
    if a.startswith("CollNet"):
        local = 1 < machine.ranks_per_node <= 8
        if a == "CollNetDirect" and not machine.nvswitch:
            return False
        if a == "CollNetDirect" and op in _GATHERS and machine.nics_per_node < machine.ranks_per_node:
            return False
        return machine.sharp and several and simple and (local or machine.ranks_per_node == 1)
    return True


def _bandwidth(machine: Machine, op: str, a: str, p: int, graph: Graph) -> float:
    """Return GB/s of the tensor: the bus bandwidth of the channels with its refinements, over what a rank moves."""
    T, f, c = tuner(), tuner()["factors"], graph.channels
    gen, n, N = machine.gpu.lower(), machine.ranks, machine.nodes
    few = min(N, 3) - 1
    protocol, ppn = PROTOCOLS[p], machine.ranks_per_node
    bw = graph.intra if N <= 2 or a.startswith("CollNet") else graph.inter
    if a in ("NVLS", "NVLSTree"):
        inside = graph.intra * T["nvls_efficiency"][gen] * (c - 1) / c * (2 if op == "all_reduce" else (ppn - 1) / ppn)
        outside = graph.inter * (2 if N <= 2 and a == "NVLSTree" else 1)
        bw = min(inside, outside, T["nvls_tree_per_channel"][gen][few] if a == "NVLSTree" else outside)
    bus = c * bw
    row = gen if N == 1 else "ampere" if machine.maker == "amd" else "volta"
    ll = T["ll_limit"][row][few]
    if a == "Ring" and protocol == "LL":
        bus = min(ll, bus * f["ring_ll"])
    if a == "Ring" and protocol == "LL128":
        bus = min(bus * f["ring_ll128"], c * T["ring_ll128_per_channel"][gen][few])
    if a == "Tree":
        bus = min(bus * f["tree"], c * T["tree_per_channel"][gen][few])
        if protocol == "LL":
            bus = min(bus * f["tree_ll"], ll)
        if protocol == "LL128":
            bus = min(bus * f["tree_ll128_one_node" if N == 1 else "tree_ll128"], c * T["tree_ll128_per_channel"][gen][few])
        if graph.pattern == "tree":
            bus *= f["simple_tree_pattern"]
    if a == "PAT":
        bus *= f["pat"]
    if a == "CollNetDirect":
        if op in _GATHERS:
            bus = ppn * min(graph.intra, graph.inter * f["collnet_direct_gather"])
        else:
            factor = ppn / c
            bus /= factor - (factor - 1) / 2
            bus *= f["collnet_direct_hopper"] if machine.generation.capability >= 90 else 1
    if op in _GATHERS and a != "Ring":
        return bus
    return bus * (n / _steps(op, n) if a in ("Ring", "NVLS", "NVLSTree") else 0.5)


def _steps(op: str, n: int) -> int:
    return 2 * (n - 1) if op == "all_reduce" else n - 1 if op in _GATHERS else n


def _latency(machine: Machine, op: str, a: str, p: int) -> float:
    """Return the microseconds before the first byte counts."""
    T, n, N = tuner(), machine.ranks, machine.nodes
    hops, local = T["hop_latency_us"], machine.ranks // machine.nodes - 1
    inside_by = "nvlink" if machine.nvlink else "pci"
    base, inside = T["base_latency_us"][a][p], hops[inside_by][a][p]
    between = hops["net"]["Tree" if machine.ranks_per_node == 1 else a][p]
    up = N.bit_length() - 1  # floor(log2(N))
    if a == "Ring" and op in ("broadcast", "reduce"):
        hop = hops["net" if N > 1 else inside_by]
        if N == 1 or machine.nics_per_node == 1:  # all channels the same: chunks pipeline
            return float(base + hop["Ring"][p])
        return float(base + n * hop["Tree" if PROTOCOLS[p] == "Simple" else "Ring"][p])
    if a == "Ring":
        post = T["net_overhead_us"][machine.maker] * (3 if PROTOCOLS[p] == "Simple" else 1) if N > 1 else 0
        crossing = 0 if N == 1 else (N - 1) * (2 if op == "all_reduce" else 1)
        return float(base + (_steps(op, n) - crossing) * max(inside, post) + crossing * between)
    if a == "Tree":
        return float(base + 2 * (local * inside + up * between))
    if a == "CollNetDirect":
        arity = T["factors"]["collnet_arity_us"]
        return float(base + 2 * (min(1, local) * inside + local * arity) + between)
    if a == "CollNetChain":
        return float(base + 2 * local * inside + between)
    if a == "NVLS":
        return float(inside + (between if N > 1 else 0))
    if a == "NVLSTree":
        return float(base + inside + 2 * up * between)
    return float(base + up * between / T["factors"]["pat_log"] + n * T["factors"]["pat_linear_us"])


def seconds(machine: Machine, op: str, a: str, protocol: str, size_bytes: int, estimate: Estimate, channels: int) -> float:
    """Return the seconds that NCCL expects of ``size_bytes`` (of the full tensor), on ``channels`` of the communicator."""
    T, f, p = tuner(), tuner()["factors"], protocol
    latency, bandwidth = estimate
    step = (size_bytes >> 6).bit_length() - 1  # floor(log2(S/64)); -1 below 64 B
    if op == "all_reduce" and a == "Tree" and 0 <= step < 23:
        bandwidth *= T["tree_correction"][p][step]
    if op == "all_reduce" and a == "NVLSTree" and 0 <= step < 24 and machine.generation.capability >= 100 and machine.maker != "arm":
        bandwidth *= T["tree_correction"][p][step]
    ring = a == "Ring" and p == "Simple" and machine.nodes > 1 and op == "all_reduce"
    if ring and size_bytes // (channels * machine.ranks) >= 64:
        latency *= f["ring_plateau"] if machine.generation.capability >= 80 else f["ring_plateau_volta"]
    return float((latency + size_bytes / (1000 * bandwidth)) * 1e-6)


@cache
def communicator_channels(machine: Machine, least: int = 0, most: int = MAXCHANNELS) -> int:
    """Return the channels of the communicator: those of the graphs twice, more where few are fast, within the bounds.

    Source: src/graph/connect.cc, ncclTopoPostset.

    >>> communicator_channels(Machine("hopper")), communicator_channels(Machine("hopper", nodes=8))
    (24, 16)
    """
    found = graphs(machine)
    c = min(MAXCHANNELS, 2 * min(found["Ring"].channels, found["Tree"].channels or MAXCHANNELS))
    if machine.generation.capability >= 90 and machine.nodes > 1 and found["Ring"].intra > 45 and c < 16:
        c *= 2
    return max(min(c, most), least, 1)
