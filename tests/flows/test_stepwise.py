"""Calls step by step and ranks that come late: case 9 worked by hand, and in general."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flows.test_contention import command
from tokenwire.collectives import transfers
from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, build
from tokenwire.flows.stepwise import late_ranks, run_call
from tokenwire.flows.waiting import waits

RAIL = 8 * np.arange(8)
"""GPU 0 of each of 8 nodes: one NIC and leaf each way between any two."""


def end(op: str, algorithm: str, size: int, late: dict[int, float] | None = None, groups: np.ndarray = RAIL[None], **fields: object) -> float:
    fabric = build(ClusterConfig(nodes=8, **fields))  # type: ignore[arg-type]
    return float(run_call(fabric, op, algorithm, groups, size, late=late)[1].max())


def test_a_ring_by_hand() -> None:
    # n = 8, 80 MB: 14 steps of 10 MB at 50 GB/s, each with 2 links of 500 ns: 14·(200 us + 1 us).
    assert end("all_reduce", "ring", 80_000_000) == pytest.approx(14 * 201e-6)
    assert end("all_gather", "ring", 80_000_000) == pytest.approx(7 * 201e-6)


def test_case_9_one_rank_late_by_t() -> None:
    # Every piece passes the late rank: the ring ends as late as it does.
    size, t = 80_000_000, 1e-3
    assert end("all_reduce", "ring", size, {RAIL[3]: t}) == pytest.approx(t + 14 * 201e-6)
    # The last rank of a broadcast's chain late by less than its turn costs nothing: it would not have begun before.
    start = run_call(build(ClusterConfig(nodes=8)), "broadcast", "ring", RAIL[None], size)
    first = float(start[0][start[3] == RAIL[7]].min())
    assert end("broadcast", "ring", size, {RAIL[7]: 0.9 * first}) == pytest.approx(float(start[1].max()))
    assert end("broadcast", "ring", size, {RAIL[7]: first + t}) >= float(start[1].max()) + t * (1 - 1e-9)


def test_two_late_ranks_cost_as_the_later() -> None:
    assert end("all_reduce", "ring", 10**7, {8: 1e-3, 24: 2e-3}) == pytest.approx(end("all_reduce", "ring", 10**7, {24: 2e-3}))


def test_ten_per_cent_slower_compute() -> None:
    # Compute of 200 ms, one rank 10 % slower: it comes 20 ms late, and so does the step.
    late = 0.1 * 0.2
    assert end("all_reduce", "ring", 10**8, {16: late}) - end("all_reduce", "ring", 10**8) == pytest.approx(late)


@pytest.mark.parametrize(("op", "algorithm"), [
    ("all_reduce", "ring"), ("all_reduce", "tree"), ("all_reduce", "halving_doubling"), ("all_gather", "ring"),
    ("reduce_scatter", "ring"), ("broadcast", "ring"), ("all_to_all", "pairwise"), ("all_reduce", "bidirectional"),
])  # fmt: skip
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_what_is_passed_on_has_come(op: str, algorithm: str, n: int) -> None:
    fabric = build(ClusterConfig(nodes=8))
    table = transfers(op, algorithm, n, 800)
    began, ended, src, _ = run_call(fabric, op, algorithm, RAIL[None, :n], 800)
    for before, then in waits(op, table):
        assert began[then] >= ended[before] - 1e-15
        assert table["step"][before] <= table["step"][then]
    # Steps of a transfer's own past: all pieces that its sender adds to or passes on.
    if op != "all_to_all":
        for i in range(table.size):
            begin, end = table["offset"], table["offset"] + table["bytes"]
            comes = (table["dst"] == table["src"][i]) & (begin < end[i]) & (begin[i] < end) & (table["step"] < table["step"][i])
            assert (ended[comes] <= began[i] + 1e-15).all()
    assert set(src.tolist()) <= set(RAIL.tolist())


@given(st.integers(2, 8), st.integers(0, 7), st.floats(0, 1e-2), st.sampled_from(["ring", "tree"]), st.integers(1, 10**7))
@settings(max_examples=25, deadline=None)
def test_lateness_costs_between_nothing_and_itself(n: int, who: int, t: float, algorithm: str, size: int) -> None:
    # An all_reduce cannot end before its latest rank began. Nor later than by that much, where no two transfers share a link: in a
    # ring. The two trees meet on links, and whom a late transfer meets there is another matter (Graham's anomaly).
    ranks = RAIL[None, :n]
    late = {int(RAIL[who % n]): t}
    before, after = end("all_reduce", algorithm, size, groups=ranks), end("all_reduce", algorithm, size, late, groups=ranks)
    assert after >= t
    if algorithm == "ring":
        assert before - 1e-12 <= after <= before + t + 1e-9


def test_with_queue_pairs_and_sprays() -> None:
    for fields in ({"queue_pairs": 4}, {"routing": "spray"}, {"routing": "adaptive", "queue_pairs": 2}):
        assert end("all_reduce", "ring", 80_000_000, **fields) == pytest.approx(14 * 201e-6)


def test_groups_at_once_do_not_wait_for_each_other() -> None:
    groups = RAIL[None] + np.arange(8)[:, None]
    assert end("all_reduce", "ring", 80_000_000, groups=groups) == pytest.approx(14 * 201e-6)


def test_relays_wait_for_what_they_send_on() -> None:
    # 16 ranks, 2 nodes. Step 0: each gives 7 pieces to its own node and hands 7 to relays (14 a rank); step 1: 1 + 7 by rail.
    table = transfers("all_to_all", "pxn", 16, 1600)
    pairs = waits("all_to_all", table)
    for k in np.flatnonzero(table["step"] == 1):
        before = pairs[pairs[:, 1] == k, 0]
        own = table["src"][before] == table["src"][k]
        assert own.sum() == 14
        handed = before[~own]
        assert set(table["src"][handed].tolist()) == set(range(table["src"][k] // 8 * 8, table["src"][k] // 8 * 8 + 8)) - {int(table["src"][k])}
        assert (table["chunk"][handed] == table["dst"][k]).all()


def test_never_above_the_bus_bandwidth() -> None:
    # Case 8: busbw = 2(n-1)/n·S/t is at most the NIC's rate.
    for size in (10**4, 10**6, 10**8):
        assert 2 * 7 / 8 * size / end("all_reduce", "ring", size) <= 50e9 * (1 + 1e-9)


def test_the_verb() -> None:
    facts = json.loads(command("--late", "3=1 ms", "--only", "pp", "--only", "optimizer", "--json").stdout)
    world = next(row for row in facts["kinds"] if row["group"] == "world")
    assert world["delay_seconds"] == pytest.approx(1e-3, rel=1e-3)
    assert world["ranks_held_up"] == 7
    lines = command("--late", "3=1 ms", "--csv", "-").stdout.splitlines()
    assert lines[0].startswith("op,group,phase,bytes")


@pytest.mark.parametrize("text", ["3", "x=1 ms", "8=1 ms", "3=1", "3=-1 ms", "=1 ms", "-1=1 ms"])
def test_late_ranks_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        late_ranks([text], 8)
    ended = command(f"--late={text}")
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
