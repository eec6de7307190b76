"""Schedules against those that torch.distributed.pipelining generates, and by their known bubbles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.plan.pipelining import ScheduleName
from tokenwire.plan.torchtitan import SCHEDULES as TORCH_NAMES
from tokenwire.plan.torchtitan import Schedule as TorchSchedule
from tokenwire.plan.torchtitan import rounds
from tokenwire.step.schedules import SCHEDULES, Action, Message, Schedule, schedule, timing, v_rank

CLASSES = {
    "gpipe": ("ScheduleGPipe", 1), "1f1b": ("Schedule1F1B", 1), "interleaved-1f1b": ("ScheduleInterleaved1F1B", 2),
    "zb-h1": ("ScheduleInterleavedZeroBubble", 1), "zbv": ("ScheduleZBVZeroBubble", 2),
    "dualpipev": ("ScheduleDualPipeV", 2), "looped-bfs": ("ScheduleLoopedBFS", 2),
}  # fmt: skip


def _letter(computation: Any) -> str:
    return str(getattr(computation, "value", computation))


def _torch_order(name: str, ranks: int, micro_batches: int, chunks: int) -> list[list[Action]]:
    """Return the order that torch generates, without its pauses and reductions."""
    from torch.distributed.pipelining import schedules as torch_schedules

    def stage(index: int, size: int) -> Any:
        made = mock.MagicMock()
        made.group_size, made.group_rank, made.num_stages = size, 0, ranks * chunks
        made.stage_index, made.is_first, made.is_last, made.has_backward = index, index == 0, False, True
        made.stage_index_to_group_rank = {i: i % size for i in range(ranks * chunks)}
        return made

    cls = getattr(torch_schedules, CLASSES[name][0])
    if chunks == 1 and name in ("gpipe", "1f1b"):
        made = cls(stage(0, ranks), micro_batches)
        made._num_stages = ranks
        order = made._get_pipeline_order()
    else:
        order = cls([stage(i * ranks, ranks) for i in range(chunks)], micro_batches).pipeline_order
    kinds = {"F": "F", "B": "B", "I": "I", "W": "W"}
    out = []
    for rank in range(ranks):
        actions = []
        for entry in order[rank]:
            for action in [] if entry is None else (entry.sub_actions or (entry,)):
                kind = kinds.get(_letter(action.computation_type))
                if kind:
                    actions.append(Action(kind, action.stage_index, action.microbatch_index))  # type: ignore[arg-type]
        out.append(actions)
    return out


@pytest.mark.torch
@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
@pytest.mark.parametrize("name", ["Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS"])
def test_rounds_that_are_no_multiple_of_the_ranks_are_those_of_torch(name: str, ranks: int, chunks: int) -> None:
    """Every number of micro-batches that torch takes, and no other: it must be a multiple of its rounds."""
    pytest.importorskip("torch")
    own = TORCH_NAMES[name]
    taken = []
    for micro_batches in range(1, 4 * ranks):
        try:
            theirs = _torch_order(own, ranks, micro_batches, chunks)
        except ValueError:
            assert micro_batches % rounds(ranks, micro_batches)
            continue
        taken.append(micro_batches)
        group = micro_batches // rounds(ranks, micro_batches)
        assert [list(row) for row in schedule(own, ranks, micro_batches, chunks, group).ranks] == theirs
    # pytorch/pytorch #129597: 4 ranks take 5, 6, 10 and 15 micro-batches.
    assert ranks != 4 or {5, 6, 10, 15} <= set(taken)


def test_every_schedule_of_torch_has_one_name() -> None:
    assert set(TORCH_NAMES) == set(get_args(TorchSchedule))
    assert set(TORCH_NAMES.values()) == set(CLASSES) <= set(SCHEDULES)
    assert set(get_args(ScheduleName)) == set(SCHEDULES)


@pytest.mark.torch
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("name", CLASSES)
def test_the_order_is_that_of_torch(name: str, ranks: int, rounds: int) -> None:
    pytest.importorskip("torch")
    micro_batches = ranks * rounds * (2 if name == "dualpipev" else 1)
    for chunks in {"interleaved-1f1b": (2, 3), "zb-h1": (1, 2, 3)}.get(name, (CLASSES[name][1],)):
        ours = schedule(name, ranks, micro_batches, chunks)
        theirs = _torch_order(name, ranks, micro_batches, chunks)
        if name == "1f1b":
            # torch's listing numbers the forwards of the last rank from 1; what it runs (_step_microbatches) from 0.
            assert all(action.micro_batch >= 1 for action in theirs[-1] if action.kind == "F")
            theirs[-1] = [a._replace(micro_batch=a.micro_batch - 1) if a.kind == "F" else a for a in theirs[-1]]
        assert [list(actions) for actions in ours.ranks] == theirs


DUAL = json.loads((Path(__file__).parent / "data" / "dualpipe.json").read_text())["cases"]


def _written(ours: Schedule, rank: int) -> str:
    """Return a rank's actions and batches of messages as the recording writes them."""
    half = ours.micro_batches // 2

    def told(event: Action | Message) -> str:
        if ours.name == "dualpipe":
            return f"{event.kind}{event.direction}:{event.micro_batch - event.direction * half}"
        return f"{event.kind}{int(event.stage != rank)}:{event.micro_batch}"

    def peer(message: Message) -> int:
        step = 1 if (message.op == "send") == (message.kind == "F") else -1
        if ours.name == "dualpipe":
            return rank + (-step if message.direction else step)
        return v_rank(message.stage + step, len(ours.ranks))

    out: list[str] = []
    for place, action in enumerate([*ours.ranks[rank], None]):
        batch = [f"{'>' if x.op == 'send' else '<'}{told(x)}@{peer(x)}" for x in ours.messages[rank] if x.before == place]
        out += ["|", *batch, "|"] if batch else []
        out += [] if action is None else [told(action)]
    return " ".join(out)


