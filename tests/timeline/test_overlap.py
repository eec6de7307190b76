"""Experts' exchanges beside another micro-batch: what hides them, and the passes that have no partner."""

import pytest

from tokenwire.model import preset
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.communication import Overlap
from tokenwire.timeline.compute import Work
from tokenwire.timeline.overlap import Flags, unpaired, waits

BESIDE = Flags(tensor=False, sharded=True, gradients=True, weights=False, experts=True)
WORK = Work(forward=2.0, input=2.0, weight=2.0)


def plan(batch: int, **options: object) -> Plan:
    config = read_plan({"moe_token_dispatcher_type": "alltoall", **options})
    return resolve(config, TrainingConfig(global_batch=batch, micro_batch=1), preset("qwen3-30b-a3b"), 8)


def exposed(seconds: float, alone: float = 0.0, flag: Flags = BESIDE) -> float:
    return waits({Overlap("ep"): seconds}, "forward", WORK, flag, 1, 100, alone=alone)["ep"]


def test_a_forward_and_a_backward_hide_half_each() -> None:
    # 2 s forward and 4 s backward run together: each phase's exchange has 3 s of them
    assert exposed(2.9) == pytest.approx(0.029)  # but for its first piece of 100
    assert exposed(5.0) == pytest.approx(2.0)
    assert exposed(5.0, flag=BESIDE._replace(experts=False)) == 5.0


def test_passes_without_a_partner_wait_for_all() -> None:
    # 5 s, of which 2 are exposed anyway: a quarter of the passes waits for the other 3 too
    assert exposed(5.0, alone=0.25) == pytest.approx(2.75)
    assert exposed(5.0, alone=1.0) == 5.0


def test_the_share_of_passes_without_a_partner() -> None:
    # 8 ranks, 40 sequences: 5 micro-batches, the first forward and the last backward alone
    assert unpaired(plan(40, ep=8)) == pytest.approx(1 / 5)
    # pp 2, vpp 4 (6 layers each), 4 ranks of data: 8 micro-batches; (2-1) + (4-1)·2 = 7 of 32 forwards
    assert unpaired(plan(32, ep=4, pp=2, vpp=4)) == pytest.approx(7 / 32)
    assert unpaired(plan(8, ep=8)) == 1.0
