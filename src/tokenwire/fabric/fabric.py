"""A fabric: devices and directed links as columns, and who knows the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError, closest

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.fabric.choice import Choice
    from tokenwire.fabric.facts import ClusterFacts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Routes = tuple[Ints, Ints]

class Trunks(NamedTuple):
    """Bundles of links that always carry equal parts: trunk t is the ``width[t]`` links from ``first[t]`` on."""

    first: Ints
    width: Ints


class Parts(NamedTuple):
    """What carries which part of each pair's bytes: entries ``offsets[i]`` to ``offsets[i + 1]`` are of pair i.

    ``entries`` are links, or ``trunks`` where there are such; ``use`` is the part of the bytes (None: all, everywhere).
    """

    offsets: Ints
    entries: Ints
    use: Floats | None
    trunks: Trunks | None


TIERS = ("nvlink", "pcie", "leaf", "spine", "core", "torus")
"""Tiers of links, named by their upper end: NIC to leaf is ``leaf``, leaf to spine ``spine``, spine to core ``core``."""


class Router(Protocol):
    """Finds the ways between GPUs; see ``choice`` for the ways to choose, ``ways`` for what is returned."""

    def __call__(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Routes:
        """Return (offsets, link ids): the links of pair i are ``ids[offsets[i]:offsets[i + 1]]``, in order."""

    def sprayed(self, src: Ints, dst: Ints, choice: Choice, pxn: bool) -> Parts:
        """Return every link of each pair's equal ways and the part of the pair's bytes that it carries."""

    def least_loaded(
        self, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, pxn: bool
    ) -> Routes:
        """Return one way each, pair after pair that which is least busy; a link of rate 0 is as good as none."""


@dataclass(frozen=True)
class Fabric:
    """A cluster's devices and links.

    ``kinds`` are (name, how many) in the order of device numbers: GPUs are 0 to world - 1. Links have ``src`` and ``dst``
    (devices), ``rate`` (bytes/s), ``latency`` (s), ``tier`` (index into ``TIERS``), all directed. ``nic_of`` is each GPU's
    (first) NIC as a device. A GPU and its NIC have no link between them: a route goes from the one to the other for free
    (but in a user's own topology, whose devices have ``labels`` and whose links are all that there is).
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
    labels: tuple[str, ...] = ()

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

    def choice(self, seed: int = 0, queue_pair: Ints | int = 0) -> Choice:
        """Return how this cluster picks among equal ways; ``seed`` draws what nobody knows beforehand."""
        from tokenwire.fabric.choice import Choice

        return Choice(self.facts.routing, self.facts.hash, seed, queue_pair)

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
        if self.labels:
            return self.nic_of, self.nic_of
        several = max(1, self.facts.nics_per_node // self.gpus_per_node) if "nic" in self.starts else 1
        gpus = np.repeat(np.arange(self.world, dtype=np.int64), several)
        return gpus, self.nic_of[gpus] + np.tile(np.arange(several, dtype=np.int64), self.world)

    def device_name(self, device: int) -> str:
        """Return a device's name: its label, or its kind and its number among them, from 0."""
        if self.labels:
            return self.labels[device]
        for kind, count in self.kinds:
            if device < count:
                return f"{kind}{device}"
            device -= count
        raise IndexError(device)

    @cached_property
    def names(self) -> npt.NDArray[np.str_]:
        """Return the names of all devices."""
        if self.labels:
            return np.array(self.labels)
        parts = [np.char.add(kind, np.arange(count).astype(str)) for kind, count in self.kinds if count]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.str_)

    def device(self, name: str) -> int:
        """Return the number of a device. Raises ``InputError`` with the nearest name."""
        if self.labels:
            if name in self.labels:
                return self.labels.index(name)
            raise InputError(f"device {name[:40]!r}", rule=f"is none of the {len(self.labels):,} of {self.name}"[:120],
                             nearest=closest(name[:80], self.labels))  # fmt: skip
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


def routes(
    fabric: Fabric, src_gpus: npt.ArrayLike, dst_gpus: npt.ArrayLike, seed: int = 0, pxn: bool = True
) -> Routes:
    """Return the links from each GPU of ``src_gpus`` to that of ``dst_gpus``, as (offsets[n + 1], link ids).

    A pair in one node uses the node's own links; on one rail NIC, leaf, NIC; across rails first NVLink to the GPU of the
    node that is on the destination's rail (``pxn``, as NCCL does) or else leaf, spine, leaf. Among equal ways a hash of the
    pair's flow (``fivetuple``; ``seed`` draws its queue pairs) chooses, or the numbers of its ends where the cluster routes
    statically: it is the way of one queue pair. ``ways`` has all ways. A GPU to itself has no links. Raises ``InputError`` for
    GPUs that are not there.

    >>> from tokenwire.fabric import ClusterConfig, build
    >>> fabric = build(ClusterConfig(nodes=2))
    >>> offsets, links = routes(fabric, [0, 0], [1, 8])
    >>> [(fabric.device_name(fabric.src[i]), fabric.device_name(fabric.dst[i])) for i in links]
    [('gpu0', 'nvswitch0'), ('nvswitch0', 'gpu1'), ('nic0', 'leaf0'), ('leaf0', 'nic8')]
    """
    src, dst = (known_gpus(fabric, gpus) for gpus in (src_gpus, dst_gpus))
    return fabric.router(src, dst, fabric.choice(seed), pxn)


def known_gpus(fabric: Fabric, given: npt.ArrayLike) -> Ints:
    """Return numbers of GPUs as a column. Raises ``InputError`` for one that is not there."""
    gpus = np.atleast_1d(np.asarray(given, dtype=np.int64))
    if gpus.size and (gpus.min() < 0 or gpus.max() >= fabric.world):
        wrong = int(gpus[(gpus < 0) | (gpus >= fabric.world)][0])
        raise InputError(f"GPU {wrong:,}", rule=f"the fabric has GPUs 0 to {fabric.world - 1:,}",
                         nearest=str(fabric.world - 1))  # fmt: skip
    return gpus


def packed(matrix: Ints) -> Routes:
    """Return routes written one a row, -1 where there is none, as (offsets, ids)."""
    used = matrix >= 0
    offsets = np.zeros(matrix.shape[0] + 1, dtype=np.int64)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    return offsets, matrix[used]
