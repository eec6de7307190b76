"""The small topologies of the cost model: how loaded the busiest link is in a step, and how many links a message crosses.

``ring``: each member has a link to either neighbour, messages go the shorter way. ``switch``: a link up and a link down for
each member. ``mesh``: a link between any two. ``torus2d``, ``torus3d``: rings along 2 or 3 dimensions, sides as equal as n
allows, dimension after dimension. All links have the same rate and carry it both ways at once.
"""

from __future__ import annotations

import numpy as np

from tokenwire.collectives.algorithm import Round
from tokenwire.collectives.tables import Ints
from tokenwire.errors import unknown

TOPOLOGIES = ("ring", "switch", "mesh", "torus2d", "torus3d")
_ALIASES = {"fully_connected": "mesh", "fullyconnected": "mesh", "torus": "torus2d", "star": "switch"}


def topology_named(name: str) -> str:
    """Return the topology of that name or alias. Raises ``InputError`` with the known names."""
    found = _ALIASES.get(name.lower(), name.lower())
    if found not in TOPOLOGIES:
        raise unknown("topology", name[:80], TOPOLOGIES)
    return found


def sides(n: int, dimensions: int) -> tuple[int, ...]:
    """Return ``dimensions`` factors of n, as equal as can be, largest last.

    >>> sides(64, 3), sides(24, 3), sides(7, 2)
    ((4, 4, 4), (2, 3, 4), (1, 7))
    """
    if dimensions == 1:
        return (n,)
    side = max(f for f in range(1, round(n ** (1 / dimensions)) + 1) if n % f == 0)
    return tuple(sorted((side, *sides(n // side, dimensions - 1))))


def ports(topology: str, n: int) -> int:
    """Return how many links lead out of one member.

    >>> ports("ring", 8), ports("ring", 2), ports("switch", 8), ports("torus3d", 64)
    (2, 1, 1, 6)
    """
    if topology == "switch":
        return 1
    if topology == "mesh":
        return max(n - 1, 1)
    dims = {"ring": 1, "torus2d": 2, "torus3d": 3}[topology]
    return max(sum(min(side - 1, 2) for side in sides(n, dims)), 1)


def load(topology: str, n: int, round_: Round) -> tuple[float, int]:
    """Return the bytes over the busiest link in one step of a round, and the most links that a message crosses."""
    if round_.shifts:
        times, hops = _shifted(topology, n, round_.shifts)
    elif round_.src is not None and round_.dst is not None:
        times, hops = _pairs(topology, n, round_.src, round_.dst, round_.each)
    else:
        return round_.switch_bytes, 2
    return times * round_.bytes, hops


def _shifted(topology: str, n: int, shifts: range | tuple[int, ...]) -> tuple[int, int]:
    d = np.asarray(shifts, dtype=np.int64) % n
    d = d[d > 0]
    if not d.size:
        return 0, 0
    if topology == "switch":
        return d.size, 2
    if topology == "mesh":
        return int(np.unique(d, return_counts=True)[1].max()), 1
    if topology == "ring":
        there = 2 * d <= n
        far = np.where(there, d, n - d)
        return max(int(far[there].sum()), int(far[~there].sum())), int(far.max())
    i = np.arange(n, dtype=np.int64)
    total: Ints | None = None
    hops = 0
    for shift in d:
        one, farthest = _torus_loads(sides(n, int(topology[5])), i, (i + shift) % n)
        total, hops = one if total is None else total + one, max(hops, farthest)
    return int(total.max()) if total is not None else 0, hops


def _pairs(topology: str, n: int, src: Ints, dst: Ints, each: Ints | None) -> tuple[int, int]:
    if each is not None:
        src, dst, each = src[each > 0], dst[each > 0], each[each > 0]
    if not src.size:
        return 0, 0
    if topology == "switch":
        return max(int(added(src, each).max()), int(added(dst, each).max())), 2
    if topology == "mesh":
        _, pair = np.unique(src * n + dst, return_inverse=True)
        return int(added(pair, each).max()), 1
    loads, hops = _torus_loads(sides(n, 1 if topology == "ring" else int(topology[5])), src, dst, each)
    return int(loads.max()), hops


def added(where: Ints, each: Ints | None = None, size: int = 0) -> Ints:
    """Return how much comes to each place: ``each[i]`` (1) to place ``where[i]``; int64[size or more].

    >>> import numpy as np
    >>> added(np.array([0, 2, 2]), np.array([5, 1, 1])).tolist()
    [5, 0, 2]
    """
    out = np.zeros(max(size, int(where.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(out, where, 1 if each is None else each)
    return out


def _torus_loads(shape: tuple[int, ...], src: Ints, dst: Ints, each: Ints | None = None) -> tuple[Ints, int]:
    """Return what goes over every link of a torus (both directions of each dimension), and the most hops."""
    n = int(np.prod(shape))
    at, out, hops = src, [], np.zeros(src.size, dtype=np.int64)
    stride = n
    for side in shape:
        stride //= side
        here, there = at // stride % side, dst // stride % side
        ahead = (there - here) % side
        forward = 2 * ahead <= side
        far = np.where(forward, ahead, side - ahead)
        hops += far
        line = at // (stride * side) * stride + at % stride
        # A line of `side` links, written twice so that no way wraps round; + where a message joins, - where it leaves.
        wide = 2 * side + 1
        for way, first in ((forward, here), (~forward, there)):
            part = None if each is None else each[way]
            joins = line[way] * wide + first[way]
            change = added(joins, part, n // side * wide) - added(joins + far[way], part, n // side * wide)
            along = np.cumsum(change.reshape(-1, wide), axis=1)[:, : 2 * side]
            out.append((along[:, :side] + along[:, side:]).reshape(-1))
        at = at - here * stride + there * stride
    return np.concatenate(out), int(hops.max(initial=0))
