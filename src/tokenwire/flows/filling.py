"""The compiled event loop of max-min fair sharing; ``maxmin`` says what it computes.

At an event only what changes is shared out anew. To begin with these are the new flows, and the flows whose bottleneck is
a link that an ended flow leaves. They are filled (bottleneck after bottleneck, from a heap of the links' levels) with what
the others leave them. Then every link that they touch is looked at, and a flow that stands apart joins them where

- it has more (rate over weight) than the level at which the link is now full for those filled, or
- the link is its bottleneck, but is no longer full, or one of those filled has more on it;

until none joins. Now each flow has a full link on which none has more than it: those filled by construction, the others
since nothing at their bottleneck has changed. There is only one such sharing, so it is that of filling from scratch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenwire.compiled import compiled

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@compiled
def _push(key: F64, item: I64, size: int, k: float, x: int) -> int:
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if key[up] <= k:
            break
        key[i], item[i] = key[up], item[up]
        i = up
    key[i], item[i] = k, x
    return size + 1


@compiled
def _drop(key: F64, item: I64, size: int) -> int:
    """Take the least away (the caller has read it); return the new size."""
    size -= 1
    k, x = key[size], item[size]
    i = 0
    while True:
        c = 2 * i + 1
        if c >= size:
            break
        if c + 1 < size and key[c + 1] < key[c]:
            c += 1
        if key[c] >= k:
            break
        key[i], item[i] = key[c], item[c]
        i = c
    key[i], item[i] = k, x
    return size


@compiled
def share(
    first: I64, links: I64, use: F64, capacity: F64, size: F64, weight: F64, start: F64, latency: F64, after: I64, then: I64,
    waits: I64, record: bool, together: float,
) -> tuple[F64, F64, int, int, F64, I64, F64]:  # fmt: skip
    """Return when each flow began and ended (inf: never), the number of events and of rates set, and the rates over time.

    Flow f takes ``links[first[f]:first[f + 1]]``, ``use`` of its rate on each; ``then[after[f]:after[f + 1]]`` wait for it, each for ``waits`` flows.
    Events closer than ``together`` times the clock are one. The last three are (time, flow, rate) of every change.
    """
    flows, slots, many = size.size, links.size, capacity.size
    owner = np.empty(slots, np.int64)
    at = np.zeros(many + 1, np.int64)
    for f in range(flows):
        for h in range(first[f], first[f + 1]):
            owner[h] = f
            at[links[h] + 1] += 1
    for m in range(many):
        at[m + 1] += at[m]
    seat, place, count = np.empty(slots, np.int64), np.empty(slots, np.int64), np.zeros(many, np.int64)

    rate, level, left, since = np.zeros(flows), np.zeros(flows), size.copy(), np.zeros(flows)
    fresh, bottleneck, narrow = np.zeros(flows), np.full(flows, -1, np.int64), np.full(flows, -1, np.int64)
    due, ready = np.full(flows, np.inf), start.copy()
    began, ended = np.full(flows, np.inf), np.full(flows, np.inf)
    missing = waits.copy()

    room = 4 * flows + 64
    key, item, heap = np.empty(room), np.empty(room, np.int64), 0
    for f in range(flows):
        if missing[f] == 0:
            heap = _push(key, item, heap, ready[f], f + flows)

    mark, link_mark, stamp = np.zeros(flows, np.int64), np.zeros(many, np.int64), 0
    reached, touched = np.empty(flows, np.int64), np.empty(many, np.int64)
    spare, heavy, open_ = np.empty(many), np.empty(many), np.zeros(many, np.int64)
    full, most = np.empty(many), np.empty(many)  # the level at which a link filled; the most that a filled flow has on it
    lkey, litem = np.empty(2 * many + 8), np.empty(2 * many + 8, np.int64)
    changes = 1024 if record else 1
    times, whom, rates, noted = np.empty(changes), np.empty(changes, np.int64), np.empty(changes), 0
    events, settings = 0, 0

    while heap > 0:
        now = key[0]
        if now == np.inf:
            break
        stamp += 1
        horizon = now * (1 + together)
        found, seen = 0, 0
        while heap > 0 and key[0] <= horizon:
            t, x = key[0], item[0]
            heap = _drop(key, item, heap)
            if x >= flows:
                f = x - flows
                began[f] = t
                if first[f] == first[f + 1] or size[f] <= 0:
                    due[f] = t
                    heap = _push(key, item, heap, t, f)
                    continue
                since[f] = now
                mark[f] = stamp
                reached[found] = f
                found += 1
                for h in range(first[f], first[f + 1]):
                    m = links[h]
                    seat[at[m] + count[m]] = h
                    place[h] = at[m] + count[m]
                    count[m] += 1
                continue
            f = x
            if due[f] != t or ended[f] < np.inf:
                continue  # the rate has changed since this was noted
            ended[f] = t + latency[f]
            if first[f] < first[f + 1] and size[f] > 0:
                rate[f], bottleneck[f] = 0.0, -1
                for h in range(first[f], first[f + 1]):
                    m = links[h]
                    last = seat[at[m] + count[m] - 1]
                    seat[place[h]] = last
                    place[last] = place[h]
                    count[m] -= 1
                    if link_mark[m] != stamp:
                        link_mark[m] = stamp
                        touched[seen] = m
                        seen += 1
                if record:
                    if noted == times.size:
                        times, whom, rates = np.append(times, times), np.append(whom, whom), np.append(rates, rates)
                    times[noted], whom[noted], rates[noted] = now, f, 0.0
                    noted += 1
            for e in range(after[f], after[f + 1]):
                g = then[e]
                ready[g] = max(ready[g], ended[f])
                missing[g] -= 1
                if missing[g] == 0:
                    heap = _push(key, item, heap, ready[g], g + flows)

        if found == 0 and seen == 0:
            continue
        events += 1
        # What is filled: new flows, and flows whose bottleneck an ended flow leaves.
        for i in range(seen):
            m = touched[i]
            for s in range(at[m], at[m] + count[m]):
                g = owner[seat[s]]
                if bottleneck[g] == m and mark[g] != stamp:
                    mark[g] = stamp
                    reached[found] = g
                    found += 1
        spread = 0
        while True:
            for i in range(spread, found):
                f = reached[i]
                for h in range(first[f], first[f + 1]):
                    m = links[h]
                    if link_mark[m] != stamp:
                        link_mark[m] = stamp
                        touched[seen] = m
                        seen += 1
            spread = found
            links_left = 0
            for i in range(seen):
                m = touched[i]
                rest, heaviness, unfixed = capacity[m], 0.0, 0
                for s in range(at[m], at[m] + count[m]):
                    g = owner[seat[s]]
                    if mark[g] == stamp:
                        heaviness += weight[g] * use[seat[s]]
                        unfixed += 1
                    else:
                        rest -= rate[g] * use[seat[s]]
                spare[m], heavy[m], open_[m], full[m], most[m] = max(rest, 0.0), heaviness, unfixed, np.inf, -1.0
                if unfixed > 0:
                    links_left = _push(lkey, litem, links_left, spare[m] / heavy[m], m)
            for i in range(found):
                fresh[reached[i]] = -1.0
            while links_left > 0:
                k, m = lkey[0], litem[0]
                links_left = _drop(lkey, litem, links_left)
                if open_[m] == 0:
                    continue
                current = max(spare[m], 0.0) / heavy[m]
                if current > k * (1 + 1e-13):
                    links_left = _push(lkey, litem, links_left, current, m)
                    continue
                full[m] = current
                for s in range(at[m], at[m] + count[m]):
                    g = owner[seat[s]]
                    if mark[g] != stamp or fresh[g] >= 0:
                        continue
                    fresh[g], narrow[g] = current, m
                    for h in range(first[g], first[g + 1]):
                        w = links[h]
                        spare[w] -= current * weight[g] * use[h]
                        heavy[w] -= weight[g] * use[h]
                        open_[w] -= 1
                        most[w] = max(most[w], current)
            for i in range(seen):
                m = touched[i]
                slack = spare[m] > 1e-9 * capacity[m]
                for s in range(at[m], at[m] + count[m]):
                    g = owner[seat[s]]
                    if mark[g] == stamp:
                        continue
                    # Those that have more than a full link gives, and those whose bottleneck is none any more.
                    loose = bottleneck[g] == m and (slack or most[m] > level[g] * (1 + 1e-9))
                    if loose or level[g] > full[m] * (1 + 1e-9):
                        mark[g] = stamp
                        reached[found] = g
                        found += 1
            if spread == found:
                break
        for i in range(found):
            g = reached[i]
            level[g], bottleneck[g] = fresh[g], narrow[g]
            fair = fresh[g] * weight[g]
            if abs(fair - rate[g]) <= 1e-14 * fair:
                continue
            settings += 1
            left[g] = max(left[g] - rate[g] * (now - since[g]), 0.0)
            since[g], rate[g] = now, fair
            due[g] = now + left[g] / fair if fair > 0 else np.inf
            if heap == room:
                kept = 0
                old_key, old_item = key[:heap].copy(), item[:heap].copy()
                for j in range(old_key.size):
                    if old_item[j] >= flows or (due[old_item[j]] == old_key[j] and ended[old_item[j]] == np.inf):
                        kept = _push(key, item, kept, old_key[j], old_item[j])
                heap = kept
            heap = _push(key, item, heap, due[g], g)
            if record:
                if noted == times.size:
                    times, whom, rates = np.append(times, times), np.append(whom, whom), np.append(rates, rates)
                times[noted], whom[noted], rates[noted] = now, g, fair
                noted += 1
    return began, ended, events, settings, times[:noted], whom[:noted], rates[:noted]
