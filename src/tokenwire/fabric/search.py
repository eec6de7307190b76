"""The search for shortest ways over any graph, compiled: breadth first from the destination, then downhill from the source."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenwire.compiled import compiled
from tokenwire.fabric.graph import FREE

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

HASHED, DIGITS, FIRST = 0, 1, 2
"""How one of equal ways is picked: hashing again at each device, by the digits of a number, the first."""


@compiled
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


@compiled
def shortest(
    src: I64, dst: I64, order: I64, chance: npt.NDArray[np.uint64], mode: int, first_out: I64, to_vertex: I64, link: I64,
    first_in: I64, from_vertex: I64, free_in: npt.NDArray[np.bool_], most: int,
) -> tuple[I64, npt.NDArray[np.bool_], int]:  # fmt: skip
    """Return the links of each pair's way (rows of ``most``, -1 filled), whether there is one, and how long the longest is.

    ``order`` sorts by dst. A way longer than ``most`` is left out.

    Edges are CSR: those out of vertex v are ``to_vertex[first_out[v]:first_out[v + 1]]`` with ``link`` (or FREE, LENGTH).
    """
    vertices = first_out.size - 1
    far = np.empty(vertices, np.int64)
    queue = np.empty(4 * (vertices + from_vertex.size) + 4, np.int64)
    rows = np.full((src.size, most), -1, np.int64)
    found = np.zeros(src.size, np.bool_)
    last, longest = -1, 0
    for i in order:
        if dst[i] != last:
            last = dst[i]
            _distances(last, first_in, from_vertex, free_in, far, queue)
        v = src[i]
        longest = max(longest, far[v])
        if far[v] < 0 or far[v] > most:
            continue
        bits, at = chance[i], 0
        moves = 0
        while v != last and moves <= 2 * most + 2:
            moves += 1
            good = 0
            for e in range(first_out[v], first_out[v + 1]):
                w = to_vertex[e]
                if far[w] >= 0 and far[w] == far[v] - (0 if link[e] == FREE else 1):
                    good += 1
            pick = bits % np.uint64(good)
            if mode == DIGITS:
                bits //= np.uint64(good)
            elif mode == FIRST:
                pick = np.uint64(0)
            else:
                bits = bits * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                bits ^= bits >> np.uint64(29)
            for e in range(first_out[v], first_out[v + 1]):
                w = to_vertex[e]
                if far[w] >= 0 and far[w] == far[v] - (0 if link[e] == FREE else 1):
                    if pick == np.uint64(0):
                        if link[e] >= 0:
                            rows[i, at] = link[e]
                            at += 1
                        v = w
                        break
                    pick -= np.uint64(1)
        found[i] = v == last
    return rows, found, longest


@compiled
def _downhill(
    start: int, far: I64, first_out: I64, to_vertex: I64, link: I64, found: I64, seen: npt.NDArray[np.bool_]
) -> int:
    """Write the vertices of all shortest ways from ``start`` into ``found``, each after all before it; return how many."""
    many, head = 1, 0
    found[0] = start
    seen[start] = True
    while head < many:
        v = found[head]
        head += 1
        for e in range(first_out[v], first_out[v + 1]):
            w = to_vertex[e]
            if far[w] >= 0 and not seen[w] and far[w] == far[v] - (0 if link[e] == FREE else 1):
                seen[w] = True
                found[many] = w
                many += 1
    # Sorted by how many good edges lead in from vertices not yet placed (Kahn): free edges make equal distances.
    into = np.zeros(many, np.int64)
    place = np.empty(far.size, np.int64)
    for i in range(many):
        place[found[i]] = i
    for i in range(many):
        v = found[i]
        for e in range(first_out[v], first_out[v + 1]):
            w = to_vertex[e]
            if far[w] >= 0 and far[w] == far[v] - (0 if link[e] == FREE else 1):
                into[place[w]] += 1
    ordered = np.empty(many, np.int64)
    ordered[0] = start
    done, head = 1, 0
    while head < done:
        v = ordered[head]
        head += 1
        for e in range(first_out[v], first_out[v + 1]):
            w = to_vertex[e]
            if far[w] >= 0 and far[w] == far[v] - (0 if link[e] == FREE else 1):
                into[place[w]] -= 1
                if into[place[w]] == 0:
                    ordered[done] = w
                    done += 1
    for i in range(many):
        found[i] = ordered[i]
        seen[ordered[i]] = False
    return many


@compiled
def shares(
    src: I64, dst: I64, order: I64, first_out: I64, to_vertex: I64, link: I64, first_in: I64, from_vertex: I64,
    free_in: npt.NDArray[np.bool_], most: int,
) -> tuple[I64, I64, F64, npt.NDArray[np.bool_]]:  # fmt: skip
    """Return how many links each pair uses, and (pair after pair in ``order``) the links and the part of it on each."""
    vertices = first_out.size - 1
    far, seen = np.empty(vertices, np.int64), np.zeros(vertices, np.bool_)
    queue = np.empty(4 * (vertices + from_vertex.size) + 4, np.int64)
    way, part = np.empty(vertices, np.int64), np.zeros(vertices)
    counts, found = np.zeros(src.size, np.int64), np.zeros(src.size, np.bool_)
    links, use, at = np.empty(1024, np.int64), np.empty(1024), 0
    last = -1
    for i in order:
        if dst[i] != last:
            last = dst[i]
            _distances(last, first_in, from_vertex, free_in, far, queue)
        if far[src[i]] < 0 or far[src[i]] > most:
            continue
        found[i] = True
        many = _downhill(src[i], far, first_out, to_vertex, link, way, seen)
        for k in range(many):
            part[way[k]] = 0.0
        part[src[i]] = 1.0
        for k in range(many):
            v = way[k]
            good = 0
            for e in range(first_out[v], first_out[v + 1]):
                w = to_vertex[e]
                if far[w] >= 0 and far[w] == far[v] - (0 if link[e] == FREE else 1):
                    good += 1
            for e in range(first_out[v], first_out[v + 1]):
                w = to_vertex[e]
                if far[w] >= 0 and far[w] == far[v] - (0 if link[e] == FREE else 1):
                    part[w] += part[v] / good
                    if link[e] >= 0:
                        if at == links.size:
                            links, use = np.append(links, links), np.append(use, use)
                        links[at], use[at] = link[e], part[v] / good
                        at += 1
                        counts[i] += 1
    return counts, links[:at], use[:at], found


@compiled
def least_loaded(
    src: I64, dst: I64, size: F64, slow: F64, busy: F64, turn: I64, first_out: I64, to_vertex: I64, link: I64, first_in: I64,
    from_vertex: I64, free_in: npt.NDArray[np.bool_], most: int,
) -> tuple[I64, npt.NDArray[np.bool_], int]:  # fmt: skip
    """Return the links of each pair's way (rows of ``most``, -1 filled), whether there is one, and how long the longest is.

    Pair after pair takes, of its shortest ways, that whose busiest link ends up least busy (of these the one with the least
    sum), and makes its links busier by ``size`` times ``slow`` (1/rate).
    """
    vertices = first_out.size - 1
    far, seen = np.empty(vertices, np.int64), np.zeros(vertices, np.bool_)
    queue = np.empty(4 * (vertices + from_vertex.size) + 4, np.int64)
    way, next_edge = np.empty(vertices, np.int64), np.empty(vertices, np.int64)
    worst, total = np.empty(vertices), np.empty(vertices)
    rows, found = np.full((src.size, most), -1, np.int64), np.zeros(src.size, np.bool_)
    last, longest = -1, 0
    for i in range(src.size):
        if dst[i] != last:
            last = dst[i]
            _distances(last, first_in, from_vertex, free_in, far, queue)
        longest = max(longest, far[src[i]])
        if far[src[i]] < 0 or far[src[i]] > most:
            continue
        many = _downhill(src[i], far, first_out, to_vertex, link, way, seen)
        for k in range(many - 1, -1, -1):
            v = way[k]
            worst[v], total[v], next_edge[v] = np.inf, np.inf, -1
            if v == last:
                worst[v], total[v] = 0.0, 0.0
                continue
            out = first_out[v + 1] - first_out[v]
            for t in range(out):
                e = first_out[v] + (t + turn[i]) % out
                w = to_vertex[e]
                if far[w] < 0 or far[w] != far[v] - (0 if link[e] == FREE else 1):
                    continue
                cost = busy[link[e]] + size[i] * slow[link[e]] if link[e] >= 0 else 0.0
                high, sum_ = max(cost, worst[w]), cost + total[w]
                if next_edge[v] < 0 or high < worst[v] or (high == worst[v] and sum_ < total[v]):
                    worst[v], total[v], next_edge[v] = high, sum_, e
        v, at = src[i], 0
        while v != last:
            e = next_edge[v]
            if link[e] >= 0:
                rows[i, at] = link[e]
                at += 1
                busy[link[e]] += size[i] * slow[link[e]]
            v = to_vertex[e]
        found[i] = True
    return rows, found, longest


@compiled
def chosen(straight: I64, detour: I64, size: F64, slow: F64, busy: F64) -> npt.NDArray[np.bool_]:
    """Return which flows take the detour, one after the other; rows of links, -1 filled (first -1: there is no detour).

    Makes the links of the way taken busier by ``size`` times ``slow`` (1/rate; inf: a dead link).
    """
    took = np.zeros(size.size, np.bool_)
    for i in range(size.size):
        cost = np.zeros(2)
        for w in range(2):
            row = straight[i] if w == 0 else detour[i]
            hops = 0
            for link in row:
                if link >= 0:
                    hops += 1
                    taken = busy[link] if slow[link] < np.inf else np.inf
                    cost[w] = max(cost[w], taken)
            cost[w] *= hops
        took[i] = detour[i, 0] >= 0 and cost[0] > cost[1]
        for link in detour[i] if took[i] else straight[i]:
            if link >= 0 and slow[link] < np.inf:
                busy[link] += size[i] * slow[link]
    return took
