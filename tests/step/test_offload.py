"""Offload: what crosses the link to the host, what is left on the GPU, against DeepSpeed's own estimators, and how long it takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step.models import llama, plan_of
from tokenwire.errors import InputError
from tokenwire.fabric import preset
from tokenwire.model.architecture import Architecture
from tokenwire.model.parameters import parameters
from tokenwire.plan import Plan
from tokenwire.step import Transfer, calls_of, transfers_of
from tokenwire.timeline import step_time
from tokenwire.timeline.host import host_rate
from tokenwire.timeline.memory import memory

L2 = llama(2, width=160)
P = parameters(L2).total
NONE_STAY = {"stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
BOTH = {"zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"}


def speed(arch: Architecture, gpus: int = 4, micro_batches: int = 1, **options: Any) -> Plan:
    return plan_of(arch, gpus, {"dialect": "deepspeed", **options}, global_batch=micro_batches * gpus)


def moved(arch: Architecture, plan: Plan) -> tuple[Transfer, ...]:
    return transfers_of(arch, plan, calls_of(arch, plan))


def total(transfers: tuple[Transfer, ...], direction: str, phase: str | None = None) -> float:
    return sum(x.bytes for x in transfers if x.direction == direction and phase in (None, x.phase))


def test_without_offload_nothing_moves() -> None:
    plan = speed(L2, zero_stage=3)
    assert moved(L2, plan) == ()


@pytest.mark.parametrize("n", [1, 4])
def test_zero_3_by_hand(n: int) -> None:
    # Forward: every parameter once, in bf16; its own part of it from the host. Backward: the head, which ran last, is let go too.
    found = moved(L2, speed(L2, n, **BOTH, **NONE_STAY))
    assert total(found, "to_gpu", "forward") == pytest.approx(2 * P / n)
    # Backward: parameters again (the embedding is no module that backward needs) and gradients that are added to on the GPU.
    assert total(found, "to_gpu", "backward") == pytest.approx(4 * P / n, rel=0.35)
    # Reduced gradients in bf16 and once more in fp32; updated parameters stay on the host.
    assert total(found, "to_host") == pytest.approx((2 + 4) * P / n)
    assert total(found, "to_gpu", "optimizer") == 0


def test_zero_2_by_hand() -> None:
    # One micro-batch: gradients once in fp32, parameters back in bf16. Four: in bf16 four times more, and back three times.
    once, four = moved(L2, speed(L2, zero_stage=2, offload_optimizer="cpu")), moved(L2, speed(L2, 4, 4, zero_stage=2, offload_optimizer="cpu"))
    assert (total(once, "to_host"), total(once, "to_gpu")) == (P, 2 * P / 4)
    assert (total(four, "to_host"), total(four, "to_gpu")) == (P + 4 * 2 * P / 4, (2 + 3 * 2) * P / 4)


def test_a_drive_gets_what_the_host_would_keep() -> None:
    found = moved(L2, speed(L2, zero_stage=3, offload_optimizer="nvme"))
    # Master copy, two moments and gradients of 4 B each are read; gradients are written before, the others after the step.
    assert total(found, "from_nvme") == 16 * P / 4
    assert total(found, "to_nvme") == 16 * P / 4
    with pytest.raises(InputError, match="nvme_rate"):
        step_time(L2, speed(L2, zero_stage=3, offload_optimizer="nvme"), calls_of(L2, speed(L2, zero_stage=3)), preset("dgx-h100-superpod"))


def test_half_of_the_optimizer_is_half_of_what_moves() -> None:
    whole, half = (moved(L2, speed(L2, zero_stage=3, offload_optimizer="cpu", offload_optimizer_ratio=share)) for share in (1.0, 0.5))
    assert total(half, "to_host") == total(whole, "to_host") / 2


def test_fsdp_moves_shards_in_fp32() -> None:
    plan = plan_of(L2, 4, {"dialect": "torchtitan", "enable_cpu_offload": True, "fsdp_reshard_after_forward": "always"}, global_batch=4)
    found = moved(L2, plan)
    gathered = sum(x.count * x.elements for x in calls_of(L2, plan) if x.op == "all_gather" and x.parallelism == "fsdp")
    assert total(found, "to_gpu") == 4 * gathered / 4
    assert total(found, "to_host") == pytest.approx(4 * P / 4, rel=0.02)  # FSDP2 pads rows to a multiple of the ranks
    stage = memory(L2, plan).stages[0]
    assert [stage.of(kind) for kind in ("weights", "gradients", "optimizer")] == [0, 0, 0]
    with pytest.raises(InputError, match="enable_cpu_offload"):
        plan_of(L2, 1, {"dialect": "torchtitan", "enable_cpu_offload": True}, global_batch=4)


@pytest.mark.parametrize(("options", "key"), [
    ({"zero_stage": 0, "offload_optimizer": "cpu"}, "offload_optimizer"),
    ({"zero_stage": 2, "offload_param": "cpu"}, "offload_param"),
    ({"zero_stage": 2, "offload_optimizer": "nvme"}, "offload_optimizer"),
    ({"zero_stage": 2, "offload_optimizer": "cpu", "offload_optimizer_ratio": 0.5}, "offload_optimizer_ratio"),
])  # fmt: skip
def test_what_deepspeed_does_not_offload(options: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=key):
        speed(L2, **options)


def states(plan: Plan) -> dict[str, int]:
    stage = memory(L2, plan).stages[0]
    return {kind: stage.of(kind) for kind in ("weights", "gradients", "optimizer")}


@pytest.mark.torch
def test_states_left_are_those_of_deepspeeds_estimators() -> None:
    zero3 = pytest.importorskip("deepspeed.runtime.zero.stage3", reason="DeepSpeed is installed apart")
    zero2 = pytest.importorskip("deepspeed.runtime.zero.stage_1_and_2")
    largest = 64_000  # the embedding: 1,000 rows of 64
    for offload_param in (True, False):
        _, gpu, layer = zero3.estimate_zero3_model_states_mem_needs(P, largest, 4, 1, cpu_offload=True, cpu_offload_params=offload_param)
        found = states(speed(L2, zero_stage=3, offload_optimizer="cpu", offload_param="cpu" if offload_param else "none"))
        assert sum(found.values()) == pytest.approx(gpu - layer, abs=1)
    _, gpu = zero2.estimate_zero2_model_states_mem_needs(P, 4, 1, cpu_offload=True)
    assert sum(states(speed(L2, zero_stage=2, offload_optimizer="cpu")).values()) == gpu


def test_time_of_the_host() -> None:
    facts = preset("dgx-h100-superpod")
    plan = speed(L2, 8, zero_stage=2, offload_optimizer="cpu")
    step = step_time(L2, plan, calls_of(L2, plan), facts)
    # ZeRO-2 overlaps nothing by default: P/8 gradients of 4 B go to the host, P/8 parameters of 2 B come back, at 63 GB/s; the
    # processors of a node update the P parameters of its 8 GPUs, 10 billion in 2.57 s.
    assert host_rate(facts) == 63e9
    assert step.loads[0].host.exposed == pytest.approx(4 * P / 8 / 63e9)
    assert step.loads[0].host.optimizer == pytest.approx(P * 2.57 / 10e9 + 2 * P / 8 / 63e9)
    assert step.step_seconds == pytest.approx(step.pipeline_seconds + step.gradients_seconds + step.optimizer_seconds)
    faster = step_time(L2, plan, calls_of(L2, plan), facts.model_copy(update={"cpu_adam_rate": 1e12, "host_rate": 1e12}))
    assert faster.step_seconds < step.step_seconds


def test_a_host_whose_link_is_not_known() -> None:
    with pytest.raises(InputError, match="host_rate"):
        host_rate(preset("dgx-h100-superpod").model_copy(update={"gpu": "TPU v4"}))
