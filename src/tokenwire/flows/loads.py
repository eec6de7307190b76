"""Bytes on every link: transfers times routes."""

from __future__ import annotations

import numpy as np

from tokenwire.fabric import Fabric, routes
from tokenwire.fabric.fabric import Ints

_BLOCK = 1 << 20  # pairs whose routes are held at once


def link_bytes(fabric: Fabric, src: Ints, dst: Ints, size: Ints, *, seed: int = 0, pxn: bool = True) -> Ints:
    """Return the bytes that enter each link, int64[links], where ``size[i]`` bytes go from GPU ``src[i]`` to ``dst[i]``.

    >>> import numpy as np
    >>> from tokenwire.fabric import ClusterConfig, build
    >>> fabric = build(ClusterConfig(nodes=2))
    >>> loads = link_bytes(fabric, np.array([0]), np.array([8]), np.array([100]))
    >>> int(loads.sum())                                                # 100 B over 2 links: NIC to leaf, leaf to NIC
    200
    """
    out = np.zeros(fabric.links, dtype=np.int64)
    for first in range(0, src.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        offsets, links = routes(fabric, src[part], dst[part], seed, pxn)
        carried = np.repeat(size[part], np.diff(offsets))
        # Two halves of 31 bits, since bincount adds in float64, exact only to 2^53.
        for shift in (0, 31):
            half = (carried >> shift) & 0x7FFFFFFF if shift == 0 else carried >> shift
            out += np.bincount(links, weights=half, minlength=fabric.links).astype(np.int64) << shift
    return out
