"""The machine as NCCL sees it: ranks on nodes, and GB/s of the paths that a channel can take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenwire.collectives.nccl.constants import Generation, generation
from tokenwire.errors import InputError

CPUS = ("intel", "amd", "arm")
NIC_PATHS = ("PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Ways from a GPU to its NIC, nearest first: one PCIe switch, several, by the CPU's NVLink, over another GPU (PXN), through the
CPU, between CPUs. Source: NVIDIA/nccl 2.30.7, src/include/graph.h, PATH_*."""
MOST_RANKS = 1 << 24
MOST_PER_NODE = 576


@dataclass(frozen=True)
class Machine:
    """``nodes`` (NVLink domains) of ``ranks_per_node`` GPUs each.

    Rates in bytes/s of one direction by the data sheet: ``nvlink_rate`` of one GPU into its domain (0: GPUs meet at PCIe),
    ``nic_rate`` of one NIC, of which a node has ``nics_per_node`` in reach of these ranks. ``nvswitch``: the domain has a
    switch, which can add and copy from Hopper on. ``sharp``: the network's switches add (CollNet). ``cpu``: who made it. ``nic_path``: the farthest way from a GPU to
    the NIC that its channels use, one of ``NIC_PATHS``.

    >>> Machine("hopper", nodes=2).nvlink                # 18 links of 25 GB/s; NCCL counts 20.6 GB/s each
    370.8
    """

    gpu: str
    nodes: int = 1
    ranks_per_node: int = 8
    nvlink_rate: float = 450e9
    nics_per_node: int = 8
    nic_rate: float = 50e9
    nvswitch: bool = True
    sharp: bool = False
    cpu: str = ""
    nic_path: str = "PXB"

    def __post_init__(self) -> None:
        """Check every part; raises ``InputError``."""
        generation(self.gpu)
        if not 1 <= self.ranks_per_node <= MOST_PER_NODE:
            raise InputError(f"{self.ranks_per_node:,} ranks a node", rule=f"a node has 1 to {MOST_PER_NODE} ranks")
        if self.nodes < 1 or self.ranks > MOST_RANKS:
            raise InputError(f"{self.nodes:,} nodes", rule=f"a group has 1 to {MOST_RANKS:,} ranks")
        if self.nodes > 1 and (self.nics_per_node < 1 or not 0 < self.nic_rate < 1e15):
            raise InputError(f"{self.nics_per_node:,} NICs of {self.nic_rate:g} B/s", rule="nodes need a NIC to meet")
        if not 0 <= self.nvlink_rate < 1e15:
            raise InputError(f"an NVLink rate of {self.nvlink_rate:g} B/s", rule="must be zero or more")
        if self.cpu and self.cpu not in CPUS:
            raise InputError(f"CPU {self.cpu[:80]!r}", rule=f"known are {', '.join(CPUS)}")
        if self.nic_path not in NIC_PATHS:
            raise InputError(f"path to the NIC {self.nic_path[:80]!r}", rule=f"known are {', '.join(NIC_PATHS)}")

    @property
    def ranks(self) -> int:
        """Return the ranks of the group."""
        return self.nodes * self.ranks_per_node

    @property
    def generation(self) -> Generation:
        """Return what NCCL knows of the GPU."""
        return generation(self.gpu)

    @property
    def nvlink(self) -> float:
        """Return GB/s of a GPU's NVLinks as NCCL counts them (0: none)."""
        return round(self.nvlink_rate / 1e9 * self.generation.link / self.generation.link_nominal, 3)

    @property
    def intra(self) -> float:
        """Return GB/s out of a GPU towards the others of its node."""
        return self.nvlink or self.generation.pci

    @property
    def inter(self) -> float:
        """Return GB/s of the path from a GPU to its NIC and out."""
        return min(self.nic_rate / 1e9, self.generation.pci)

    @property
    def nics_driven(self) -> int:
        """Return the NICs of a node that its ranks drive: no more than the PCIe links of their GPUs fill.

        A channel leaves by a NIC near its GPU, and the search stops when the GPU's own link is full: a NIC beyond it carries
        nothing. Source: NVIDIA/nccl 2.30.7, src/graph/search.cc, ncclTopoSelectNets and ncclTopoFollowPath.

        >>> Machine("hopper", nodes=2, ranks_per_node=1, nics_per_node=4).nics_driven       # 48 GB/s of PCIe, 50 of the NIC
        1
        >>> Machine("hopper", nodes=2, ranks_per_node=1, nics_per_node=4, nic_rate=25e9).nics_driven
        2
        """
        return min(self.nics_per_node, math.ceil(self.ranks_per_node * self.generation.pci * 1e9 / self.nic_rate))

    @property
    def total(self) -> float:
        """Return GB/s of a GPU's widest way out."""
        return max(self.generation.pci, self.nvlink)

    @property
    def maker(self) -> str:
        """Return who made the CPU (that of the generation's usual server where not told)."""
        return self.cpu or self.generation.cpu
