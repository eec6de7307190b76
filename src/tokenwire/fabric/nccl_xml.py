"""A node as NCCL sees it: the topology XML that NCCL writes with NCCL_TOPO_DUMP_FILE and reads with NCCL_TOPO_FILE.

It describes one node: CPUs with PCIe devices below them, GPUs (``gpu``: dev, sm) with their NVLinks (``nvlink``: target, count,
tclass) and network ports (``net``: dev, speed in Mb/s). The network between nodes is not in it: that comes from the preset.

Rates: an NVLink has 25 GB/s of one direction up to Hopper and 50 GB/s since Blackwell (data sheets; NCCL reckons with what is
left after headers: 20 to 20.6 and 40.1, src/graph/topo.h). Without NVLinks the GPUs' PCIe links, lanes times rate a lane.

Source: NCCL, src/graph/xml.cc and src/graph/topo.cc (ncclTopoAddGpu, ncclTopoAddNvLinks, ncclTopoAddNet).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tokenwire.errors import InputError
from tokenwire.fabric.safe_xml import Element, read_xml
from tokenwire.files import read_limited

LIMIT = 64 * 2**20
"""Bytes of the largest file that is read."""
MOST_GPUS, MOST_PORTS = 1024, 1024
NVSWITCH = "0x068000"
"""PCI class of a bridge: the target of links to an NVSwitch."""
GPU_OF = {70: "V100", 80: "A100", 86: "A40", 89: "L40S", 90: "H100", 100: "B200", 103: "B300"}


def node_facts(path: str) -> dict[str, Any]:
    """Return what the file says of a node, as values of ``ClusterFacts``. Raises ``InputError`` for another file."""
    where = f"topology file {path!r}"
    root = read_system(path)
    gpus = [(pci, one) for pci, one in _below(root, None) if one.name == "gpu"]
    ports = {(one.attributes.get("dev", ""), one.attributes.get("name", ""), one.attributes.get("port", "")): one
             for _, one in _below(root, None) if one.name == "net"}  # fmt: skip
    if not gpus:
        raise InputError(where, rule="has no <gpu>")
    if not ports:
        raise InputError(where, rule="has no <net>: ranks without a NIC", nearest="NCCL_TOPO_DUMP_FILE of a run with the network")
    if len(gpus) > MOST_GPUS or len(ports) > MOST_PORTS:
        raise InputError(f"{len(gpus):,} GPUs and {len(ports):,} ports", where=where, rule=f"at most {MOST_GPUS:,} of each")
    seen: dict[str, int] = {}
    for _, gpu in gpus:
        dev = gpu.attributes.get("dev", "")
        if dev in seen:
            raise InputError(f"gpu dev={dev}"[:60], where=f"{where}, line {gpu.line:,}", rule=f"is there twice (first line {seen[dev]:,})")
        seen[dev] = gpu.line
    speeds = {_number(one, "speed", where) for one in ports.values()}
    sm = max(_number(one, "sm", where, least=0, default="0") for _, one in gpus)
    out: dict[str, Any] = {
        "gpus_per_node": len(gpus), "nics_per_node": len(ports), "nic_rate": min(speeds) * 1e6 / 8, **_domain(gpus, sm, where),
    }  # fmt: skip
    if int(sm) in GPU_OF:
        out["gpu"] = GPU_OF[int(sm)]
    return out


def read_system(path: str) -> Element:
    """Return the root of the file. Raises ``InputError`` for a file that is not NCCL's topology."""
    where = f"topology file {path!r}"
    root = read_xml(read_limited(path, limit=LIMIT, what="topology file"), where)
    if root.name != "system":
        raise InputError(where, rule=f"is not NCCL's topology (its root is <{root.name[:40]}>, not <system>)")
    return root


def _domain(gpus: list[tuple[Element | None, Element]], sm: int, where: str) -> dict[str, Any]:
    links = [sum(_number(one, "count", where) for one in gpu.children if one.name == "nvlink") for _, gpu in gpus]
    if len(gpus) == 1:
        return {"domain": "none"}
    if min(links) > 0:
        return {"domain": "nvlink", "domain_rate": min(links) * (50e9 if sm >= 100 else 25e9)}
    rates = [pci_rate(pci) for pci, _ in gpus]
    return {"domain": "pcie", "domain_rate": min(rates)}


def pci_rate(pci: Element | None) -> float:
    """Return the bytes/s of a PCIe link: lanes times transfers a second, a bit each, less the line code.

    >>> round(pci_rate(Element("pci", {"link_speed": "16.0 GT/s PCIe", "link_width": "16"})) / 1e9, 1)
    31.5
    """
    attributes = pci.attributes if pci is not None else {}
    try:
        speed, width = float(attributes.get("link_speed", "").split()[0]), int(attributes.get("link_width", ""))
    except (ValueError, IndexError):
        speed, width = 8.0, 16
    if not (0 < speed < 1000 and 0 < width <= 64):
        speed, width = 8.0, 16
    # 8b/10b up to 5 GT/s, 128b/130b from 8 GT/s on (PCI Express base specification).
    return width * speed * 1e9 / 8 * (0.8 if speed <= 5 else 128 / 130)


def _below(element: Element, pci: Element | None) -> Iterator[tuple[Element | None, Element]]:
    for child in element.children:
        yield pci, child
        yield from _below(child, child if child.name == "pci" else pci)


def _number(element: Element, name: str, where: str, least: int = 1, default: str = "") -> int:
    text = element.attributes.get(name, default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (least <= value < 1e9):
        raise InputError(f"{name} = {text!r} of <{element.name}>"[:80], where=f"{where}, line {element.line:,}",
                         rule=f"must be a number of at least {least}")  # fmt: skip
    return int(value)
