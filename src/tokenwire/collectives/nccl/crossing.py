"""What truly crosses each link: bytes of one call over a NIC and over a GPU's NVLink, each way, and the bound they set.

Bus bandwidth is a way of counting: it is what a link carries only where a ring joins equals. With S bytes of the full
tensor, n ranks on N nodes of g, k NICs a node that its ranks drive, the data that leave, on average over equal links:

    algorithm   through a node's NICs together      through a GPU's NVLink
    ring        m/n · S, m the steps of a ring      m/n · S · (g-1)/g, in one node m/n · S
    tree        2(N-1)/N · S                        2S · (g-1)/g
    NVLS        0 (one node)                        S (the switch reads all) + S/g (a GPU writes the sum of its part)
    NVLS tree   2(N-1)/N · S                        the same
    CollNet     S (the network adds)                2S · (g-1)/g
    PAT         (n-1)/n · S                         0 (one rank a node)

On two nodes a tree sends S through a node's NICs where a ring sends 2(n-1)/n · S: its busbw may be 2(n-1)/n times the
NICs' rate. Under NVLS a link carries S(1 + 1/g) where busbw counts 2(g-1)/g · S: up to 2(g-1)/(g+1) times the link.

Source: NVIDIA/nccl, src/device/all_reduce.h (runRing, runTreeSplit, NCCL_ALGO_NVLS, NCCL_ALGO_NVLS_TREE).
"""

from __future__ import annotations

from typing import NamedTuple

from tokenwire.collectives.nccl.machine import Machine
from tokenwire.collectives.nccl.protocols import link_bytes

_GATHERS = ("all_gather", "reduce_scatter")


class Crossing(NamedTuple):
    """One kind of link: ``data_bytes`` that leave by one of them each way in a call, ``link_bytes`` with the protocol's flags.

    ``rate`` is its data-sheet rate in bytes/s, ``formula`` how the data came about.
    """

    link: str
    data_bytes: float
    link_bytes: float
    rate: float
    formula: str


def crossings(machine: Machine, op: str, algorithm: str, protocol: str, size_bytes: int) -> tuple[Crossing, ...]:
    """Return what crosses a NIC and a GPU's way to its neighbours; links that carry nothing are left out.

    >>> machine = Machine("hopper", nodes=2, nics_per_node=1, nic_rate=12.5e9)
    >>> [(c.link, c.data_bytes) for c in crossings(machine, "all_reduce", "Tree", "Simple", 1000)]
    [('NIC', 1000.0), ('NVLink of a GPU', 1750.0)]
    >>> crossings(machine, "all_reduce", "Ring", "Simple", 1000)[0].data_bytes
    1875.0
    """
    out = []
    outside, outside_by = _outside(machine, op, algorithm)
    inside, inside_by = _inside(machine, op, algorithm)
    k = max(machine.nics_driven, 1)
    if outside:
        by = f"{outside_by} over {k} NICs" if k > 1 else outside_by
        out.append(_crossing("NIC", outside * size_bytes / k, protocol, machine.nic_rate, by))
    if inside:
        name, rate = ("NVLink of a GPU", machine.nvlink_rate) if machine.nvlink else ("PCIe of a GPU", _PCIE[machine.gpu.lower()])
        out.append(_crossing(name, inside * size_bytes, protocol, rate, inside_by))
    return tuple(out)


_PCIE = {"volta": 15.75e9, "ampere": 31.5e9, "hopper": 63e9, "blackwell": 63e9}
"""Bytes/s of 16 lanes one way: 8, 16 or 32 GT/s with 128b/130b. Source: PCI Express base specification, 3.0 to 5.0."""


def bound_seconds(machine: Machine, op: str, algorithm: str, protocol: str, size_bytes: int) -> float:
    """Return the seconds that the busiest kind of link needs at its data-sheet rate: no call is faster.

    >>> round(bound_seconds(Machine("hopper"), "all_reduce", "NVLS", "Simple", 8 << 30) * 1e3, 2)   # 9/8 · 8 GiB at 450 GB/s
    21.47
    """
    found = crossings(machine, op, algorithm, protocol, size_bytes)
    return max((crossing.link_bytes / crossing.rate for crossing in found), default=0.0)


def _crossing(link: str, data: float, protocol: str, rate: float, formula: str) -> Crossing:
    whole = 1 << 30  # the share of flags, from a size that every line divides well enough
    return Crossing(link, data, data * link_bytes(protocol, whole) / whole, rate, formula)


def _ring(op: str, n: int) -> tuple[float, str]:
    if op == "all_reduce":
        return 2 * (n - 1) / n, "2(n-1)/n·S"
    return ((n - 1) / n, "(n-1)/n·S") if op in _GATHERS else (1.0, "S")


def _outside(machine: Machine, op: str, algorithm: str) -> tuple[float, str]:
    """Return what leaves a node, in shares of S."""
    n, N = machine.ranks, machine.nodes
    if N == 1:
        return 0.0, ""
    if algorithm in ("Ring", "PAT"):
        return _ring(op, n)
    if algorithm in ("Tree", "NVLSTree"):
        return 2 * (N - 1) / N, "2(N-1)/N·S"
    return (1.0, "S") if op == "all_reduce" else ((N - 1) / N, "(N-1)/N·S")


def _inside(machine: Machine, op: str, algorithm: str) -> tuple[float, str]:
    """Return what leaves a GPU towards its node, in shares of S."""
    g = machine.ranks_per_node
    if g == 1 or algorithm == "PAT":
        return 0.0, ""
    if algorithm == "Ring":
        share, formula = _ring(op, machine.ranks)
        return (share * (g - 1) / g, f"{formula}·(g-1)/g") if machine.nodes > 1 else (share, formula)
    if algorithm in ("NVLS", "NVLSTree"):
        return {"all_reduce": (1 + 1 / g, "S + S/g"), "all_gather": (1 / g, "S/g")}.get(op, (1.0, "S"))
    return (2 * (g - 1) / g, "2S·(g-1)/g") if op == "all_reduce" else ((g - 1) / g, "(g-1)/g·S")
