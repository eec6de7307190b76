"""The PCIe tree of a node, as NCCL's topology XML has it: who is under which switch and CPU, and how wide each link is.

Vertices are GPUs, then NICs (one a port), then what joins them: PCIe switches and CPUs. Each but a CPU has one link up, of its own
PCIe rate; CPUs are joined each to each at the rate that NCCL gives that kind of CPU. NICs are put in such an order that the GPUs
have the nearest ones (GPU i of g has the NICs from i·k/g on).

Source: NVIDIA/nccl 2.30.7, src/graph/xml.cc (the file), src/graph/topo.cc, ncclTopoGetInterCpuBw and ncclTopoAddCpu, src/graph/topo.h
(rates between CPUs); PCI Express base specification (rates of lanes).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenwire.fabric.fabric import Floats, Ints
from tokenwire.fabric.nccl_xml import pci_rate, read_system
from tokenwire.fabric.safe_xml import Element

_INTEL = ((0xCF, 40e9), (0x8F, 22e9), (0x55, 10e9), (0, 6e9))
"""Bytes/s between Intel CPUs of family 6, from a model on: newest first."""
_BETWEEN = {"ppc64": 32e9, "arm64": 6e9, "AuthenticAMD": 16e9, "CentaurHauls": 6e9, "  Shanghai  ": 6e9}


@dataclass(frozen=True)
class Tree:
    """``parent`` of each vertex but the CPUs, which are the last, and ``up``, bytes/s of its link there.

    ``cpus`` of them, ``cpu_rate`` bytes/s between them; the first vertices are g GPUs, then k NICs.
    """

    parent: tuple[int, ...]
    up: tuple[float, ...]
    cpus: int
    cpu_rate: float
    g: int
    k: int

    @cached_property
    def links(self) -> tuple[Ints, Ints, Floats]:
        """Return the directed links: from, to (vertices), bytes/s. Links 2v and 2v+1 are v's up and down, the rest CPU to CPU."""
        ends = np.array([*enumerate(self.parent), *self._pairs], dtype=np.int64).reshape(-1, 2)
        rate = np.array([*self.up, *[self.cpu_rate] * len(self._pairs)])
        return ends.reshape(-1), ends[:, ::-1].reshape(-1), np.repeat(rate, 2)

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        return [(len(self.parent) + a, len(self.parent) + b) for b in range(self.cpus) for a in range(b)]

    def path(self, a: int, b: int) -> list[int]:
        """Return the links from one vertex to another, in order."""
        above, below = self._chain(a), self._chain(b)
        common = next((v for v in above if v in below), None)
        if common is not None:
            return [2 * v for v in above[: above.index(common)]] + [2 * v + 1 for v in below[: below.index(common)][::-1]]
        ends = above[-1], below[-1]
        cross = 2 * (len(self.parent) + self._pairs.index((min(ends), max(ends)))) + (ends[0] > ends[1])
        return [2 * v for v in above[:-1]] + [cross] + [2 * v + 1 for v in below[:-1][::-1]]

    def _chain(self, v: int) -> list[int]:
        out = [v]
        while out[-1] < len(self.parent):
            out.append(self.parent[out[-1]])
        return out

    def kind_of_path(self, a: int, b: int) -> str:
        """Return NCCL's name for a way: PIX (one switch), PXB (several), PHB (over the CPU), SYS (between CPUs)."""
        above, below = self._chain(a), self._chain(b)
        common = next((v for v in above if v in below), -1)
        if common < 0:
            return "SYS"
        return "PHB" if common >= len(self.parent) else "PIX" if len(self.path(a, b)) == 2 else "PXB"

    def first(self, g: int, k: int) -> Tree:
        """Return the tree with the first g GPUs and k NICs alone."""
        keep = [*range(g), *range(self.g, self.g + k), *range(self.g + self.k, len(self.parent))]
        number = {v: i for i, v in enumerate([*keep, *range(len(self.parent), len(self.parent) + self.cpus)])}
        return Tree(tuple(number[self.parent[v]] for v in keep), tuple(self.up[v] for v in keep), self.cpus, self.cpu_rate, g, k)

    def nics_of(self, gpu: int) -> list[int]:
        """Return a GPU's NICs, by their numbers among the NICs."""
        several = max(1, self.k // self.g)
        return [gpu * self.k // self.g + i for i in range(several)]

    @property
    def nic_path(self) -> str:
        """Return NCCL's name for the farthest way from a GPU to a NIC of its own."""
        names = ("PIX", "PXB", "PHB", "SYS")
        return max((self.kind_of_path(i, self.g + nic) for i in range(self.g) for nic in self.nics_of(i)), key=names.index)


def read_tree(path: str) -> Tree:
    """Return the tree of a file of NCCL's. Raises ``InputError`` for a file that is none."""
    root = read_system(path)
    # What hangs where, and the rate of its link: a place below is a number of a PCIe switch, or of a CPU as -1, -2 ...
    gpus: list[tuple[int, float]] = []
    nics: dict[tuple[str, str, str], tuple[int, float]] = {}
    switches: list[tuple[int, float]] = []

    def walk(element: Element, above: int, rate: float) -> None:
        for child in element.children:
            if child.name == "pci":
                ends = [one for one in _devices(child) if one.name in ("gpu", "net")]
                if len(ends) == 1:
                    walk(child, above, pci_rate(child))
                elif ends:
                    switches.append((above, pci_rate(child)))
                    walk(child, len(switches) - 1, pci_rate(child))
            elif child.name == "gpu":
                gpus.append((above, rate))
            elif child.name == "net":
                key = (child.attributes.get("dev", ""), child.attributes.get("name", ""), child.attributes.get("port", ""))
                nics.setdefault(key, (above, rate))
            else:
                walk(child, above, rate)

    cpus = [one for one in root.children if one.name == "cpu"] or [root]
    for i, cpu in enumerate(cpus):
        walk(cpu, -1 - i, pci_rate(None))
    return _ordered(gpus, list(nics.values()), switches, len(cpus), _between(cpus[0]))


def _devices(element: Element) -> list[Element]:
    return [one for child in element.children for one in (child, *_devices(child))]


def _between(cpu: Element) -> float:
    """Return bytes/s between CPUs, as NCCL counts them."""
    arch, vendor = cpu.attributes.get("arch", "x86_64"), cpu.attributes.get("vendor", "GenuineIntel")
    for name in (arch, vendor):
        if name in _BETWEEN:
            return _BETWEEN[name]
    try:
        model = int(cpu.attributes.get("modelid", "0")) if cpu.attributes.get("familyid") == "6" else 0
    except ValueError:
        model = 0
    return next(rate for first, rate in _INTEL if model >= first)


def _ordered(
    gpus: list[tuple[int, float]], nics: list[tuple[int, float]], switches: list[tuple[int, float]], cpus: int, between: float
) -> Tree:
    """Return the tree with the NICs in such an order that every GPU's own are the nearest left."""
    g, k = len(gpus), len(nics)
    first_cpu = g + k + len(switches)

    def tree(order: list[int]) -> Tree:
        rows = [*gpus, *(nics[i] for i in order), *switches]
        above = tuple(g + k + place if place >= 0 else first_cpu - place - 1 for place, _ in rows)
        return Tree(above, tuple(rate for _, rate in rows), cpus, between, g, k)

    plain, left, order = tree(list(range(k))), list(range(k)), []
    for slot in range(k):
        gpu = slot * g // k
        nearest = min(left, key=lambda nic: (len(plain.path(gpu, g + nic)), nic))
        left.remove(nearest)
        order.append(nearest)
    return tree(order)
