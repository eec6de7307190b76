"""What must hold of every sharing and every call, on real fabrics and any routing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.collectives import busbw_factor
from tokenwire.fabric import ClusterConfig, Fabric, Ways, build, ways
from tokenwire.fabric.choice import ROUTINGS, SHORTEST
from tokenwire.flows.maxmin import Sharing, simulate
from tokenwire.flows.stepwise import run_call

FABRICS = {
    (preset, routing): build(ClusterConfig(preset=preset, nodes=24, routing=routing, queue_pairs=2, **fields))  # type: ignore[arg-type]
    for preset, fields in (("fat-tree", {"oversubscription": 2.0}), ("leonardo", {}), ("hyperx", {}), ("tpu-v4-torus", {}),
                           ("dragonfly", {"units_per_pod": 4, "global_links": 2}))
    for routing in (SHORTEST if preset == "fat-tree" else ROUTINGS)
}
drawn = st.tuples(st.sampled_from(sorted(FABRICS)), st.integers(0, 2**31), st.integers(1, 60))


def flows(fabric: Fabric, seed: int, many: int) -> tuple[Ways, Sharing, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, fabric.world, (2, many))
    size = random.integers(1, 10**8, many)
    found = ways(fabric, src, dst, size, seed=seed % 1000)
    return found, run(found), (src, dst, size)


def run(found: Ways, rate: float = 1.0, size: float = 1.0) -> Sharing:
    return simulate((found.offsets, found.entries), found.size * size, found.rate * rate, use=found.use, record=True)


@given(drawn)
@settings(max_examples=60, deadline=None)
def test_no_link_above_capacity_and_max_min(draw: tuple[tuple[str, str], int, int]) -> None:
    key, seed, many = draw
    found, shared, _ = flows(FABRICS[key], seed, many)
    strand = np.repeat(np.arange(found.size.size), found.hops)
    use = np.ones(found.entries.size) if found.use is None else found.use
    now = np.zeros(found.size.size)
    for t in np.unique(shared.times)[:20]:
        at = shared.times == t
        now[shared.whom[at]] = shared.rates[at]
        load = np.bincount(found.entries, weights=now[strand] * use, minlength=found.rate.size)
        assert (load <= found.rate * (1 + 1e-6)).all()
        # A flow can only rise where a link of its is full of flows that have no more than it: each has such a link.
        most = np.zeros(found.rate.size)
        np.maximum.at(most, found.entries, now[strand])
        good = (load >= found.rate * (1 - 1e-6))[found.entries] & (most[found.entries] <= now[strand] * (1 + 1e-6))
        has = np.zeros(now.size, dtype=np.bool_)
        has[strand[good]] = True
        assert has[now > 0].all()


@given(drawn)
@settings(max_examples=40, deadline=None)
def test_bytes_time_and_scale(draw: tuple[tuple[str, str], int, int]) -> None:
    key, seed, many = draw
    found, shared, (src, dst, size) = flows(FABRICS[key], seed, many)
    assert found.size.sum() == size.sum()
    # Never below the bound: the busiest link at its full rate. Sprays of trunks share their links evenly.
    bound = (found.link_bytes / found.fabric.rate).max()
    assert shared.makespan >= bound * (1 - 1e-6) - 1e-9
    np.testing.assert_allclose(run(found, size=3.0).ended, 3 * shared.ended, rtol=1e-6)
    np.testing.assert_allclose(run(found, rate=4.0).ended, shared.ended / 4, rtol=1e-6)
    # The order in which flows are told changes nothing (but for adaptive ones, who choose one after the other).
    if key[1] not in ("adaptive", "ugal"):
        order = np.random.default_rng(seed).permutation(many)
        other = ways(found.fabric, src[order], dst[order], size[order], seed=seed % 1000)
        by_pair = [np.zeros(many), np.zeros(many)]
        np.maximum.at(by_pair[0], found.pair, shared.ended)
        np.maximum.at(by_pair[1], order[other.pair], run(other).ended)
        np.testing.assert_allclose(*by_pair, rtol=1e-6)


def widened(fabric: Fabric, seed: int) -> Fabric:
    """Return the fabric with some links up to twice as wide."""
    random = np.random.default_rng(seed)
    return replace(fabric, rate=fabric.rate * np.where(random.random(fabric.links) < 0.3, 1 + random.random(fabric.links), 1.0))


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]), st.integers(2, 24), st.integers(1, 10**8),
       st.integers(0, 2**31))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_more_capacity_never_slows_a_ring(op: str, n: int, size: int, seed: int) -> None:
    # A rail of one unit: every NIC sends to one and takes from one, no two transfers of the ring share a link.
    fabric = build(ClusterConfig(nodes=24))
    members = fabric.gpus_per_node * np.random.default_rng(seed).permutation(24)[:n]
    before, after = (run_call(f, op, "ring", members[None], size)[1].max(initial=0.0) for f in (fabric, widened(fabric, seed)))
    assert after <= before * (1 + 1e-9)


def test_more_capacity_may_slow_what_shares_links() -> None:
    # Where transfers of a call share links and wait for each other, it is no law (Graham 1969, "Bounds on multiprocessing timing
    # anomalies"): a transfer that is ready sooner may meet another that it would have missed. Here by 4 parts in 100,000.
    fabric = FABRICS["fat-tree", "ecmp"]
    random = np.random.default_rng(3009)
    members = 8 * np.arange(24)[random.permutation(24)[:19]]
    wider = replace(fabric, rate=fabric.rate * np.where(random.random(fabric.links) < 0.3, 1 + random.random(fabric.links), 1.0))
    before, after = (run_call(f, "all_reduce", "ring", members[None], 2286500)[1].max() for f in (fabric, wider))
    assert before < after < before * (1 + 5e-5)


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]), st.integers(2, 16), st.integers(1, 10**9),
       st.sampled_from(SHORTEST))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_bus_bandwidth_is_within_the_bottleneck(op: str, n: int, size: int, routing: str) -> None:
    # One GPU of each node: the NIC is the bottleneck; and never below bytes over rate and one latency.
    fabric = FABRICS["fat-tree", routing]
    ended = run_call(fabric, op, None, (8 * np.arange(n))[None], size)[1].max(initial=0.0)
    if ended > 0:
        assert size * busbw_factor(op, n) / ended <= fabric.nic_rate * (1 + 1e-9)
        assert ended >= (size // n) / fabric.nic_rate + 2 * fabric.facts.link_latency - 1e-12


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_equal_ranks_may_be_swapped(seed: int) -> None:
    # An all_to_all among all GPUs of two nodes: which is called rank 0 changes nothing.
    fabric = build(ClusterConfig(nodes=2))
    order = np.random.default_rng(seed).permutation(16)
    sums = []
    for group in (np.arange(16), order):
        src, dst = np.repeat(group, 16), np.tile(group, 16)
        found = ways(fabric, src, dst, np.full(256, 10**5))
        sums.append(np.sort(run(found).ended))
    np.testing.assert_allclose(*sums, rtol=1e-6)
