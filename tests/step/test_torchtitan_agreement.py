"""Every call that torch itself makes under torchtitan's composition, on a fake world, is the one predicted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step.models import gpt, latent, llama, plan_of
from tokenwire.measure.dryrun.compare import compare
from tokenwire.model.architecture import Architecture, Experts, FeedForward
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.step import operations

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# Sizes that no shard count divides: 1001 rows, 252 wide, 96 hidden.
ODD = llama(2, 96, 6, 2, 1001, width=252)
L2, TIED, GPT = llama(2, width=160), llama(2, width=160, tied=True), gpt(2, tied=False)
L8 = llama(8, width=160)
# 8 experts, 2 a token; the second with one dense layer first and an expert that sees every token.
MOE = llama(3, experts=Experts(8, 2, 96))
SHARED = llama(4, experts=Experts(8, 2, 96, shared=FeedForward(96, True)), dense_first=1)

REPLICAS = {"data_parallel_replicate_degree": 2}

# model, GPUs, options, sequences of the global batch, ranks
CASES: list[tuple[Architecture, int, dict[str, Any], int, tuple[int, ...]]] = [
    # FSDP2
    (L2, 2, {}, 4, (0,)),
    (L2, 8, {}, 16, (3, 7)),
    (ODD, 64, {}, 64, (0, 63)),
    (ODD, 4096, {}, 4096, (4095,)),
    (TIED, 8, {}, 8, (0,)),
    (GPT, 8, {}, 8, (0,)),
    (gpt(2, tied=True), 8, {}, 8, (5,)),
    (L2, 4, {"reshard_after_forward": True}, 8, (0,)),
    (L2, 4, {"reshard_after_forward": False}, 8, (0,)),
    (L2, 4, {"mixed_precision_param": "float32"}, 4, (0,)),
    (L2, 4, {"mixed_precision_reduce": "bfloat16"}, 4, (0,)),
    (L2, 4, {"set_requires_gradient_sync": False}, 16, (0,)),
    (L2, 4, {"log_freq": 1}, 4, (0,)),
    # FSDP2 in its plain form
    (L2, 64, {"fsdp_wrap": "blocks"}, 64, (0,)),
    (TIED, 4, {"fsdp_wrap": "blocks", "fsdp_reshard_after_forward": "always"}, 8, (0,)),
    (GPT, 4, {"fsdp_wrap": "blocks", "fsdp_reshard_after_forward": "never"}, 8, (0,)),
    # HSDP, and replicas alone
    (L2, 8, {"data_parallel_replicate_degree": 2}, 16, (0, 7)),
    (ODD, 1024, {"data_parallel_replicate_degree": 16}, 1024, (777,)),
    (L2, 8, {"data_parallel_replicate_degree": 4, "set_requires_gradient_sync": False}, 16, (1,)),
    (L2, 16, {"data_parallel_replicate_degree": 16, "data_parallel_shard_degree": 1}, 16, (0,)),
    (L2, 4, {"data_parallel_replicate_degree": 4, "data_parallel_shard_degree": 1, "log_freq": 1}, 8, (3,)),
    # FSDP2's switches
    (L2, 8, {**REPLICAS, "set_requires_all_reduce": False}, 16, (0, 7)),
    (L2, 4, {"set_reshard_after_backward": False}, 16, (1,)),
    (L2, 4, {"set_reshard_after_backward": False, "fsdp_reshard_after_forward": "never"}, 16, (1,)),
    (L2, 4, {"set_unshard_in_backward": False, "set_reshard_after_backward": False}, 16, (1,)),
    (llama(5), 4, {"set_modules_to_forward_prefetch": 2, "set_modules_to_backward_prefetch": 3}, 8, (1,)),
    (L2, 8, {**REPLICAS, "set_all_reduce_hook": True, "set_requires_all_reduce": False}, 16, (3,)),
    (L2, 8, {**REPLICAS, "set_all_reduce_hook": True, "set_requires_gradient_sync": False}, 16, (3,)),
    (MOE, 16, {**REPLICAS, "ep": 4, "set_all_reduce_hook": True}, 32, (9,)),
    (L2, 4, {"set_gradient_divide_factor": 8.0, "mixed_precision_reduce": "float16"}, 8, (1,)),
    # Tensor parallelism
    (L2, 2, {"tp": 2}, 2, (0,)),
    (llama(2, vocabulary=50), 4, {"tp": 4, "disable_loss_parallel": True}, 1, (0,)),
    (L2, 4, {"tp": 4, "disable_loss_parallel": True}, 1, (3,)),
    (L2, 8, {"tp": 4}, 4, (5,)),
    (TIED, 4, {"tp": 2}, 4, (0,)),
    (ODD, 128, {"tp": 2, "data_parallel_replicate_degree": 4}, 64, (0,)),
    (L2, 8, {"tp": 2, "set_requires_gradient_sync": False}, 8, (2,)),
    (L2, 8, {"tp": 2, "disable_loss_parallel": True}, 4, (1,)),
    (llama(5), 4, {"tp": 2, "activation_checkpoint_mode": "full"}, 4, (0,)),
    (llama(5), 4, {"tp": 2, "activation_checkpoint_mode": "full", "early_stop": True}, 4, (0,)),
    (llama(5), 4, {"tp": 2, "activation_checkpoint_mode": "selective"}, 4, (0,)),
    (llama(3), 4, {"tp": 2, "activation_checkpoint_mode": "selective", "selective_ac_option": "op"}, 4, (0,)),
    # Asynchronous: as torchtitan v0.2.2 runs it, and with symmetric memory for the group
    (L2, 4, {"tp": 2, "enable_async_tensor_parallel": True}, 4, (1,)),
    (L2, 4, {"tp": 2, "enable_async_tensor_parallel": True, "enable_symm_mem_for_group": True}, 4, (1,)),
    (L2, 8, {"tp": 4, "enable_async_tensor_parallel": True, "enable_symm_mem_for_group": True}, 4, (6,)),
    # Pipelines
    (L2, 2, {"pp": 2}, 4, (0, 1)),
    (L8, 8, {"pp": 4}, 8, (0, 2, 7)),
    (L8, 8, {"pp": 4, "reshard_after_forward": True}, 14, (0, 2, 7)),
    (L8, 4, {"pp": 2, "pipeline_parallel_schedule": "GPipe", "reshard_after_forward": True}, 8, (0, 2)),
    (L8, 8, {"pp": 2, "tp": 2}, 8, (0, 7)),
    (L8, 4, {"pp": 2, "tp": 2}, 2, (0, 3)),
    (llama(9), 16, {"pp": 4, "tp": 2, "pipeline_parallel_schedule": "Interleaved1F1B"}, 16, (0, 5, 15)),
    (L8, 4, {"pp": 2, "pipeline_parallel_schedule": "LoopedBFS"}, 8, (0, 2)),
    (L8, 4, {"pp": 2, "pipeline_parallel_schedule": "InterleavedZeroBubble"}, 8, (0, 2)),
    (L8, 16, {"pp": 4, "tp": 2, "pipeline_parallel_schedule": "ZBVZeroBubble"}, 16, (0, 15)),
    (L8, 4, {"pp": 2, "pipeline_parallel_schedule": "DualPipeV"}, 16, (0, 2)),
    # Roots of virtual stages: embedding and head are on one rank and in two modules
    (L8, 4, {"pp": 2, "pipeline_parallel_schedule": "DualPipeV", "fsdp_wrap": "blocks"}, 16, (0, 2)),
    # Latent attention
    (latent(2), 4, {"tp": 2}, 4, (1,)),
    (latent(2, q_rank=None), 8, {"cp": 2, "tp": 2, "activation_checkpoint_mode": "full"}, 4, (5,)),
    (latent(2), 4, {"cp": 4, "context_parallel_rotate_method": "alltoall"}, 2, (1,)),
    # Context parallelism
    (L2, 4, {"cp": 4}, 2, (0, 3)),
    (L2, 4, {"cp": 4, "context_parallel_rotate_method": "alltoall"}, 2, (1,)),
    (L8, 16, {"cp": 2, "tp": 2, "pp": 2}, 4, (0, 9)),
    (llama(3), 8, {"cp": 2, "tp": 2, "activation_checkpoint_mode": "full"}, 4, (5,)),
    (L2, 16, {"cp": 4, "data_parallel_replicate_degree": 2, "log_freq": 1}, 4, (5,)),
    # Norms of queries and keys
    (llama(2, qk_norm=True), 4, {"tp": 2}, 8, (1,)),
    # Experts
    (MOE, 4, {}, 4, (0,)),
    (MOE, 2, {"tp": 2}, 1, (1,)),
    (SHARED, 8, {"tp": 2}, 4, (3,)),
    (MOE, 4, {"ep": 4}, 8, (2,)),
    (SHARED, 8, {"ep": 2}, 8, (3,)),
    (MOE, 64, {"ep": 8}, 64, (63,)),
    (SHARED, 8, {"ep": 4, "data_parallel_replicate_degree": 2, "load_balance_coeff": 0}, 16, (7,)),
    (MOE, 32, {"ep": 4, "data_parallel_replicate_degree": 2}, 32, (9,)),
    (SHARED, 8, {"tp": 2, "ep": 4}, 4, (3,)),
    (SHARED, 16, {"tp": 2, "ep": 4, "etp": 2}, 8, (13,)),
    (MOE, 8, {"ep": 4, "activation_checkpoint_mode": "full"}, 8, (1,)),
    (MOE, 8, {"tp": 2, "ep": 4, "etp": 2, "activation_checkpoint_mode": "selective"}, 4, (1,)),
    (SHARED, 8, {"tp": 2, "ep": 4, "activation_checkpoint_mode": "full", "early_stop": True}, 4, (1,)),
    (SHARED, 8, {"tp": 2, "activation_checkpoint_mode": "selective", "selective_ac_option": "op"}, 4, (1,)),
    (SHARED, 8, {"cp": 2, "ep": 4}, 4, (6,)),
    (SHARED, 16, {"cp": 2, "tp": 2, "ep": 8}, 4, (6,)),
    (SHARED, 8, {"pp": 2, "ep": 4}, 8, (0, 7)),
    (llama(9, experts=Experts(8, 2, 96)), 16, {"pp": 2, "tp": 2, "ep": 4, "pipeline_parallel_schedule": "Interleaved1F1B",
                                               "activation_checkpoint_mode": "selective"}, 8, (0, 15)),
]  # fmt: skip


def _plan(arch: Architecture, gpus: int, options: dict[str, Any], batch: int) -> Plan:
    training = TrainingConfig(sequence_length=48 if arch is ODD else 32, global_batch=batch, micro_batch=1)
    return resolve(read_plan({"dialect": "torchtitan", **options}), training, arch, gpus)


def _name(case: tuple[Architecture, int, dict[str, Any], int, tuple[int, ...]]) -> str:
    arch, gpus, options, _, _ = case
    said = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{arch.name}{len(arch.layers)}-{gpus}-{said or 'fsdp'}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_every_call_agrees(case: Any) -> None:
    from tokenwire.measure.dryrun.torchtitan import record

    arch, gpus, options, batch, ranks = case
    plan = _plan(arch, gpus, options, batch)
    for rank in ranks:
        table = compare(operations(arch, plan), record(arch, plan, rank), plan, rank)
        assert table.height
        assert table.filter(~table["equal"]).to_dicts() == []


def test_a_wrong_prediction_is_seen() -> None:
    from tokenwire.measure.dryrun.torchtitan import record

    kept, again = (_plan(L2, 4, {"reshard_after_forward": choice}, 4) for choice in (False, True))
    table = compare(operations(L2, kept), record(L2, again, 0), again, 0)
    assert table.filter(~table["equal"])["op"].unique().to_list() == ["all_gather"]


def test_group_members_are_those_of_the_plan() -> None:
    # pp 2 · dp_replicate 2 · dp_shard 2 · tp 2: rank 9 stands at tp 1 of shard 0, replica 0, stage 1.
    from tokenwire.measure.dryrun.torchtitan import calls

    arch = llama(4)
    plan = _plan(arch, 16, {"tp": 2, "pp": 2, "data_parallel_replicate_degree": 2}, 16)
    seen = {call.members for call in calls(arch, plan, 9) if len(call.members) > 1}
    assert seen == {(8, 9), (9, 11), (9, 13), (9, 11, 13, 15), (1, 9)}


def test_a_large_model_runs_without_its_memory() -> None:
    from tokenwire.measure.dryrun import check

    arch = llama(2, 8192, 64, 8, 128_256, width=28_672)
    plan = plan_of(arch, 64, {"dialect": "torchtitan", "tp": 8})
    table = check(arch, plan, 63)
    assert table.filter(~table["equal"]).to_dicts() == []


def test_reduction_operations_are_torch_own() -> None:
    from torch.distributed import ReduceOp
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import _get_gradient_divide_factors

    from tokenwire.measure.dryrun.record import fake_world
    from tokenwire.measure.dryrun.torch_parallel import TORCH_DTYPES, Meshes
    from tokenwire.step.dialects.torchtitan.fully_sharded import reduce_ops
    from tokenwire.step.dialects.torchtitan.sizes import Sizes

    for factor in (None, 1.0, 4.0, 2.0):
        for name in ("float32", "bfloat16", "float16"):
            options = {**REPLICAS, "set_gradient_divide_factor": factor, "mixed_precision_reduce": name}
            plan = _plan(L2, 8, options, 8)
            z = Sizes.of(L2, plan)
            with fake_world(0, 8):
                meshes = Meshes.of(plan)
                groups = (meshes.dense[axis].get_group() for axis in ("fsdp", "dp_replicate"))
                *_, scatter, reduce = _get_gradient_divide_factors(*groups, TORCH_DTYPES[z.config.reduce_dtype()], "cuda", factor)
            said = tuple(op.partition("(")[0] for op in reduce_ops(z, 4))
            assert (scatter, reduce) == tuple(getattr(ReduceOp, op) for op in said)
