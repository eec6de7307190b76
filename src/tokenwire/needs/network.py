"""The load of a step on a fabric, reduced to what requirements are derived from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric import Fabric
    from tokenwire.flows import Traffic


@dataclass(frozen=True)
class Leaf:
    """The leaf switch that sends most to the spine: ``nics`` below it, ``up_bytes`` a step."""

    name: str
    nics: int
    up_bytes: int


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
    """Return the load of ``traffic`` on ``fabric``."""
    raise NotImplementedError
