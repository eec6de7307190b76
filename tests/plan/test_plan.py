"""Grids, groups, stages and holdings, by hand and by their properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import gpt, llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.parameters import parameters
from tokenwire.plan import holdings, read_plan


def test_ranks_and_groups_by_hand() -> None:
    # 16 ranks, t = 2, c = 2, p = 2, so D = 2; tp fastest, then cp, dp, pp: rank = tp + 2·cp + 4·dp + 8·pp.
    plan = plan_of(gpt(), 16, {"tp": 2, "cp": 2, "pp": 2})
    assert plan.dp == 2
    assert plan.grid.coordinates(13) == {"tp": 1, "cp": 0, "dp": 1, "pp": 1}
    assert plan.members("tp", 13).tolist() == [12, 13]
    assert plan.members("cp", 13).tolist() == [13, 15]
    assert plan.members("dp", 13).tolist() == [9, 13]
    assert plan.members("dp_cp", 13).tolist() == [9, 11, 13, 15]
    assert plan.members("pp", 13).tolist() == [5, 13]
    assert plan.members("mp", 13).tolist() == [4, 5, 12, 13]
    assert plan.group_size("world") == 16
    assert plan.group_size("position_embedding") == 1


def test_experts_are_a_second_decomposition() -> None:
    # 16 ranks, t = 2, p = 2: D = 4. etp = 1, e = 4, so edp = 16/(1·4·2) = 2: rank = ep + 4·edp + 8·pp.
    from tokenwire.model.architecture import Experts

    arch = llama(experts=Experts(8, 2, 96))
    plan = plan_of(arch, 16, {"tp": 2, "pp": 2, "ep": 4, "etp": 1, "sequence_parallel": True})
    assert (plan.dp, plan.edp, plan.etp) == (4, 2, 1)
    assert plan.members("ep", 6).tolist() == [4, 5, 6, 7]
    assert plan.members("edp", 6).tolist() == [2, 6]


def test_the_embedding_group_is_first_and_last() -> None:
    plan = plan_of(gpt(), 8, {"pp": 4})
    assert plan.members("embedding", 0).tolist() == [0, 6]
    assert plan.members("embedding", 2).tolist() == []
    assert plan.group_size("embedding") == 2
    assert plan.groups("embedding").tolist() == [[0, 6], [1, 7]]
    assert plan.groups("embedding", stage=1).tolist() == []


def test_optimizer_instances_cut_the_replicas_in_consecutive_parts() -> None:
    # D = 8 in 2 instances: shards of 4 consecutive replicas, replicas 4 apart.
    options = {"use_distributed_optimizer": True, "num_distributed_optimizer_instances": 2}
    plan = plan_of(gpt(), 8, options)
    assert plan.dp == 8
    assert plan.members("dp_shard", 5).tolist() == [4, 5, 6, 7]
    assert plan.members("dp_replicate", 5).tolist() == [1, 5]
    assert plan.members("dp", 5).tolist() == list(range(8))


@pytest.mark.parametrize(
    ("layers", "options", "chunks"),
    [
        (8, {"pp": 2}, [((0, 1, 2, 3),), ((4, 5, 6, 7),)]),
        # Megatron's own example: 8 layers, 2 stages, 4 virtual: stage 0 has 0 2 4 6.
        (8, {"pp": 2, "vpp": 4}, [((0,), (2,), (4,), (6,)), ((1,), (3,), (5,), (7,))]),
        (7, {"pp": 4, "decoder_first_pipeline_num_layers": 1}, [((0,),), ((1, 2),), ((3, 4),), ((5, 6),)]),
        (5, {"pp": 2, "decoder_last_pipeline_num_layers": 2}, [((0, 1, 2),), ((3, 4),)]),
        (6, {"pp": 4, "account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True},
         [((0,),), ((1, 2),), ((3, 4),), ((5,),)]),
    ],
)  # fmt: skip
def test_stages(layers: int, options: dict[str, object], chunks: object) -> None:
    plan = plan_of(gpt(layers), 8, options)
    assert [stage.chunks for stage in plan.stages] == chunks
    assert [stage.has_embedding for stage in plan.stages] == [True] + [False] * (plan.pp - 1)
    assert [stage.has_head for stage in plan.stages] == [False] * (plan.pp - 1) + [True]


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.integers(1, 4))
def test_groups_divide_the_world(tp: int, pp: int, cp: int, dp: int) -> None:
    world = tp * pp * cp * dp
    plan = plan_of(gpt(), world, {"tp": tp, "pp": pp, "cp": cp}, global_batch=4 * dp)
    for name in ("tp", "pp", "cp", "dp", "dp_cp", "mp", "world", "edp", "tp_dp_cp"):
        groups = plan.groups(name)
        assert groups.shape[1] == plan.group_size(name)
        assert np.array_equal(np.sort(groups.ravel()), np.arange(world))
        for rank in range(0, world, max(world // 4, 1)):
            assert rank in plan.members(name, rank)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_what_ranks_hold_is_the_model(tp: int, pp: int) -> None:
    # Cut tensors add up over tp, replicated ones are the same on each rank; a tied head is a second copy where pp > 1.
    arch = llama(vocabulary=1024)
    plan = plan_of(arch, tp * pp, {"tp": tp, "pp": pp, "make_vocab_size_divisible_by": 1})
    total = 0
    for stage in range(pp):
        for rank in range(tp):
            for row in holdings(arch, plan, stage * tp + rank).iter_rows(named=True):
                replicated = row["shape"] == row["held"] and tp > 1
                total += 0 if replicated and rank else row["elements"]
    assert total == parameters(arch).total


def test_holdings_by_hand() -> None:
    # h = 64, t = 2: rank 1 has columns 32..63 of the output projection, rows 512.. of the embedding padded to 1024.
    arch = gpt()
    held = holdings(arch, plan_of(arch, 4, {"tp": 2, "use_distributed_optimizer": True}), 1)
    rows = {row["tensor"]: row for row in held.iter_rows(named=True)}
    assert rows["layers.0.attention.output.weight"]["slices"] == "0:64, 32:64"
    embedding = rows["embedding.weight"]
    assert embedding["slices"] == "512:1024, 0:64"
    # 512·64 = 32,768 elements: 2 B of weight, 2 B of gradient, 12 B of fp32 state cut over 2 replicas.
    assert (embedding["weight_bytes"], embedding["gradient_bytes"], embedding["optimizer_bytes"]) == (65536, 65536, 196608)


def test_a_rank_that_is_not_there() -> None:
    arch = gpt()
    plan = plan_of(arch, 4, {})
    for call in (lambda: holdings(arch, plan, 4), lambda: plan.members("tp", -1), lambda: plan.group("nothing")):
        with pytest.raises(InputError):
            call()


def test_long_names_are_read() -> None:
    plan = read_plan({"tensor_model_parallel_size": 4, "accumulate_allreduce_grads_in_fp32": True})
    assert (plan.tp, getattr(plan, "grad_reduce_in_fp32", None)) == (4, True)
