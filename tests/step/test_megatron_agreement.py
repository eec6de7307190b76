"""The Megatron dialect against megatron-core itself: every call of a step, on many plans and ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tokenwire.model.architecture import Architecture, Experts, FeedForward
from tokenwire.step import operations

from .models import gpt, llama, plan_of

pytest.importorskip("torch")
pytest.importorskip("megatron.core")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

SP = {"sequence_parallel": True}
DO = {"use_distributed_optimizer": True}
A2A = {"moe_token_dispatcher_type": "alltoall"}
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
OVERLAP = {**DO, "overlap_grad_reduce": True, "overlap_param_gather": True, "ddp_bucket_size": 20_000}
E8 = Experts(8, 2, 96)
SHARED = Experts(8, 2, 96, shared=FeedForward(64, True))

# (model, world, plan, ranks, training)
CASES: list[tuple[Architecture, int, dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    # Tensor parallelism, with and without sequence parallelism; the optimizer; tied and untied; padding of vocabularies.
    (gpt(), 2, {"tp": 2}, (0, 1), {}),
    (gpt(), 8, {"tp": 4}, (0, 5), {}),
    (gpt(), 8, {"tp": 8, **SP}, (3,), {}),
    (gpt(tied=False), 8, {"tp": 2, **SP, **DO}, (0,), {}),
    (gpt(vocabulary=50), 8, {"tp": 2, "make_vocab_size_divisible_by": 1}, (0,), {}),
    (gpt(vocabulary=997), 8, {"tp": 4, "make_vocab_size_divisible_by": 8, **DO}, (2,), {}),
    (gpt(), 8, {}, (0,), {}),
    (gpt(), 4096, DO, (17,), {}),
    (llama(), 8, {"tp": 2}, (0,), {}),
    (llama(), 8, {"tp": 4, **SP, **DO, "grad_reduce_in_fp32": True}, (1,), {}),
    (llama(), 8, {"tp": 8, **SP}, (1,), {}),
    (llama(), 8, {"tp": 8}, (6,), {}),
    (llama(kv_heads=1), 8, {"tp": 4, **SP}, (1,), {}),
    (llama(qk_norm=True), 8, {"tp": 2}, (1,), {}),
    (llama(qk_norm=True), 8, {"tp": 2, **SP}, (1,), {}),
    (llama(), 8, {"tp": 2, "cross_entropy_loss_fusion": True}, (0,), {}),
    (llama(), 8, {"tp": 2}, (0,), {"precision": "fp16"}),
    (llama(), 8, {"tp": 2, **DO}, (0,), {"precision": "fp32"}),
    (llama(), 8, {"tp": 2, **SP}, (0,), {"micro_batch": 2, "global_batch": 16}),
    (llama(tied=True), 8, {"tp": 2, "grad_reduce_in_fp32": True}, (0,), {"optimizer": "sgd"}),
    # Muon, on every rank and shared out tensor by tensor.
    (gpt(), 8, {"tp": 2}, (0, 3), {"optimizer": "muon"}),
    (gpt(), 8, {"tp": 2}, (0, 3), {"optimizer": "dist_muon"}),
    (llama(8), 8, {"pp": 2, "vpp": 2}, (0, 7), {"optimizer": "dist_muon"}),
    (llama(4, experts=E8), 8, {"ep": 2, **A2A}, (0, 5), {"optimizer": "dist_muon"}),
    # Pipelines: first, middle, last stage; uneven; virtual stages; varying lengths.
    (gpt(), 8, {"tp": 2, "pp": 2, **SP, **DO, "make_vocab_size_divisible_by": 8}, (0, 7), {}),
    (gpt(tied=False), 16, {"tp": 2, "pp": 4}, (0, 5, 15), {}),
    (gpt(5), 8, {"pp": 4, "decoder_first_pipeline_num_layers": 1, "decoder_last_pipeline_num_layers": 2}, (0, 3, 7), {}),
    (gpt(7), 8, {"pp": 4, "decoder_first_pipeline_num_layers": 1, **DO}, (0, 3), {}),
    (gpt(6), 8, {"tp": 2, "pp": 2, "vpp": 2, "account_for_embedding_in_pipeline_split": True,
                 "account_for_loss_in_pipeline_split": True}, (0, 7), {}),
    (gpt(7), 8, {"pp": 4, "account_for_loss_in_pipeline_split": True}, (0, 7), {}),
    (llama(8), 8, {"tp": 2, "pp": 2, "vpp": 2, **SP, **DO}, (0, 7), {}),
    (llama(8), 8, {"pp": 4, "vpp": 2}, (0, 3, 7), {}),
    (llama(8), 8, {"pp": 2, "vpp": 4, "tp": 2}, (0, 5), {}),
    (llama(8, tied=True), 16, {"pp": 4, "vpp": 2, "tp": 2, **DO}, (0, 6, 15), {}),
    (llama(8), 8, {"pp": 2, "vpp": 2, "microbatch_group_size_per_vp_stage": 4}, (0, 7), {"global_batch": 32}),
    (llama(), 8, {"tp": 2, "pp": 2, "variable_seq_lengths": True}, (0, 7), {}),
    (llama(), 8, {"tp": 2, "pp": 2, "calculate_per_token_loss": True}, (0, 7), {}),
    (llama(), 8, {"tp": 2, "pp": 2}, (0, 7), {"precision": "fp16"}),
    (llama(), 1024, {"tp": 8, "pp": 4, **SP, **DO}, (0, 300, 1023), {}),
    (llama(vocabulary=997), 4096, {"tp": 8, "pp": 4, "cp": 2, **SP, **DO, "grad_reduce_in_fp32": True}, (0, 2047, 4095), {}),
    (llama(8, experts=E8), 2048, {"tp": 4, "pp": 4, "ep": 8, "etp": 1, **SP, **A2A, **DO}, (17, 1000, 2047), {}),
    (llama(6), 8, {"pp": 4, "pipeline_model_parallel_layout": "Et|tt|tt|tL"}, (0, 3, 7), {}),
    (llama(6), 8, {"pp": 2, "tp": 2, **SP, **DO, "pipeline_model_parallel_layout": [["embedding"] + ["decoder"] * 4, ["decoder"] * 2 + ["loss"]]}, (0, 7), {}),
    (gpt(6), 8, {"tp": 2, "pp": 2, "pipeline_model_parallel_layout": "E|tt|t*2|ttL", **DO}, (0, 7), {}),
    (llama(4, tied=True), 8, {"pp": 4, "pipeline_model_parallel_layout": "Et|(tt|)*1,t|L"}, (0, 4, 7), {}),
    (llama(7), 16, {"pp": 4, "vpp": 2, "tp": 2, **SP, "pipeline_model_parallel_layout": "Et|t|t|t|t|t|t|L"}, (0, 7, 15), {}),
    # Context parallelism (outside attention); optimizer instances; overlap; buckets.
    (llama(), 8, {"cp": 2, "tp": 2, **SP, **DO}, (0, 7), {}),
    (llama(), 8, {"cp": 4, "pp": 2}, (0, 7), {}),
    (llama(), 16, {"cp": 2, "tp": 2, **DO, "num_distributed_optimizer_instances": 2}, (0, 7), {}),
    (llama(), 16, {**DO, "num_distributed_optimizer_instances": 4}, (5,), {}),
    (llama(8), 8, OVERLAP, (0,), {}),
    (llama(8), 8, {"pp": 2, **OVERLAP}, (0, 7), {}),
    (llama(8), 8, {"pp": 4, "vpp": 2, **OVERLAP}, (0, 3, 7), {}),
    (llama(8), 8, {"overlap_grad_reduce": True, "ddp_bucket_size": 30_000}, (0,), {}),
    (gpt(), 8, {**OVERLAP, "tp": 2}, (0,), {}),
    (llama(), 8, {**DO, "pad_buckets_for_high_nccl_busbw": True}, (0,), {}),
    (llama(), 8, {"tp": 2, **DO, "reduce_scatter_with_fp32_accumulation": True}, (0,), {}),
    (llama(), 8, {**DO, "log_num_zeros_in_grad": True}, (0,), {}),
    # Recomputation.
    (llama(), 8, {"tp": 2, **SP, **FULL}, (0,), {}),
    (llama(), 8, {"tp": 2, "pp": 2, **FULL, "recompute_method": "block"}, (0, 7), {}),
    (llama(), 8, {"tp": 2, **SP, "recompute_granularity": "selective", "recompute_modules": ["mlp", "core_attn"]}, (0,), {}),
    (llama(), 8, {"tp": 2, **FULL, "distribute_saved_activations": True}, (0,), {}),
    (llama(), 8, {"tp": 2, **FULL, "recompute_num_layers": 2, "distribute_saved_activations": True}, (0,), {}),
    # Experts.
    (llama(experts=E8), 8, {"ep": 2, **A2A}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 8, **A2A, **DO}, (3,), {}),
    (llama(experts=E8), 8, {"ep": 4, "tp": 2, **SP, **A2A, **DO}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, "tp": 2, "etp": 1, **SP, **A2A, **DO}, (0, 5), {}),
    (llama(experts=E8), 8, {"ep": 2, "pp": 2, "tp": 2, **SP}, (0, 5), {}),
    (llama(experts=E8), 8, {"ep": 1, "tp": 2, **SP, **A2A}, (0,), {}),
    (llama(experts=E8, dense_first=1), 8, {"ep": 2, "pp": 2, **A2A, **DO}, (0, 7), {}),
    (llama(experts=SHARED), 8, {"ep": 2, "tp": 2, **SP, "moe_aux_loss_coeff": 0.01}, (0,), {}),
    (llama(experts=SHARED), 8, {"ep": 2, "tp": 2, **SP, **A2A, "moe_router_enable_expert_bias": True}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, "cp": 2, **A2A, "moe_aux_loss_coeff": 0.01,
                            "moe_router_load_balancing_type": "seq_aux_loss"}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, "cp": 2, **A2A, "moe_aux_loss_coeff": 0.01,
                            "moe_router_load_balancing_type": "global_aux_loss"}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, **A2A, "moe_router_dtype": "fp32", **FULL}, (0,), {}),
    (llama(experts=SHARED), 8, {"ep": 2, "tp": 2, **SP, **A2A, "recompute_granularity": "selective",
                                "recompute_modules": ["moe"]}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, **A2A, "moe_expert_capacity_factor": 1.0,
                            "moe_pad_expert_input_to_capacity": True}, (0,), {}),
    (llama(experts=E8), 16, {"ep": 2, **A2A, **DO, "num_distributed_optimizer_instances": 2}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, "tp": 2, **SP, **A2A, **OVERLAP}, (0,), {}),
    (llama(experts=E8), 8, {"ep": 2, "pp": 2, **A2A}, (0,), {"precision": "fp16"}),
    (llama(8, experts=E8), 8, {"ep": 2, "pp": 2, "vpp": 2, "tp": 2, **SP, **A2A, **DO}, (0, 7), {}),
]  # fmt: skip


def _name(case: tuple[Architecture, int, dict[str, Any], tuple[int, ...], dict[str, Any]]) -> str:
    arch, world, options, _, training = case
    said = [f"{k}={v}" if not isinstance(v, bool) else k for k, v in {**options, **training}.items()]
    return f"{arch.name}{len(arch.layers)}-{world}-" + ",".join(said)


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_every_call_agrees(case: Any) -> None:
    from tokenwire.measure.dryrun.megatron import record

    arch, world, options, ranks, training = case
    plan = plan_of(arch, world, options, **training)
    predicted = operations(arch, plan)
    for rank in ranks:
        seen: dict[Any, int] = {}
        for row in record(arch, plan, rank).iter_rows(named=True):
            if row["phase"] != "setup":
                # The group by its real members: two names of the same ranks are the same group.
                members = tuple(plan.members(row["group"], rank).tolist())
                assert len(members) == row["group_size"]
                key = (row["op"], members, row["phase"], row["elements"], row["dtype"])
                seen[key] = seen.get(key, 0) + row["count"]
        said: dict[Any, int] = {}
        for row in predicted.iter_rows(named=True):
            # What the training script says, and attention's own kernels, are not part of the dry run.
            outside = row["source"].startswith(("Megatron-LM", "TransformerEngine"))
            if row["stage"] == plan.stage_of(rank) and not outside:
                members = tuple(plan.members(row["group"], rank).tolist())
                key = (row["op"], members, row["phase"], row["elements"], row["dtype"])
                said[key] = said.get(key, 0) + row["count"]
        assert said == seen


def test_a_wrong_prediction_is_seen() -> None:
    # The comparison can fail: the calls of a plan without sequence parallelism are not those with it.
    import polars as pl

    from tokenwire.measure.dryrun.megatron import record

    arch = gpt()
    said = [
        set(record(arch, plan_of(arch, 2, options), 0).filter(pl.col("phase") != "setup")["op"])
        for options in ({"tp": 2}, {"tp": 2, **SP})
    ]
    assert said[0] == {"all_reduce"}
    assert said[1] == {"all_reduce", "all_gather", "reduce_scatter"}
