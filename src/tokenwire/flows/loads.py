"""Bytes on every link: transfers times routes."""

from __future__ import annotations

import numpy as np

from tokenwire.fabric import Fabric, ways
from tokenwire.fabric.fabric import Ints

_BLOCK = 1 << 20  # pairs whose ways are held at once (adaptive flows only know those of their block)


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
        out += ways(fabric, src[part], dst[part], size[part], seed=seed, pxn=pxn).link_bytes
    return out
