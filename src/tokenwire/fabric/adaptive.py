"""The least loaded way through a folded Clos, compiled: flows choose one after the other, each knowing all before it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenwire.compiled import compiled

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@compiled
def _least(busy: F64, slow: F64, size: float, first: int, step: int, many: int, turn: int) -> tuple[int, float]:
    """Return which of the links first, first + step ... is busy shortest with ``size`` more bytes, and how long."""
    best, cost = -1, np.inf
    for t in range(many):
        link = first + (t + turn) % many * step
        new = busy[link] + size * slow[link]
        if best < 0 or new < cost:
            best, cost = link, new
    return best, cost


@compiled
def climb(
    rows: I64, nic: I64, to: I64, up: I64, down: I64, size: F64, cell: I64, slow: F64, at: I64, sizes: I64, turn: I64
) -> None:
    """Fill in the links between the NICs; ``slow`` is 1/rate of each link, ``turn`` where each flow begins to look.

    ``up`` and ``down`` are the leaves in plane 0; ``at`` the first link by kind; ``sizes`` are P, U, M, V, C.
    """
    P, U, M, V, C = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    nic_up, nic_down, leaf_up, leaf_down, spine_up, spine_down = at[0], at[1], at[2], at[3], at[4], at[5]
    busy = np.zeros(slow.size)
    way, best_way = np.full(6, -1, np.int64), np.full(6, -1, np.int64)
    for i in range(nic.size):
        if nic[i] == to[i]:
            continue
        z = size[i]
        worst, total = np.inf, np.inf
        for plane in range(P):
            p = (plane + turn[i]) % P
            way[:] = -1
            way[0], way[1] = nic_up + nic[i] * P + p, nic_down + to[i] * P + p
            ports = max(busy[way[0]] + z * slow[way[0]], busy[way[1]] + z * slow[way[1]]) if P > 1 else 0.0
            a, b = up[i] + p, down[i] + p
            if a == b:
                if best_way[0] < 0 or ports < worst or worst == np.inf:
                    worst, total = ports, ports
                    best_way[:] = way
                continue
            one, two = cell[a], cell[b]
            for spine in range(M):
                m = (spine + turn[i]) % M
                way[2], c0 = _least(busy, slow, z, leaf_up + a * U + m, M, U // M, turn[i])
                way[3], c1 = _least(busy, slow, z, leaf_down + b * U + m, M, U // M, turn[i])
                if one == two:
                    most, together = max(ports, max(c0, c1)), ports + c0 + c1
                    if best_way[0] < 0 or most < worst or (most == worst and together < total):
                        worst, total = most, together
                        best_way[:] = way
                    continue
                if best_way[0] >= 0 and max(c0, c1) > worst:
                    continue
                for core in range(C):
                    c = (core + turn[i]) % C
                    way[4], c2 = _least(busy, slow, z, spine_up + (one * M + m) * V + c, C, V // C, turn[i])
                    way[5], c3 = _least(busy, slow, z, spine_down + (two * M + m) * V + c, C, V // C, turn[i])
                    most = max(max(ports, max(c0, c1)), max(c2, c3))
                    together = ports + c0 + c1 + c2 + c3
                    if best_way[0] < 0 or most < worst or (most == worst and together < total):
                        worst, total = most, together
                        best_way[:] = way
        for k in range(6):
            if best_way[k] >= 0:
                busy[best_way[k]] += z * slow[best_way[k]]
        rows[i, 2], rows[i, 7] = best_way[0], best_way[1]
        rows[i, 3], rows[i, 6], rows[i, 4], rows[i, 5] = best_way[2], best_way[3], best_way[4], best_way[5]
        best_way[:] = -1
