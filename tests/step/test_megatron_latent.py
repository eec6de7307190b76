"""Latent attention (MLA) in the Megatron dialect: against the framework itself, and what is told by names by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.step import test_megatron_agreement as agreement
from tests.step.models import latent, plan_of
from tokenwire.model.architecture import Experts, FeedForward
from tokenwire.step import operations

SP = {"tp": 2, "sequence_parallel": True}
DO = {"use_distributed_optimizer": True, "grad_reduce_in_fp32": True}
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
A2A = {"moe_token_dispatcher_type": "alltoall", "ep": 2}
DEEPSEEK = Experts(8, 2, 96, shared=FeedForward(64, True))


def again(*modules: str) -> dict[str, Any]:
    """Return the options of selective recomputation."""
    return {"recompute_granularity": "selective", "recompute_modules": list(modules)}


CASES: list[tuple[Any, int, dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    (latent(), 2, {"tp": 2}, (0,), {}),
    (latent(), 4, {**SP, **DO}, (0, 3), {}),
    (latent(q_rank=None), 4, {"tp": 4, "sequence_parallel": True}, (1,), {}),
    (latent(q_rank=None), 4, {"tp": 2}, (2,), {}),
    (latent(tied=True), 8, {**SP, "pp": 2, **DO}, (0, 7), {}),
    (latent(), 8, {**SP, **FULL, **DO}, (0,), {}),
    (latent(), 8, {"tp": 2, **FULL}, (0,), {}),
    (latent(), 8, {**SP, **again("mla_up_proj")}, (0,), {}),
    (latent(), 8, {"tp": 2, **again("mla_up_proj", "mlp")}, (0,), {}),
    (latent(), 8, {**SP, **again("core_attn")}, (0,), {}),
    (latent(), 8, {**SP, **DO, "overlap_grad_reduce": True, "overlap_param_gather": True, "ddp_bucket_size": 20_000}, (0,), {}),
    (latent(), 8, {**SP, **DO, "cp": 2}, (5,), {}),
    (latent(experts=DEEPSEEK, dense_first=1), 8, {**SP, **A2A, **DO, "pp": 2, "moe_router_enable_expert_bias": True}, (0, 7), {}),
    (latent(8, experts=DEEPSEEK, dense_first=1), 8, {**SP, **A2A, "pp": 2, "vpp": 2}, (0, 5), {}),
    (latent(experts=DEEPSEEK, dense_first=1), 8, {**SP, **A2A, **DO, "pp": 2, "mtp_num_layers": 1}, (0, 7), {}),
    (latent(), 8, {**SP, "mtp_num_layers": 1, "pp": 2, **again("mla_up_proj")}, (0, 7), {}),
    (latent(vocabulary=997), 1024, {"tp": 8, "sequence_parallel": True, "pp": 4, **DO}, (0, 300, 1023), {}),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=agreement._name)
def test_every_call_agrees(case: Any) -> None:
    pytest.importorskip("megatron.core")
    agreement.test_every_call_agrees(case)


def test_norms_inside_the_projections_are_not_summed_by_name() -> None:
    # Without sequence parallelism every rank sees the whole sequence, so that replicated parameters have the same gradient on all.
    step = operations(latent(), plan_of(latent(), 2, {"tp": 2}))
    assert step.filter(what="gradients of replicated parameters").is_empty()


def test_up_projections_run_again_gather_their_inputs_again() -> None:
    # 64 tokens of 48 compressed queries and 32 compressed keys and values, 4 layers · 4 micro-batches.
    step = operations(latent(), plan_of(latent(), 2, {**SP, **again("mla_up_proj")}))
    rows = step.filter(pl.col("what").str.ends_with("recomputed")).select("op", "count", "elements").rows()
    assert rows == [("all_gather", 16, 3072), ("all_gather", 16, 2048)]
