"""The search for shortest ways over any graph, compiled: breadth first from the destination, then downhill from the source."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@numba.njit(cache=True)
def _distances(goal: int, first_in: I64, from_vertex: I64, free: npt.NDArray[np.bool_], far: I64, queue: I64) -> None:
    # 0-1 search backwards: a free edge (GPU to its NIC) adds nothing, a link adds 1.
    far[:] = -1
    far[goal] = 0
    half = queue.size // 2
    head, tail = half, half + 1
    queue[head] = goal
    while head < tail:
        v = queue[head]
        head += 1
        for e in range(first_in[v], first_in[v + 1]):
            u = from_vertex[e]
            step = 0 if free[e] else 1
            if far[u] < 0 or far[u] > far[v] + step:
                far[u] = far[v] + step
                if step == 0:
                    head -= 1
                    queue[head] = u
                else:
                    queue[tail] = u
                    tail += 1


@numba.njit(cache=True)
def shortest(
    src: I64, dst: I64, order: I64, chance: npt.NDArray[np.uint64], first_out: I64, to_vertex: I64, link: I64, first_in: I64,
    from_vertex: I64, free_in: npt.NDArray[np.bool_], most: int,
) -> tuple[I64, npt.NDArray[np.bool_]]:  # fmt: skip
    """Return the links of each pair's way (rows of ``most``, -1 filled) and whether there is one; ``order`` sorts by dst.

    Edges are CSR: those out of vertex v are ``to_vertex[first_out[v]:first_out[v + 1]]`` with ``link`` (-1: free).
    """
    vertices = first_out.size - 1
    far = np.empty(vertices, np.int64)
    queue = np.empty(4 * (vertices + from_vertex.size) + 4, np.int64)
    rows = np.full((src.size, most), -1, np.int64)
    found = np.zeros(src.size, np.bool_)
    last = -1
    for i in order:
        if dst[i] != last:
            last = dst[i]
            _distances(last, first_in, from_vertex, free_in, far, queue)
        v = src[i]
        if far[v] < 0 or far[v] > most:
            continue
        bits, at = chance[i], 0
        moves = 0
        while v != last and moves <= 2 * most + 2:
            moves += 1
            good = 0
            for e in range(first_out[v], first_out[v + 1]):
                w = to_vertex[e]
                if far[w] >= 0 and far[w] == far[v] - (1 if link[e] >= 0 else 0):
                    good += 1
            pick = bits % np.uint64(good)
            bits = bits * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            bits ^= bits >> np.uint64(29)
            for e in range(first_out[v], first_out[v + 1]):
                w = to_vertex[e]
                if far[w] >= 0 and far[w] == far[v] - (1 if link[e] >= 0 else 0):
                    if pick == np.uint64(0):
                        if link[e] >= 0:
                            rows[i, at] = link[e]
                            at += 1
                        v = w
                        break
                    pick -= np.uint64(1)
        found[i] = v == last
    return rows, found
