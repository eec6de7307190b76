"""The load of a step on a fabric, reduced to what requirements are derived from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenwire.fabric import TIERS, routes

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric import Fabric
    from tokenwire.flows import Traffic


_INSIDE = ("nvlink", "pcie")
"""Tiers of links inside a node."""
_FLOWS = 4096
"""Flows that are routed at a time, largest first, until one goes over a spine."""


@dataclass(frozen=True)
class Leaf:
    """The leaf switch that sends most to the spine: ``nics`` below it, ``up_bytes`` a step."""

    name: str
    nics: int
    up_bytes: int


@dataclass(frozen=True)
class Spine:
    """The links between leaves and spines: bytes of the busiest under ``routing``, bytes/s of it, bytes of the largest flow over any.

    ``oversubscription`` is that of the fabric: capacity down over capacity up at a leaf.
    """

    busiest: int
    rate: float
    largest_flow: int
    routing: str
    oversubscription: float


@dataclass(frozen=True)
class Network:
    """Bytes a step and rates in bytes/s.

    ``nic_bytes`` is what ``busiest_nic`` sends, ``nics`` how many send at all; ``bisection_bytes`` what goes from one half
    of the nodes to the other, the direction with more; ``leaf`` is None where the fabric has no leaves.
    """

    transfers: pl.DataFrame
    gpus_per_node: int
    peak_flops: float
    nic_rate: float
    nic_bytes: int
    nics: int
    busiest_nic: str
    bisection_bytes: int
    leaf: Leaf | None
    spine: Spine | None = None


def bisection_bytes(transfers: pl.DataFrame, gpus_per_node: int, nodes: int) -> int:
    """Return the bytes from the first half of the nodes to the second or back, whichever are more; 0 for one node.

    >>> import polars as pl
    >>> there = pl.DataFrame({"src": [0, 5, 6], "dst": [4, 1, 7], "bytes": [10, 30, 99]})
    >>> bisection_bytes(there, 4, 2)
    30
    """
    import polars as pl

    first = gpus_per_node * (nodes // 2)
    if not first:
        return 0
    src, dst = pl.col("src") < first, pl.col("dst") < first
    there = transfers.filter(src & ~dst)["bytes"].sum()
    back = transfers.filter(~src & dst)["bytes"].sum()
    return int(max(there, back))


def network_of(traffic: Traffic, fabric: Fabric) -> Network:
    """Return the load of ``traffic`` on ``fabric``, which need not have leaves (a torus has none)."""
    kinds, load = _kinds(fabric), traffic.link_bytes
    outside = np.isin(fabric.tier, [TIERS.index(tier) for tier in TIERS if tier not in _INSIDE])
    # What leaves a node leaves by a NIC, or in a torus by the GPU itself.
    leaving = outside & np.isin(kinds[fabric.src], ("nic", "gpu"))
    by_nic = np.bincount(fabric.src[leaving], weights=load[leaving], minlength=fabric.devices)
    busiest = int(by_nic.argmax()) if by_nic.size else 0
    return Network(
        transfers=traffic.transfers, gpus_per_node=fabric.gpus_per_node, peak_flops=fabric.peak_flops,
        nic_rate=fabric.nic_rate, nic_bytes=int(by_nic[busiest]), nics=int(np.count_nonzero(by_nic)),
        busiest_nic=fabric.device_name(busiest),
        bisection_bytes=bisection_bytes(traffic.transfers, fabric.gpus_per_node, fabric.nodes),
        leaf=_leaf(fabric, kinds, load), spine=_spine(traffic, fabric, load),
    )  # fmt: skip


def _spine(traffic: Traffic, fabric: Fabric, load: npt.NDArray[np.int64]) -> Spine | None:
    links = np.flatnonzero(fabric.tier == TIERS.index("spine"))
    if not links.size or not load[links].any():
        return None
    busiest = links[int(load[links].argmax())]
    return Spine(int(load[busiest]), float(fabric.rate[busiest]), _largest_flow(traffic, fabric), fabric.facts.routing,
                 fabric.facts.oversubscription)  # fmt: skip


def over_spines(traffic: Traffic, fabric: Fabric) -> dict[str, int]:
    """Return the bytes that go over spines, by the group that sends them (``dp``, ``pp`` ...)."""
    import polars as pl

    g = fabric.gpus_per_node
    out: dict[str, int] = {}
    leaving = traffic.transfers.filter(pl.col("src") // g != pl.col("dst") // g)
    for (group,), part in leaving.group_by("group"):
        src, dst, size = (part[name].to_numpy() for name in ("src", "dst", "bytes"))
        offsets, links = routes(fabric, src, dst)
        over = np.add.reduceat((fabric.tier[links] == TIERS.index("spine")).astype(np.int64), offsets[:-1])
        out[str(group)] = int(size[over > 0].sum())
    return out


def _largest_flow(traffic: Traffic, fabric: Fabric) -> int:
    """Return the bytes of the largest flow (between two GPUs, in one queue pair) that goes over a spine."""
    import polars as pl

    g = fabric.gpus_per_node
    pairs = (
        traffic.transfers.filter(pl.col("src") // g != pl.col("dst") // g)
        .group_by("src", "dst").agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    )  # fmt: skip
    src, dst, size = (pairs[name].to_numpy() for name in ("src", "dst", "bytes"))
    for first in range(0, len(pairs), _FLOWS):
        part = slice(first, first + _FLOWS)
        offsets, links = routes(fabric, src[part], dst[part])
        over = np.add.reduceat((fabric.tier[links] == TIERS.index("spine")).astype(np.int64), offsets[:-1])
        if over.any():
            return int(size[part][int(over.astype(bool).argmax())]) // fabric.facts.queue_pairs
    return 0


def _kinds(fabric: Fabric) -> npt.NDArray[np.str_]:
    return np.repeat([kind for kind, _ in fabric.kinds], [count for _, count in fabric.kinds])


def _leaf(fabric: Fabric, kinds: npt.NDArray[np.str_], load: npt.NDArray[np.int64]) -> Leaf | None:
    """Return the leaf that sends most upwards (of equals the first), None where there are no leaves."""
    source, target = kinds[fabric.src], kinds[fabric.dst]
    into = (source == "nic") & (target == "leaf")
    if not into.any():
        return None
    upwards = (source == "leaf") & (target == "spine")
    nics = np.bincount(fabric.dst[into], minlength=fabric.devices)
    up = np.bincount(fabric.src[upwards], weights=load[upwards], minlength=fabric.devices)
    most = int(np.where(nics > 0, up, -1).argmax())
    return Leaf(fabric.device_name(most), int(nics[most]), int(up[most]))
