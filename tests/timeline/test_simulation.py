"""The pipeline in time: closed forms, agreement with the schedules' own timing, and the short cut through the steady state."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.step.schedules import SCHEDULES, schedule, timing
from tokenwire.timeline.critical import critical_path, legs
from tokenwire.timeline.jitter import jitter
from tokenwire.timeline.order import order_of
from tokenwire.timeline.simulation import pipeline, play


def equal(ranks: int, chunks: int = 1, forward: float = 1.0, backward: float = 2.0) -> list[dict[tuple[str, int], float]]:
    share = 1 / chunks
    one = {(kind, c): cost * share for kind, cost in (("F", forward), ("B", backward), ("I", backward / 2), ("W", backward / 2))
           for c in range(max(chunks, 4))}  # fmt: skip
    return [one] * ranks


@given(st.integers(1, 8), st.integers(1, 40))
def test_one_forward_one_backward_has_its_closed_form(p: int, m: int) -> None:
    # (m + p - 1)·(F + B)
    assert pipeline("1f1b", p, m, 1, equal(p)).makespan == pytest.approx((m + p - 1) * 3)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_all_schedules_agree_with_their_own_timing(name: str) -> None:
    plan = schedule(name, 4, 8)
    share = 4 / plan.stages
    durations = [{(k, c): x * share for k, x in (("F", 1.0), ("B", 2.0), ("I", 1.0), ("W", 1.0)) for c in range(4)}] * 4
    assert play(order_of(plan), durations, 0.0, 8).makespan == pytest.approx(timing(plan).makespan)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([("1f1b", 1), ("interleaved-1f1b", 2), ("interleaved-1f1b", 3), ("gpipe", 1), ("zb-h1", 1), ("zbv", 2),
                        ("dualpipev", 2)]), st.integers(2, 5), st.integers(8, 50), st.floats(0, 1), st.booleans(), st.booleans(),
       st.integers(0, 10**6))  # fmt: skip
def test_the_short_cut_changes_nothing(
    kind: tuple[str, int], p: int, rounds: int, send: float, blocking: bool, alike: bool, seed: int
) -> None:  # fmt: skip
    (name, v), dice = kind, random.Random(seed)
    pace = (lambda: 1.0) if alike else (lambda: dice.uniform(1, 2))
    durations = [{(k, c): pace() * x for k, x in (("F", 1), ("B", 2), ("I", 1), ("W", 1)) for c in range(v)} for _ in range(p)]
    short = pipeline(name, p, rounds * p, v, durations, send, blocking=blocking)
    long = pipeline(name, p, rounds * p, v, durations, send, blocking=blocking, whole=True)
    assert long.shown == rounds * p
    assert short.ends == pytest.approx(long.ends, rel=1e-9)
    assert short.busy == pytest.approx(long.busy, rel=1e-9)


def test_a_pipeline_that_settles_late_is_run_longer() -> None:
    # Rank 1 is slower by a thousandth: what rank 0 is ahead must run out before rank 1 sets the pace.
    close = [{("F", 0): 1.0, ("B", 0): 2.0}, {("F", 0): 1.0, ("B", 0): 2.003}]
    short, long = pipeline("1f1b", 2, 4000, 1, close), pipeline("1f1b", 2, 4000, 1, close, whole=True)
    assert short.left_out > 0
    assert short.makespan == pytest.approx(long.makespan, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([("1f1b", 1), ("interleaved-1f1b", 2), ("gpipe", 1), ("zbv", 2)]), st.integers(2, 5), st.integers(1, 30),
       st.floats(0, 1), st.booleans(), st.integers(0, 10**6))  # fmt: skip
def test_no_step_is_shorter_than_its_busiest_rank_and_its_path_is_as_long_as_it(
    kind: tuple[str, int], p: int, rounds: int, send: float, blocking: bool, seed: int
) -> None:
    (name, v), dice = kind, random.Random(seed)
    durations = [{(k, c): dice.uniform(1, 2) * x for k, x in (("F", 1), ("B", 2), ("I", 1), ("W", 1)) for c in range(v)} for _ in range(p)]
    run = pipeline(name, p, rounds * p, v, durations, send, blocking=blocking)
    assert run.makespan >= max(run.busy) - 1e-9
    path = critical_path(run)
    assert sum(path.actions.values()) + path.transfers == pytest.approx(max(run.ended) + run.left_out * run.pace)
    # A leg waits for nothing, or for one transfer.
    assert all(leg.transfer == pytest.approx(0, abs=1e-9) or leg.transfer == pytest.approx(send) for leg in legs(run))


def test_one_rank_alone_is_its_work() -> None:
    # 7 micro-batches of 1.9 + 3.5 seconds
    run = pipeline("1f1b", 1, 7, 1, [{("F", 0): 1.9, ("B", 0): 3.5}])
    assert run.makespan == pytest.approx(7 * 5.4)
    assert sum(critical_path(run).actions.values()) == pytest.approx(7 * 5.4)


def test_transfers_cost_twice_at_the_corner() -> None:
    # 2 stages, 1 micro-batch: F, send, F, B, send, B = 1 + 0.5 + 1 + 2 + 0.5 + 2
    assert pipeline("1f1b", 2, 1, 1, equal(2), send=0.5).makespan == pytest.approx(7.0)


def test_a_stage_that_waits_for_its_sends_is_later() -> None:
    # 2 stages, 2 micro-batches, F = B = 1, send 0.5. Rank 0: F0 0-1, held to 1.5, F1 1.5-2.5, held to 3. Rank 1: F0 1.5-2.5, B0
    # 2.5-3.5, held to 4, F1 4-5, B1 5-6. Rank 0: B0 4-5, B1 6.5-7.5. Without holding, rank 1 does F1 3.5-4.5, B1 4.5-5.5: 7.
    one = [{("F", 0): 1.0, ("B", 0): 1.0}] * 2
    assert pipeline("1f1b", 2, 2, 1, one, send=0.5).makespan == pytest.approx(7.0)
    assert pipeline("1f1b", 2, 2, 1, one, send=0.5, blocking=True).makespan == pytest.approx(7.5)


def test_the_path_of_a_pipeline_by_hand() -> None:
    run = pipeline("1f1b", 2, 1, 1, equal(2), send=0.5)
    assert [(str(run.graph.actions[leg.action]), leg.transfer) for leg in legs(run)] == [
        ("0F0", 0.0), ("1F0", 0.5), ("1B0", 0.0), ("0B0", 0.5),
    ]  # fmt: skip


def test_a_slow_stage_sets_the_pace() -> None:
    durations = equal(4)
    slow = [*durations[:3], {key: 2 * value for key, value in durations[3].items()}]
    fast, late = pipeline("1f1b", 4, 400, 1, durations).makespan, pipeline("1f1b", 4, 400, 1, slow).makespan
    assert late == pytest.approx(2 * fast, rel=0.02)


@pytest.mark.parametrize("blocking", [False, True])
def test_the_path_runs_along_the_slowest_stage(blocking: bool) -> None:
    durations = [*equal(3), {("F", 0): 1.2, ("B", 0): 2.4}]
    run = pipeline("1f1b", 4, 16, 1, durations, 0.01, blocking=blocking)
    # 16·3.6 seconds of stage 3 with its own sends; before and after it a forward and a backward of each other stage
    assert critical_path(run).by_rank()[3] == pytest.approx(16 * 3.6)


def test_jitter_costs_more_the_more_ranks_wait_for_each_other() -> None:
    durations = equal(4)
    run = pipeline("1f1b", 4, 16, 1, durations)
    alone = jitter(run, durations, 0.0, 0.05, together=1, replicas=1)
    many = jitter(run, durations, 0.0, 0.05, together=8, replicas=64)
    assert run.makespan < alone.mean < many.mean <= many.worst
    # The largest of 8 standard normals is 1.42 in the mean: the busy ranks last about 1 + 0.05·1.42 times as long.
    assert many.mean / run.makespan == pytest.approx(1 + 0.05 * 1.42, abs=0.03)
