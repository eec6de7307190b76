"""Plans of torchtitan, DistributedDataParallel and DeepSpeed: meshes, stages, and what each framework refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step.models import gpt, llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.architecture import Experts
from tokenwire.plan.torchtitan_layout import layers_of_stages

TITAN, DDP, SPEED = ({"dialect": name} for name in ("torchtitan", "ddp", "deepspeed"))


def test_mesh_order() -> None:
    # (pp, dp_replicate, dp_shard, cp, tp), tp fastest: strides 1, 2, 4, 8, 16.
    plan = plan_of(llama(8), 32, {**TITAN, "tp": 2, "cp": 2, "pp": 2, "data_parallel_replicate_degree": 2})
    members = {name: plan.members(name, 0).tolist() for name in ("tp", "cp", "dp_shard", "dp_replicate", "pp", "fsdp")}
    assert members == {"tp": [0, 1], "cp": [0, 2], "dp_shard": [0, 4], "dp_replicate": [0, 8], "pp": [0, 16],
                       "fsdp": [0, 2, 4, 6]}  # fmt: skip


def test_layers_of_stages_by_hand() -> None:
    # 30 layers, one less on the first and the last of 8 stages: 32 places, 4 each.
    dealt = layers_of_stages(8, 30)
    assert dealt is not None
    assert [len(stage) for stage in dealt] == [3, 4, 4, 4, 4, 4, 4, 3]


def test_v_shaped_schedules_end_where_they_began() -> None:
    plan = plan_of(llama(8), 4, {**TITAN, "pp": 4, "pipeline_parallel_schedule": "ZBVZeroBubble"})
    assert (plan.stages[0].has_embedding, plan.stages[0].has_head) == (True, True)
    assert not any(stage.has_head for stage in plan.stages[1:])


@pytest.mark.parametrize(("options", "said"), [
    ({**TITAN, "tp": 3}, "tp = 3"),
    ({**TITAN, "pp": 8, "vpp": 2}, "has one stage a rank"),
    ({**TITAN, "pp": 8, "pipeline_parallel_schedule": "Interleaved1F1B"}, "would leave one without room"),
    ({**TITAN, "ep": 2}, "no experts"),
    ({**TITAN, "data_parallel_shard_degree": 0}, "must be -1"),
    ({**TITAN, "data_parallel_replicate_degree": 3}, "must divide"),
    ({**TITAN, "data_parallel_shard_degree": 3}, "that tp, pp and cp leave"),
    ({**TITAN, "fsdp_reshard_after_forward": "often"}, "fsdp_reshard_after_forward"),
    ({**DDP, "tp": 2}, "only replicates"),
    ({**DDP, "bucket_cap_mb": 0}, "bucket_cap_mb"),
    ({**SPEED, "tp": 2}, "takes it from the model"),
    ({**SPEED, "cp": 16}, "must divide"),
    ({**SPEED, "pp": 2, "zero_stage": 2}, "ZeRO 0 and 1 only"),
    ({**SPEED, "zero_stage": 1, "zero_quantized_weights": True}, "zero_stage = 3"),
    ({**SPEED, "zero_stage": 3, "zero_hpz_partition_size": 3}, "must divide"),
    ({**SPEED, "zero_stage": 4}, "zero_stage"),
])  # fmt: skip
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        plan_of(llama(8), 16, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("options", "training", "said"), [
    ({"expert_parallel_comm_backend": "deepep"}, {}, "needs expert parallelism"),
    ({"expert_parallel_comm_backend": "deepep", "tp": 2, "ep": 4, "etp": 2}, {}, "etp must be 1"),
    ({"pp": 2, "ep": 4, "pipeline_parallel_schedule": "DualPipeV", "activation_checkpoint_mode": "full"}, {}, "no activation checkpoints"),
    ({"tp": 4, "ep": 4, "etp": 2}, {}, "must be 1 or tp = 4"),
    # 2·tp·cp = 4 does not divide 66, though tp does.
    ({"tp": 2}, {"sequence_length": 66}, "2·tp·cp = 4"),
    ({"tp": 2, "enable_async_tensor_parallel": True, "enable_symm_mem_for_group": True}, {}, "with experts is not predicted"),
])  # fmt: skip
def test_what_torchtitan_refuses_of_experts_and_sequences(options: dict[str, Any], training: dict[str, Any], said: str) -> None:
    arch = llama(8, experts=Experts(8, 2, 96))
    with pytest.raises(InputError, match=said) as caught:
        plan_of(arch, 16, {**TITAN, **options}, **training)
    assert "nearest that works" in str(caught.value)


def test_async_tensor_parallelism_without_symmetric_memory_is_noted() -> None:
    plan = plan_of(llama(4), 8, {**TITAN, "tp": 2, "enable_async_tensor_parallel": True})
    assert any("changes nothing" in note for note in plan.notes)


def test_learned_positions_have_no_place_under_tensor_parallelism() -> None:
    with pytest.raises(InputError, match=r"learned positions.*nearest that works: tp = 1"):
        plan_of(gpt(4), 8, {**TITAN, "tp": 2})


def test_precision_without_fsdp_is_noted() -> None:
    plan = plan_of(llama(4), 2, {**TITAN, "tp": 2})
    assert any("fp32" in note for note in plan.notes)
