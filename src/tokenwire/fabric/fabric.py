"""A fabric: devices and directed links as columns, and who knows the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError, closest

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric.facts import ClusterFacts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Routes = tuple[Ints, Ints]

TIERS = ("nvlink", "pcie", "leaf", "spine", "core", "torus")
"""Tiers of links, named by their upper end: NIC to leaf is ``leaf``, leaf to spine ``spine``, spine to core ``core``."""


class Router(Protocol):
    """Finds the way between GPUs."""

    def __call__(self, src: Ints, dst: Ints, seed: int, pxn: bool) -> Routes:
        """Return (offsets, link ids): the links of pair i are ``ids[offsets[i]:offsets[i + 1]]``, in order."""


@dataclass(frozen=True)
class Fabric:
    """A cluster's devices and links.

    ``kinds`` are (name, how many) in the order of device numbers: GPUs are 0 to world - 1. Links have ``src`` and ``dst``
    (devices), ``rate`` (bytes/s), ``latency`` (s), ``tier`` (index into ``TIERS``), all directed. ``nic_of`` is each GPU's
    (first) NIC as a device. A GPU and its NIC have no link between them: a route goes from the one to the other for free.
    """

    name: str
    facts: ClusterFacts
    kinds: tuple[tuple[str, int], ...]
    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    rate: Floats
    latency: Floats
    tier: npt.NDArray[np.int8]
    nic_of: Ints
    router: Router
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self.facts.nodes

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs of one node."""
        return self.facts.gpus_per_node

    @property
    def world(self) -> int:
        """Return the number of GPUs."""
        return self.nodes * self.gpus_per_node

    @property
    def nic_rate(self) -> float:
        """Return the rate of one NIC in bytes/s."""
        return self.facts.nic_rate

    @property
    def peak_flops(self) -> float:
        """Return the dense bf16 peak of one GPU in FLOP/s."""
        return self.facts.peak_flops

    @cached_property
    def starts(self) -> dict[str, int]:
        """Return the number of the first device of each kind."""
        out, at = {}, 0
        for kind, count in self.kinds:
            out[kind] = at
            at += count
        return out

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return sum(count for _, count in self.kinds)

    @property
    def links(self) -> int:
        """Return the number of directed links."""
        return int(self.src.size)

    @cached_property
    def attachments(self) -> tuple[Ints, Ints]:
        """Return which GPU may use which NIC, as two columns of devices."""
        several = max(1, self.facts.nics_per_node // self.gpus_per_node) if "nic" in self.starts else 1
        gpus = np.repeat(np.arange(self.world, dtype=np.int64), several)
        return gpus, self.nic_of[gpus] + np.tile(np.arange(several, dtype=np.int64), self.world)

    def device_name(self, device: int) -> str:
        """Return a device's name: its kind and its number among them, from 0."""
        for kind, count in self.kinds:
            if device < count:
                return f"{kind}{device}"
            device -= count
        raise IndexError(device)

    @cached_property
    def names(self) -> npt.NDArray[np.str_]:
        """Return the names of all devices."""
        parts = [np.char.add(kind, np.arange(count).astype(str)) for kind, count in self.kinds if count]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.str_)

    def device(self, name: str) -> int:
        """Return the number of a device. Raises ``InputError`` with the nearest name."""
        kind = name.rstrip("0123456789")
        counts, number = dict(self.kinds), name[len(kind) :]
        if kind in counts and number and len(number) < 12 and int(number) < counts[kind]:
            return self.starts[kind] + int(number)
        if counts.get(kind):
            raise InputError(f"device {name!r}", rule=f"there are {kind}0 to {kind}{counts[kind] - 1}",
                             nearest=f"{kind}{counts[kind] - 1}")  # fmt: skip
        known = [k for k, count in self.kinds if count]
        raise InputError(f"device {name[:40]!r}", rule=f"kinds are {', '.join(known)}, each with a number",
                         nearest=f"{closest(kind, known) or known[-1]}0")  # fmt: skip

    def table(self) -> pl.DataFrame:
        """Return the links as a frame: link, src, dst (names), tier, rate (bytes/s), latency (s)."""
        import polars as pl

        names = pl.Series(self.names)
        return pl.DataFrame(
            {
                "link": np.arange(self.links, dtype=np.int64), "src": names.gather(self.src), "dst": names.gather(self.dst),
                "tier": pl.Series(TIERS).gather(self.tier), "rate": self.rate, "latency": self.latency,
            }
        )  # fmt: skip

    def without(self, names: Sequence[str]) -> Fabric:
        """Return the fabric after devices (``leaf3``) or links (``leaf3-spine1``, both directions) have failed."""
        from tokenwire.fabric.failures import without

        return without(self, names)


def routes(
    fabric: Fabric, src_gpus: npt.ArrayLike, dst_gpus: npt.ArrayLike, seed: int = 0, pxn: bool = True
) -> Routes:
    """Return the links from each GPU of ``src_gpus`` to that of ``dst_gpus``, as (offsets[n + 1], link ids).

    A pair in one node uses the node's own links; on one rail NIC, leaf, NIC; across rails first NVLink to the GPU of the
    node that is on the destination's rail (``pxn``, as NCCL does) or else leaf, spine, leaf. Among equal ways a hash of the
    pair and ``seed`` chooses. A GPU to itself has no links. Raises ``InputError`` for GPUs that are not there.

    >>> from tokenwire.fabric import ClusterConfig, build
    >>> fabric = build(ClusterConfig(nodes=2))
    >>> offsets, links = routes(fabric, [0, 0], [1, 8])
    >>> [(fabric.device_name(fabric.src[i]), fabric.device_name(fabric.dst[i])) for i in links]
    [('gpu0', 'nvswitch0'), ('nvswitch0', 'gpu1'), ('nic0', 'leaf0'), ('leaf0', 'nic8')]
    """
    src, dst = (np.atleast_1d(np.asarray(gpus, dtype=np.int64)) for gpus in (src_gpus, dst_gpus))
    for gpus in (src, dst):
        if gpus.size and (gpus.min() < 0 or gpus.max() >= fabric.world):
            wrong = int(gpus[(gpus < 0) | (gpus >= fabric.world)][0])
            raise InputError(f"GPU {wrong:,}", rule=f"the fabric has GPUs 0 to {fabric.world - 1:,}",
                             nearest=str(fabric.world - 1))  # fmt: skip
    return fabric.router(src, dst, seed, pxn)


def packed(matrix: Ints) -> Routes:
    """Return routes written one a row, -1 where there is none, as (offsets, ids)."""
    used = matrix >= 0
    offsets = np.zeros(matrix.shape[0] + 1, dtype=np.int64)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    return offsets, matrix[used]


def mixed(src: Ints, dst: Ints, seed: int, salt: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each pair: SplitMix64's finalizer (Steele, Lea and Flood 2014) over sender, receiver and seed."""
    x = src.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + dst.astype(np.uint64)
    x ^= np.uint64((seed * 0xD1342543DE82EF95 + salt * 0xA0761D6478BD642F) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
