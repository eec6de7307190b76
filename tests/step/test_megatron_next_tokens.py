"""Multi-token prediction in the Megatron dialect: by hand, and against the dry run of the framework."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step import test_megatron_agreement as agreement
from tests.step.models import llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.architecture import Experts
from tokenwire.step import operations

SP = {"tp": 2, "sequence_parallel": True}
DO = {"use_distributed_optimizer": True, "grad_reduce_in_fp32": True}
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
BLOCK = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 5}
A2A = {"moe_token_dispatcher_type": "alltoall", "ep": 2}
BIAS = {"moe_router_enable_expert_bias": True, "moe_aux_loss_coeff": 0.01}
E8 = Experts(8, 2, 96)

CASES: list[tuple[Any, int, dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    (llama(), 8, {"mtp_num_layers": 1}, (0,), {}),
    (llama(), 8, {"mtp_num_layers": 1, "tp": 2}, (0,), {}),
    (llama(), 8, {"mtp_num_layers": 2, **SP, **DO}, (3,), {}),
    (llama(tied=True), 8, {"mtp_num_layers": 1, **SP, **DO}, (0,), {}),
    (llama(), 8, {"mtp_num_layers": 1, **SP, "pp": 2, **DO}, (0, 7), {}),
    (llama(tied=True), 8, {"mtp_num_layers": 1, **SP, "pp": 2}, (0, 7), {}),
    (llama(tied=True), 8, {"mtp_num_layers": 1, "tp": 2, "pp": 2, **DO}, (0, 7), {}),
    (llama(8), 8, {"mtp_num_layers": 1, **SP, "pp": 2, "vpp": 2}, (0, 6), {}),
    (llama(), 8, {"mtp_num_layers": 1, **SP, **FULL}, (0,), {}),
    (llama(), 8, {"mtp_num_layers": 1, "tp": 2, **FULL}, (0,), {}),
    (llama(), 8, {"mtp_num_layers": 1, **SP, **BLOCK}, (0,), {}),
    (llama(), 8, {"mtp_num_layers": 1, **DO, "overlap_grad_reduce": True, "ddp_bucket_size": 20000}, (0,), {}),
    (llama(experts=E8), 8, {"mtp_num_layers": 1, **SP, **A2A, **DO, **BIAS}, (0,), {}),
    (llama(experts=E8, dense_first=1), 8, {"mtp_num_layers": 1, **SP, **A2A, "pp": 2}, (0, 7), {}),
    # Context parallelism: a rank at an end of the group with two, in the middle of one with four.
    (llama(), 8, {"mtp_num_layers": 1, "cp": 2}, (0, 1), {"micro_batch": 2, "global_batch": 16}),
    (llama(), 8, {"mtp_num_layers": 2, "cp": 4, **SP}, (2, 5), {}),
    (llama(), 8, {"mtp_num_layers": 1, "cp": 2, "pp": 2}, (0, 7), {}),
    # Where a layout says: with the head, before it, with the tied copy in a third place.
    (llama(), 8, {"mtp_num_layers": 1, "pp": 2, "pipeline_model_parallel_layout": "Ettt|tmL", **DO}, (0, 7), {}),
    (llama(), 8, {"mtp_num_layers": 1, "pp": 4, "pipeline_model_parallel_layout": "Ett|tt|m|L"}, (0, 3, 5, 7), {}),
    (llama(), 8, {"mtp_num_layers": 2, "pp": 4, **SP, "pipeline_model_parallel_layout": "Ett|ttm*2||L", **DO}, (0, 3, 5, 7), {}),
    (llama(tied=True), 8, {"mtp_num_layers": 1, "pp": 4, **SP, "pipeline_model_parallel_layout": "Ett|t|tm|L", **DO}, (0, 3, 5, 7), {}),
    (llama(), 16, {"mtp_num_layers": 1, "pp": 4, "cp": 2, "pipeline_model_parallel_layout": "Ett|tt|m|L"}, (0, 8, 15), {}),
    # In a stage of their own with virtual stages; on the first rank, which then holds two copies of the embedding.
    (llama(8), 8, {"mtp_num_layers": 1, "pp": 4, **SP, "pipeline_model_parallel_layout": "Ett|t|t|t|tt|t|m|L"}, (0, 3, 5, 7), {}),
    (llama(4), 8, {"mtp_num_layers": 1, "pp": 4, "pipeline_model_parallel_layout": "Et|t||t|t||m|L"}, (0, 2, 5, 7), {"global_batch": 16}),
    (llama(4), 8, {"mtp_num_layers": 2, "pp": 2, "pipeline_model_parallel_layout": "Et|t|ttmm|L", **DO}, (0, 5), {}),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=agreement._name)
def test_every_call_agrees(case: Any) -> None:
    agreement.test_every_call_agrees(case)


def test_a_layer_by_hand() -> None:
    # tp 2 with sequence parallelism, 4 micro-batches of 64 tokens, h = 64: S = 4,096 elements, 2·S before the projection.
    options: dict[str, object] = {**SP}
    without = operations(llama(), plan_of(llama(), 8, options))
    having = operations(llama(), plan_of(llama(), 8, {**options, "mtp_num_layers": 1}))

    def calls(frame: Any, op: str, phase: str, elements: int) -> int:
        return int(frame.filter(op=op, phase=phase, elements=elements, group="tp")["count"].sum())

    # Forward, a micro-batch: embedding, two blocks: 3 scatters; two blocks, head, projection output: 4 gathers of S.
    assert calls(having, "reduce_scatter", "forward", 4096) - calls(without, "reduce_scatter", "forward", 4096) == 4 * 3
    assert calls(having, "all_gather", "forward", 4096) - calls(without, "all_gather", "forward", 4096) == 4 * 4
    assert calls(having, "all_gather", "forward", 8192) == 4
    # Gradients: tp 2 holds half of q, o 64·64, k, v 64·32, three of 64·176, projection 64·128; 5 norms of 64 whole.
    more = (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176 + 64 * 128) // 2 + 5 * 64
    (before,) = without.filter(what="gradients")["elements"]
    (after,) = having.filter(what="gradients")["elements"]
    assert after - before == more


def test_the_last_stage_embeds_too() -> None:
    plan = plan_of(llama(), 8, {**SP, "pp": 2, "mtp_num_layers": 1})
    frame = operations(llama(), plan)
    assert set(frame.filter(group="embedding")["stage"]) == {0, 1}
    assert {"tokens", "position ids", "labels"} <= set(frame.filter(stage=1, phase="data")["what"])


def test_what_megatron_refuses() -> None:
    with pytest.raises(InputError, match="must be 1 with multi-token prediction"):
        plan_of(llama(), 8, {"mtp_num_layers": 1, **FULL, "recompute_num_layers": 2})


def test_left_out_layers_are_said() -> None:
    from dataclasses import replace

    arch = replace(llama(), mtp_layers=1)
    assert any("mtp_num_layers = 1" in note for note in plan_of(arch, 8, {}).notes)
    assert plan_of(arch, 8, {"mtp_num_layers": 1}).notes == ()


@pytest.mark.parametrize("layout", [None, "Ett|tt|m|L", "Ett|tt||mL", "Etttt|m||L"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_rank_holds_what_its_buffers_hold(layout: str | None, tied: bool) -> None:
    from tokenwire.plan import holdings
    from tokenwire.step.dialects.megatron.gradients import chunk_tensors
    from tokenwire.step.dialects.megatron.next_tokens import with_their_layers
    from tokenwire.step.dialects.megatron.sizes import Sizes

    arch = llama(tied=tied)
    options = {"tp": 2, "pp": 4, "mtp_num_layers": 1, "pipeline_model_parallel_layout": layout}
    plan = plan_of(arch, 8, options)
    longer, stages = with_their_layers(arch, plan)
    for stage in stages:
        buffered = sum(n for _, n, _ in chunk_tensors(Sizes.of(longer, plan), stage, 0))
        held = int(holdings(arch, plan, plan.grid.rank_of(pp=stage.index))["elements"].sum())
        # With both on one stage a tied head has memory that goes unused: a second copy in the buffers.
        unused = plan.vocabulary_size // 2 * 64 if tied and stage.has_head and stage.has_next_tokens else 0
        assert held + unused == buffered
