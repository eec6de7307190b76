"""Stages that are alike are said and timed once: the same comes out as where each is said and timed alone."""

from __future__ import annotations

from typing import Any

import pytest

from tokenwire.fabric import ClusterConfig
from tokenwire.model import preset
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.step import calls_of
from tokenwire.timeline import step_time

LLAMA, MIXED = "llama-3.1-8b", "nemotron-3-nano"
AGAIN = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3}
IN_8_BITS = {"first_last_layers_bf16": True, "fp8_recipe": "mxfp8"}

# (model, [plan] beside pp and vpp, precision)
PLANS: list[tuple[str, dict[str, Any], str]] = [
    (LLAMA, {"pp": 8}, "bf16"),
    (LLAMA, {"pp": 4, "vpp": 4, "tp": 2, "sequence_parallel": True, "use_distributed_optimizer": True, "overlap_grad_reduce": True}, "bf16"),
    (LLAMA, {"pp": 8, "cp": 2, "cp_comm_type": ["p2p"] * 13 + ["a2a"] * 19}, "bf16"),
    (LLAMA, {"pp": 4, "vpp": 2, **AGAIN}, "bf16"),
    (LLAMA, {"pp": 8, "lora_dim": 16, **AGAIN}, "bf16"),
    (LLAMA, {"pp": 8, "vpp": 4, "num_layers_at_start_in_bf16": 3, "num_layers_at_end_in_bf16": 2, **IN_8_BITS}, "fp8"),
    (LLAMA, {"pp": 8, "fp8_recipe": "tensorwise", "fp8_param_gather": True, "use_distributed_optimizer": True}, "fp8"),
    (LLAMA, {"pp": 4, "decoder_first_pipeline_num_layers": 7, "decoder_last_pipeline_num_layers": 5}, "bf16"),
    ("gemma-3-27b", {"pp": 4, "decoder_first_pipeline_num_layers": 16, "decoder_last_pipeline_num_layers": 14}, "bf16"),
    ("deepseek-v3", {"pp": 8, "ep": 4, "decoder_first_pipeline_num_layers": 8, "decoder_last_pipeline_num_layers": 5, "mtp_num_layers": 1}, "bf16"),
    ("mixtral-8x7b", {"pp": 8, "ep": 4, "moe_token_dispatcher_type": "alltoall"}, "bf16"),
    (MIXED, {"pp": 4, "ep": 2}, "bf16"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "precision"), PLANS)
def test_stages_together_are_as_each_alone(name: str, options: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arch, training = preset(name), TrainingConfig(sequence_length=4096, global_batch=128, micro_batch=1, precision=precision)
    plan, facts = resolve(read_plan(options), training, arch, 64), ClusterConfig(gpus=64).facts
    calls = calls_of(arch, plan)
    step = step_time(arch, plan, calls, facts)
    monkeypatch.setattr("tokenwire.step.dialects.megatron._kind", lambda _, stage: stage.index)
    monkeypatch.setattr("tokenwire.timeline.stage_time._kind", lambda _, stage, *__: (stage.index,))
    assert calls_of(arch, plan) == calls
    alone = step_time(arch, plan, calls, facts)
    assert (alone.step_seconds, alone.stages) == (step.step_seconds, step.stages)
