"""Several jobs on one fabric: where their ranks are, what they load together, and who shares the worst links.

Jobs have whole nodes. ``packed``: one job after the other; ``interleaved``: node after node the jobs take turns, so that they
share leaves and spines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.errors import InputError, unknown
from tokenwire.fabric import TIERS, Fabric
from tokenwire.fabric.fabric import Ints
from tokenwire.flows.traffic import Traffic

if TYPE_CHECKING:
    import polars as pl

PLACEMENTS = ("packed", "interleaved")


def placed(worlds: Sequence[int], gpus_per_node: int, placement: str = "packed") -> list[Ints]:
    """Return the GPUs of each job's ranks.

    >>> [gpus.tolist() for gpus in placed([4, 2], 2, "interleaved")]
    [[0, 1, 4, 5], [2, 3]]
    """
    if placement not in PLACEMENTS:
        raise unknown("placement", placement[:80], PLACEMENTS, where="--placement")
    nodes = [-(-world // gpus_per_node) for world in worlds]
    job = np.repeat(np.arange(len(nodes)), nodes)
    if placement == "interleaved":
        turn = np.concatenate([np.arange(many) for many in nodes])
        job = job[np.lexsort((job, turn))]
    out = []
    for i, world in enumerate(worlds):
        own = np.flatnonzero(job == i).astype(np.int64)
        out.append((own[:, None] * gpus_per_node + np.arange(gpus_per_node)).reshape(-1)[:world])
    return out


@dataclass(frozen=True)
class Jobs:
    """Jobs by name, each a step's traffic on the same fabric."""

    names: tuple[str, ...]
    traffics: tuple[Traffic, ...]

    @property
    def fabric(self) -> Fabric:
        """Return the fabric that they share."""
        return self.traffics[0].fabric

    @cached_property
    def link_bytes(self) -> Ints:
        """Return the bytes on each link by job, shape (jobs, links), one step of each."""
        return np.stack([one.link_bytes for one in self.traffics])

    @cached_property
    def links(self) -> pl.DataFrame:
        """Return every link as ``Traffic.links`` does, with ``jobs``: how many use it, and ``bytes_i`` of job i."""
        import polars as pl

        load = self.link_bytes
        own = {f"bytes_{i}": pl.Series(load[i], dtype=pl.Int64) for i in range(len(self.names))}
        table = self.fabric.table().with_columns(
            bytes=pl.Series(load.sum(axis=0), dtype=pl.Int64), jobs=pl.Series((load > 0).sum(axis=0), dtype=pl.Int64), **own
        )
        return table.select("link", "src", "dst", "tier", "bytes", "rate", (pl.col("bytes") / pl.col("rate")).alias("seconds"),
                            "jobs", *own)  # fmt: skip

    def tiers(self) -> list[dict[str, Any]]:
        """Return for each tier: bytes of each job, links that several use, the busiest of them and how much each job has there."""
        load, fabric, out = self.link_bytes, self.fabric, []
        for code, tier in enumerate(TIERS):
            here = np.flatnonzero(fabric.tier == code)
            if not here.size:
                continue
            own = load[:, here]
            shared = (own > 0).sum(axis=0) > 1
            row: dict[str, Any] = {
                "tier": tier, "links": int(here.size), "bytes": own.sum(axis=1).tolist(), "shared_links": int(shared.sum()),
                "busiest_shared": "", "busiest_shared_bytes": [0] * len(self.names),
            }  # fmt: skip
            if shared.any():
                most = int(np.flatnonzero(shared)[(own.sum(axis=0) / fabric.rate[here])[shared].argmax()])
                link = int(here[most])
                row["busiest_shared"] = f"{fabric.device_name(int(fabric.src[link]))}-{fabric.device_name(int(fabric.dst[link]))}"
                row["busiest_shared_bytes"] = own[:, most].tolist()
            out.append(row)
        return out


def jobs(names: Sequence[str], traffics: Sequence[Traffic]) -> Jobs:
    """Return jobs that share a fabric. Raises ``InputError`` where two want one GPU."""
    taken = np.concatenate([one.gpus(np.arange(one.plan.world)) for one in traffics])
    if np.unique(taken).size < taken.size:
        raise InputError("two jobs on one GPU", rule="each GPU has one job")
    return Jobs(tuple(names), tuple(traffics))
