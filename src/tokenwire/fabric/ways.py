"""All that flows of many pairs of GPUs take: each pair's strands, their bytes, and the links that carry them.

With ECMP a pair is as many strands as its connection has queue pairs, each on one way. Sprayed, a pair is one strand that is on
every equal way at once, a part on each; where a bundle of links always carries equal parts, the bundle (a *trunk*) stands for
its links, which changes neither loads nor max-min rates and keeps the tables small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.fabric.choice import Choice
from tokenwire.fabric.fabric import Fabric, Floats, Ints, Parts, Routes, Trunks, known_gpus


@dataclass(frozen=True)
class Ways:
    """Strands, and the links (or trunks) of each: ``entries[offsets[s]:offsets[s + 1]]``.

    ``pair`` is the pair that each strand is of, ``size`` its bytes, ``use`` the part of the strand on each entry (None: all).
    """

    fabric: Fabric
    pair: Ints
    size: Ints
    offsets: Ints
    entries: Ints
    use: Floats | None = None
    trunks: Trunks | None = None

    @property
    def rate(self) -> Floats:
        """Return the rate of each link (or trunk) in bytes/s."""
        return self.fabric.rate if self.trunks is None else self.fabric.rate[self.trunks.first] * self.trunks.width

    @property
    def hops(self) -> Ints:
        """Return the entries of each strand."""
        return np.diff(self.offsets)

    @property
    def latency(self) -> Floats:
        """Return the latency of each strand in seconds: of its links together (sprayed: the mean over its ways)."""
        late = self.fabric.latency if self.trunks is None else self.fabric.latency[self.trunks.first]
        own = late[self.entries] if self.use is None else late[self.entries] * self.use
        strand = np.repeat(np.arange(self.size.size), self.hops)
        return np.bincount(strand, weights=own, minlength=self.size.size).astype(np.float64)

    @property
    def link_bytes(self) -> Ints:
        """Return the bytes that enter each link, int64[links]; exact, but where the parts of a spray are no whole bytes."""
        carried = np.repeat(self.size, self.hops)
        if self.use is not None:
            sums = np.bincount(self.entries, weights=carried * self.use, minlength=self.fabric.links)
            return np.rint(sums).astype(np.int64)
        if self.trunks is None:
            return _summed(self.entries, carried, self.fabric.links)
        own, width = _summed(self.entries, carried, self.trunks.first.size), self.trunks.width
        trunk = np.repeat(np.arange(width.size), width)
        place = np.arange(trunk.size) - np.repeat(np.cumsum(width) - width, width)
        out = np.zeros(self.fabric.links, dtype=np.int64)
        # The bytes left over by the division are on the first links of the trunk.
        out[self.trunks.first[trunk] + place] = own[trunk] // width[trunk] + (place < own[trunk] % width[trunk])
        return out


def _summed(entries: Ints, carried: Ints, many: int) -> Ints:
    out = np.zeros(many, dtype=np.int64)
    # Two halves of 31 bits, since bincount adds in float64, exact only to 2^53.
    for shift in (0, 31):
        half = carried & 0x7FFFFFFF if shift == 0 else carried >> shift
        out += np.bincount(entries, weights=half, minlength=many).astype(np.int64) << shift
    return out


def ways(
    fabric: Fabric, src_gpus: npt.ArrayLike, dst_gpus: npt.ArrayLike, size: npt.ArrayLike, *, seed: int = 0, pxn: bool = True
) -> Ways:  # fmt: skip
    """Return how ``size[i]`` bytes go from GPU ``src_gpus[i]`` to ``dst_gpus[i]``, by the cluster's own routing.

    >>> from tokenwire.fabric import ClusterConfig, build
    >>> fabric = build(ClusterConfig(nodes=64, routing="spray"))
    >>> found = ways(fabric, [0], [256], [1600])                       # to another unit: over all 32 uplinks of leaf 0
    >>> sorted(found.link_bytes[found.link_bytes > 0].tolist(), reverse=True)[:4], int((found.link_bytes == 50).sum())
    ([1600, 1600, 50, 50], 64)
    """
    src, dst = known_gpus(fabric, src_gpus), known_gpus(fabric, dst_gpus)
    many = np.broadcast_to(np.asarray(size, dtype=np.int64), src.shape)
    facts, pair = fabric.facts, np.arange(src.size, dtype=np.int64)
    if facts.routing == "spray":
        parts = fabric.router.sprayed(src, dst, fabric.choice(seed), pxn)
        return Ways(fabric, pair, many, parts.offsets, parts.entries, parts.use, parts.trunks)
    queue_pair: Ints | int = 0
    if facts.queue_pairs > 1:
        # Inside a node there are no queue pairs.
        g, Q = fabric.gpus_per_node, facts.queue_pairs
        times = np.where((src // g == dst // g) & (facts.domain != "none"), 1, Q)
        pair = np.repeat(pair, times)
        queue_pair = np.arange(pair.size, dtype=np.int64) - np.repeat(np.cumsum(times) - times, times)
        src, dst, times = src[pair], dst[pair], times[pair]
        many = many[pair] // times + (queue_pair < many[pair] % times)
    choice = fabric.choice(seed, queue_pair)
    if facts.routing in ("adaptive", "ugal"):
        offsets, links = adapted(fabric, src, dst, many, fabric.rate, choice, pxn)
    else:
        offsets, links = fabric.router(src, dst, choice, pxn)
    return Ways(fabric, pair, many, offsets, links)


def adapted(
    fabric: Fabric, src: Ints, dst: Ints, size: Ints, rate: Floats, choice: Choice, pxn: bool
) -> Routes:
    """Return the least loaded ways, the largest flows choosing first, in the order of the pairs."""
    order = np.argsort(-size, kind="stable")
    picked = choice.of(order)
    offsets, links = fabric.router.least_loaded(src[order], dst[order], size[order], rate, picked, pxn)
    lengths = np.empty(src.size, dtype=np.int64)
    lengths[order] = np.diff(offsets)
    at = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    start = np.empty(src.size, dtype=np.int64)
    start[order] = offsets[:-1]
    take = np.repeat(start - at[:-1], lengths) + np.arange(links.size)
    return at, links[take]


def expanded(parts: Parts) -> Parts:
    """Return the parts with every trunk written out as its links."""
    if parts.trunks is None:
        return parts
    width = parts.trunks.width[parts.entries]
    entry = np.repeat(np.arange(parts.entries.size), width)
    place = np.arange(entry.size) - np.repeat(np.cumsum(width) - width, width)
    pair = np.repeat(np.arange(parts.offsets.size - 1), np.diff(parts.offsets))
    lengths = np.bincount(pair, weights=width, minlength=parts.offsets.size - 1).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    return Parts(offsets, parts.trunks.first[parts.entries[entry]] + place, 1.0 / width[entry], None)
