"""Max-min sharing: by hand, against a plain solver, and what max-min fairness means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.flows.maxmin import link_seconds, simulate


def csr(ways: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, ways)]), np.array([link for way in ways for link in way], dtype=np.int64)


def plain_rates(ways: list[list[int]], rate: list[float], weight: list[float], on: list[int]) -> dict[int, float]:
    """Return max-min rates by progressive filling from scratch."""
    fixed: dict[int, float] = {}
    while len(fixed) < len(on):
        levels = {}
        for m in {m for f in on if f not in fixed for m in ways[f]}:
            rest = rate[m] - sum(fixed[f] for f in fixed if m in ways[f])
            levels[m] = rest / sum(weight[f] for f in on if f not in fixed and m in ways[f])
        least = min(levels.values())
        for f in on:
            if f not in fixed and any(levels.get(m, np.inf) <= least * (1 + 1e-12) for m in ways[f]):
                fixed[f] = least * weight[f]
    return fixed


def plain(
    ways: list[list[int]], size: list[float], rate: list[float], start: list[float], weight: list[float],
    after: list[tuple[int, int]], latency: list[float],
) -> list[float]:  # fmt: skip
    """Return when each flow ends: every event from scratch."""
    n, now, ended = len(ways), 0.0, [np.inf] * len(ways)
    left, on = list(size), set()
    waiting = set(range(n))
    while waiting or on:
        ready = {
            f: max([start[f], *[ended[a] for a, b in after if b == f]]) for f in waiting
            if all(ended[a] < np.inf for a, b in after if b == f)
        }  # fmt: skip
        rates = plain_rates(ways, rate, weight, sorted(on)) if on else {}
        times = [now + left[f] / rates[f] for f in on] + [max(now, t) for t in ready.values()]
        then = min(times)
        for f in on:
            left[f] -= rates[f] * (then - now)
        now = then
        for f in [f for f in on if left[f] <= 1e-9 * size[f] + 1e-12]:
            on.remove(f)
            ended[f] = now + latency[f]
        for f, t in ready.items():
            if t <= now * (1 + 1e-12):
                waiting.remove(f)
                on.add(f)
    return ended


def test_two_flows_share_and_then_one_has_all() -> None:
    # 100 B/s for 100 B and 300 B: 50 each until 2 s, then 100: 200 B left / 100 = 2 s more.
    found = simulate(csr([[0], [0]]), [100, 300], [100.0], record=True)
    assert found.ended.tolist() == [2, 4]
    assert list(zip(found.times, found.whom, found.rates, strict=True))[:2] == [(0, 0, 50), (0, 1, 50)]
    assert found.rates[found.whom == 1].tolist() == [50, 100, 0]


def test_the_textbook_chain() -> None:
    # Bertsekas and Gallager, section 6.5.2: one long flow over links 0, 1; shorts on each; link 1 twice as wide.
    # Link 0 of 1 B/s: long and short get 0.5; link 1 of 2 B/s: the other short gets 1.5.
    found = simulate(csr([[0, 1], [0], [1]]), [1, 1, 1], [1.0, 2.0], record=True)
    first = {int(f): r for t, f, r in zip(found.times, found.whom, found.rates, strict=True) if t == 0}
    assert first == {0: 0.5, 1: 0.5, 2: 1.5}


def test_cap_weight_start_latency_and_waiting_by_hand() -> None:
    way = csr([[0], [0]])
    # A cap of 20 leaves 80 to the other: 100/20 = 5 s, 80/80 = 1 s.
    assert simulate(way, [100, 80], [100.0], cap=[20, np.inf]).ended.tolist() == [5, 1]
    # Weights 1 and 3: 25 and 75 B/s.
    assert simulate(way, [25, 75], [100.0], weight=[1, 3]).ended.tolist() == [1, 1]
    # The second begins at 1 s: 100 B gone, 100 B left share with its 50 B: both at 50 B/s, it ends at 2, the first at 2.5.
    assert simulate(way, [200, 50], [100.0], start=[0, 1]).ended.tolist() == [2.5, 2]
    # The second waits for the first, whose last byte takes 0.5 s more to arrive: 1.5, then 1 s and 0.5 s.
    found = simulate(way, [100, 100], [100.0], latency=0.5, after=[(0, 1)])
    assert (found.began.tolist(), found.ended.tolist()) == ([0, 1.5], [1.5, 3])


def test_nothing_to_send() -> None:
    assert simulate(csr([]), [], [1.0]).makespan == 0
    # No bytes, or no links: at once.
    assert simulate(csr([[0], []]), [0, 100], [1.0], start=[2, 3]).ended.tolist() == [2, 3]


networks = st.integers(1, 6).flatmap(
    lambda m: st.tuples(
        st.lists(st.integers(1, 50).map(float), min_size=m, max_size=m),
        st.lists(
            st.tuples(
                st.lists(st.integers(0, m - 1), min_size=1, max_size=m, unique=True), st.integers(1, 1000), st.integers(0, 20),
                st.integers(1, 4), st.integers(0, 3),
            ),
            min_size=1, max_size=12,
        ),
        st.booleans(),
    )
)  # fmt: skip


@given(networks)
@settings(max_examples=100)
def test_agrees_with_sharing_from_scratch(network: tuple[list[float], list[tuple[list[int], int, int, int, int]], bool]) -> None:
    rate, flows, chained = network
    ways, size, start, weight, latency = ([flow[k] for flow in flows] for k in range(5))
    after = [(f, f + 2) for f in range(len(ways) - 2)] if chained else []
    found = simulate(csr(ways), size, rate, start=start, weight=weight, latency=latency, after=after or None)
    wanted = plain(ways, size, rate, start, weight, after, latency)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.ended, wanted, rtol=1e-7)


@given(networks)
@settings(max_examples=60)
def test_what_max_min_means(network: tuple[list[float], list[tuple[list[int], int, int, int, int]], bool]) -> None:
    rate, flows, _ = network
    ways, size, start, weight, _ = ([flow[k] for flow in flows] for k in range(5))
    found = simulate(csr(ways), size, rate, start=start, weight=weight, record=True)
    # Every byte arrives: the rates over time add up to the size.
    sent, now_rate, since = np.zeros(len(ways)), np.zeros(len(ways)), np.zeros(len(ways))
    moments = np.unique(found.times)
    for t in moments:
        for i in np.flatnonzero(found.times == t):
            f = found.whom[i]
            sent[f] += now_rate[f] * (t - since[f])
            since[f], now_rate[f] = t, found.rates[i]
        for m in range(len(rate)):
            # No link above its rate.
            assert sum(now_rate[f] for f in range(len(ways)) if m in ways[f]) <= rate[m] * (1 + 1e-6)
        for f in np.flatnonzero(now_rate > 0):
            # Each flow has a full link on which none, per weight, has more.
            assert any(
                sum(now_rate[g] for g in range(len(ways)) if m in ways[g]) >= rate[m] * (1 - 1e-6)
                and all(now_rate[g] / weight[g] <= now_rate[f] / weight[f] * (1 + 1e-6) for g in range(len(ways)) if m in ways[g])
                for m in ways[f]
            )  # fmt: skip
    np.testing.assert_allclose(sent, size, rtol=1e-6)
    # The busiest link is a bound; scaling all bytes or all rates scales time (here with every start at 0).
    together = simulate(csr(ways), size, rate, weight=weight)
    assert together.makespan >= link_seconds(csr(ways), size, rate).max() * (1 - 1e-9)
    twice = simulate(csr(ways), 2 * np.array(size), rate, weight=weight)
    faster = simulate(csr(ways), size, 2 * np.array(rate), weight=weight)
    np.testing.assert_allclose(twice.ended, 2 * together.ended, rtol=1e-7)
    np.testing.assert_allclose(faster.ended, together.ended / 2, rtol=1e-7)
    # The order in which equal flows are named changes nothing.
    order = np.random.default_rng(0).permutation(len(ways))
    mixed = simulate(csr([ways[i] for i in order]), np.array(size)[order], rate, weight=np.array(weight)[order])
    np.testing.assert_allclose(mixed.ended, together.ended[order], rtol=1e-7)


def test_many_flows_that_come_and_go() -> None:
    # 120 flows of all sizes over 30 links: the network drains, and no link carried more than it could.
    random = np.random.default_rng(5)
    ways = [random.choice(30, 4, replace=False).tolist() for _ in range(120)]
    size, start = random.integers(1, 10**9, 120), random.random(120)
    found = simulate(csr(ways), size, np.full(30, 1e9), start=start)
    wanted = plain(ways, size.tolist(), [1e9] * 30, start.tolist(), [1.0] * 120, [], [0.0] * 120)
    np.testing.assert_allclose(found.ended, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    [{"size": [-1, 1]}, {"size": [np.nan, 1]}, {"rate": [0.0]}, {"rate": [-5.0]}, {"weight": 0}, {"cap": 0}, {"start": -1},
     {"latency": np.inf}, {"after": [(0, 1), (1, 0)]}, {"after": [(0, 7)]}, {"size": [1, 2, 3]}, {"rate": []}],
)  # fmt: skip
def test_what_cannot_be(change: dict[str, object]) -> None:
    call: dict[str, object] = {"size": [1, 1], "rate": [1.0], **change}
    with pytest.raises(InputError):
        simulate(csr([[0], [0]]), **call)  # type: ignore[arg-type]