@pytest.mark.parametrize("case", DUAL, ids=lambda case: f"{case['schedule']}-{case['ranks']}-{case['micro_batches']}")
def test_actions_sends_and_receives_are_those_of_deepseek(case: dict[str, Any]) -> None:
    ours = schedule(case["schedule"], case["ranks"], case["micro_batches"])
    assert [_written(ours, rank) for rank in range(case["ranks"])] == case["log"]


@given(st.sampled_from(["dualpipe", "dualpipev"]), st.integers(1, 6), st.integers(0, 4))
def test_each_send_of_dualpipe_has_its_receive(name: str, half: int, more: int) -> None:
    ranks = 2 * half
    ours = schedule(name, ranks, 2 * ranks + 2 * more)
    ends: dict[str, list[tuple[Any, ...]]] = {"send": [], "recv": []}
    for row in ours.messages:
        for x in row:
            # A receive is named by the stage that sends.
            stage = x.stage if x.op == "send" else x.stage - 1 if x.kind == "F" else x.stage + 1
            ends[x.op].append((x.kind, stage, x.micro_batch, x.direction))
    assert sorted(ends["send"]) == sorted(ends["recv"])
    assert len(set(ends["send"])) == len(ends["send"])


@given(st.integers(1, 8), st.integers(1, 5), st.sampled_from(sorted(SCHEDULES)))
def test_every_micro_batch_passes_every_stage_once(ranks: int, rounds: int, name: str) -> None:
    micro_batches = 2 * ranks * rounds
    if name == "dualpipe" and ranks % 2:
        return
    plan = schedule(name, ranks, micro_batches)
    timing(plan)  # no rank waits for ever
    actions = [action for rank in plan.ranks for action in rank]
    assert len(actions) == len(set(actions))
    expected = {(s, i) for s in range(plan.stages) for i in range(micro_batches)}
    assert {(a.stage, a.micro_batch) for a in actions if a.kind == "F"} == expected
    assert {(a.stage, a.micro_batch) for a in actions if a.kind in "BI"} == expected
    assert {(a.stage, a.micro_batch) for a in actions if a.kind in "BW"} == expected


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (4, 16), (8, 32)])
def test_known_bubbles(ranks: int, micro_batches: int) -> None:
    # 1F1B and GPipe idle (p-1) of m + p-1; v virtual stages divide that by v (Narayanan et al. 2021, section 2.2).
    p, m = ranks, micro_batches
    assert timing(schedule("gpipe", p, m)).bubble == pytest.approx((p - 1) / (m + p - 1))
    assert timing(schedule("1f1b", p, m)).bubble == pytest.approx((p - 1) / (m + p - 1))
    assert timing(schedule("interleaved-1f1b", p, m, 2)).bubble == pytest.approx((p - 1) / (2 * m + p - 1))
    # ZB-H1 leaves (p-1)·(F + I - W) = p-1 of 3m + p-1 (Qi et al. 2024, table 2, F = I = W = 1).
    assert timing(schedule("zb-h1", p, m)).bubble == pytest.approx((p - 1) / (3 * m + p - 1))


def test_activations_in_flight() -> None:
    # 1F1B holds p - r micro-batches on rank r, GPipe all of them; ZBV holds p everywhere.
    assert timing(schedule("1f1b", 4, 8)).in_flight == (4, 3, 2, 1)
    assert timing(schedule("gpipe", 4, 8)).in_flight == (8, 8, 8, 8)
    assert timing(schedule("zbv", 4, 8)).in_flight == (4, 4, 4, 4)


def test_megatron_orders_its_interleaving_the_same() -> None:
    pytest.importorskip("megatron.core")
    from megatron.core.pipeline_parallel.schedules import get_schedule_table

    for p, m, v in ((2, 4, 2), (4, 8, 3), (4, 16, 2)):
        table = get_schedule_table(m, v, p)
        forwards = [a for a in schedule("interleaved-1f1b", p, m, v).ranks[0] if a.kind == "F"]
        assert [(a.micro_batch, a.stage // p) for a in forwards] == table


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches"),
    [("none", 2, 2), ("1f1b", 0, 2), ("1f1b", 2, 0), ("dualpipe", 3, 8), ("dualpipe", 4, 7), ("dualpipev", 4, 7),
     ("interleaved-1f1b", 4, 6)],
)  # fmt: skip
def test_what_cannot_be_is_one_line(name: str, ranks: int, micro_batches: int) -> None:
    with pytest.raises(InputError) as error:
        schedule(name, ranks, micro_batches)
    assert "\n" not in str(error.value)
