"""Every call of DeepSpeed's own engine on a fake world is the one predicted (where DeepSpeed is installed)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step.models import gpt, llama, plan_of
from tokenwire.model.architecture import Architecture

pytestmark = [pytest.mark.torch, pytest.mark.slow]

L2, ODD, TIED = llama(2, width=160), llama(2, 90, 6, 3, 1001, width=251), llama(2, width=160, tied=True)
L4, V1024 = llama(4, width=160), llama(2, width=160, vocabulary=1024)
NONE_STAY = {"stage3_param_persistence_threshold": 0}

CASES: list[tuple[Architecture, int, dict[str, Any], int]] = [
    *((L2, 8, {"zero_stage": stage}, 3) for stage in range(4)),
    *((ODD, 8, {"zero_stage": stage}, 7) for stage in (1, 2, 3)),
    (ODD, 8, {"zero_stage": 2, "reduce_bucket_size": 40_000}, 7),
    (ODD, 64, {"zero_stage": 1, "reduce_bucket_size": 40_000}, 33),
    (ODD, 8, {"zero_stage": 2, "reduce_scatter": False, "reduce_bucket_size": 40_000}, 3),
    (L2, 8, {"zero_stage": 1, "communication_data_type": "fp32"}, 3),
    (TIED, 8, {"zero_stage": 1}, 7),
    (gpt(2, tied=False), 8, {"zero_stage": 2}, 6),
    (L2, 8, {"zero_stage": 3, **NONE_STAY}, 7),
    (L2, 8, {"zero_stage": 3, "stage3_param_persistence_threshold": 9_000}, 7),
    (L2, 8, {"zero_stage": 3, "reduce_bucket_size": 40_000, "stage3_prefetch_bucket_size": 10_000, **NONE_STAY}, 7),
    (L2, 8, {"zero_stage": 3, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 30_000, **NONE_STAY}, 7),
    (ODD, 1024, {"zero_stage": 3, "stage3_max_reuse_distance": 50_000, "stage3_prefetch_bucket_size": 30_000,
                 "stage3_max_live_parameters": 100_000, **NONE_STAY}, 7),
    (TIED, 8, {"zero_stage": 3, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0, **NONE_STAY}, 7),
    (L2, 8, {"zero_stage": 1, "cp": 4}, 7),
    (L2, 8, {"zero_stage": 2, "cp": 2}, 7),
    (L2, 8, {"zero_stage": 3, "cp": 4, **NONE_STAY}, 7),
    (L2, 8, {"zero_stage": 0, "cp": 4}, 7),
    (L2, 8, {"zero_stage": 3, "zero_hpz_partition_size": 4, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0,
             **NONE_STAY}, 7),
    # ZeRO++
    (V1024, 8, {"zero_stage": 3, "zero_quantized_weights": True, **NONE_STAY}, 3),
    (V1024, 8, {"zero_stage": 3, "zero_quantized_weights": True, "zero_hpz_partition_size": 4, "stage3_max_reuse_distance": 0,
                "stage3_prefetch_bucket_size": 0, **NONE_STAY}, 3),
    (V1024, 16, {"zero_stage": 3, "zero_quantized_gradients": True}, 9),
    (V1024, 8, {"zero_stage": 3, "zero_quantized_gradients": True, "reduce_bucket_size": 40_000}, 3),
    # Offload, and other ways to fill and to sum buckets
    (L2, 8, {"zero_stage": 2, "offload_optimizer": "cpu"}, 3),
    (L2, 8, {"zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"}, 3),
    (ODD, 8, {"zero_stage": 2, "use_multi_rank_bucket_allreduce": False, "reduce_bucket_size": 40_000}, 3),
    (ODD, 8, {"zero_stage": 2, "round_robin_gradients": True, "reduce_bucket_size": 40_000}, 3),
    (ODD, 8, {"zero_stage": 2, "contiguous_gradients": False, "reduce_bucket_size": 40_000}, 3),
    (ODD, 8, {"zero_stage": 3, "reduce_scatter": False, "reduce_bucket_size": 40_000}, 3),
    (llama(2, width=160, qk_norm=True), 8, {"zero_stage": 3, "reduce_bucket_size": 300, **NONE_STAY}, 3),
    # The pipeline
    (L4, 4, {"pp": 2}, 0),
    (L4, 8, {"pp": 4, "zero_stage": 1}, 2),
    (llama(5, width=160), 4, {"pp": 2}, 3),
    (llama(4, width=160, tied=True), 4, {"pp": 2, "zero_stage": 1}, 0),
    (llama(4, width=160, tied=True), 4, {"pp": 2}, 3),
    (gpt(4, tied=False), 8, {"pp": 2, "zero_stage": 1}, 4),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}-" + ",".join(f"{k}={v}" for k, v in case[2].items()))
def test_every_call_agrees(case: Any) -> None:
    pytest.importorskip("deepspeed", reason="DeepSpeed is installed apart")
    from tokenwire.measure.dryrun import check

    arch, gpus, options, rank = case
    dp = gpus // options.get("cp", 1) // options.get("pp", 1)
    micro_batches = 4 if "pp" in options else 2
    table = check(arch, plan_of(arch, gpus, {"dialect": "deepspeed", **options}, global_batch=micro_batches * dp), rank)
    assert table["equal"].drop_nulls().len()
    assert table.filter(~table["equal"]).to_dicts() == []
