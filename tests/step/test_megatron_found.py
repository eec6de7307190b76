"""Kinds of Megatron plans that differed from the framework when they were drawn at random, each with the right value.

The values are what megatron-core 0.16.1 was recorded to send (``tests.agreement``), with their arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from tests.step import test_megatron_agreement as agreement
from tests.step.models import gpt, latent, llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Experts, FeedForward, LatentAttention, Norm
from tokenwire.model.tensors import tensors
from tokenwire.step import operations

FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def biased_experts(arch: Architecture, experts: Experts) -> Architecture:
    """Return the model with experts in every layer."""
    return replace(arch, layers=tuple(replace(layer, feed_forward=experts) for layer in arch.layers))


def layer_norm(arch: Architecture) -> Architecture:
    """Return the model with LayerNorm, whose norms have a bias each."""
    return replace(arch, norm=Norm("layer", bias=True))


CASES: list[tuple[Any, int, dict[str, Any], tuple[int, ...], dict[str, Any]]] = [
    (llama(hidden=96, kv_heads=2), 8, {"tp": 4, "sequence_parallel": True, **FULL}, (1,), {}),
    (llama(kv_heads=2), 8, {"tp": 4, **FULL, "recompute_method": "block", "recompute_num_layers": 2}, (5,), {}),
    (biased_experts(gpt(), Experts(8, 2, 96, False, True)), 8, {"ep": 4, "use_distributed_optimizer": True}, (0,), {}),
    (layer_norm(llama(qk_norm=True)), 8, {"tp": 2, "sequence_parallel": True}, (1,), {}),
    (layer_norm(latent()), 8, {"tp": 2, "sequence_parallel": True}, (1,), {}),
    (llama(experts=Experts(8, 2, 96)), 4, {"moe_token_dispatcher_type": "allgather"}, (0,), {}),
    (llama(), 2, {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]}, (0,), {}),
    (biased_experts(gpt(), Experts(8, 2, 96, False, True)), 4, {"moe_token_dispatcher_type": "allgather"}, (0,), {}),
    (biased_experts(gpt(), Experts(8, 2, 96, False, True)), 8, {"tp": 2, "sequence_parallel": True, "ep": 2, "etp": 1}, (3,), {}),
    (llama(experts=Experts(8, 2, 96)), 8, {"moe_aux_loss_coeff": 0.01, "moe_router_load_balancing_type": "global_aux_loss", **FULL,
                                           "recompute_method": "block", "cp": 2}, (3,), {}),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=agreement._name)
def test_every_call_agrees(case: Any) -> None:
    pytest.importorskip("megatron.core")
    agreement.test_every_call_agrees(case)


def test_recomputed_layers_gather_replicated_kv_heads() -> None:
    # 64 tokens of 8·24 queries and 2·2·24 keys and values: 64·288 = 18,432; 8 layers · 2 micro-batches.
    arch = llama(8, hidden=192, kv_heads=2)
    step = operations(arch, plan_of(arch, 4, {"tp": 4, "sequence_parallel": True, **FULL}, global_batch=2))
    rows = step.filter(elements=18_432).select("op", "phase", "count").rows()
    assert rows == [
        ("all_gather", "forward", 16),
        ("reduce_scatter", "backward", 16),
        ("all_gather", "backward", 16),
    ]


def test_recomputing_attention_alone_does_not_gather_them() -> None:
    arch = llama(8, hidden=192, kv_heads=2)
    options = {"tp": 4, "recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    step = operations(arch, plan_of(arch, 4, options, global_batch=2))
    assert step.filter(elements=18_432).select("op", "phase").rows() == [
        ("all_gather", "forward"),
        ("reduce_scatter", "backward"),
    ]


def test_the_biases_of_routers_are_in_the_buffer() -> None:
    # 9 biases of 8, each padded to 64, are 576 more elements, and the buffer is padded to 128: 4,073,600 + 640.
    arch = biased_experts(gpt(9, hidden=320), Experts(8, 2, 128, False, True))
    options = {
        "ep": 4,
        "moe_token_dispatcher_type": "alltoall",
        "use_distributed_optimizer": True,
        "make_vocab_size_divisible_by": 8,
    }
    step = operations(arch, plan_of(arch, 8, options))
    assert step.filter(op="reduce_scatter", group="dp")["elements"].to_list() == [4_074_240]


def test_a_recomputed_router_balances_in_the_recomputation() -> None:
    # 4 layers of 8 experts, the first of them recomputed; 4 micro-batches.
    options = {
        "moe_aux_loss_coeff": 0.01,
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": 1,
        "cp": 2,
    }
    step = operations(llama(experts=Experts(8, 2, 96)), plan_of(llama(experts=Experts(8, 2, 96)), 2, options))
    rows = step.filter(group="tp_cp", dtype="int64").select("phase", "count", "elements").rows()
    assert rows == [("forward", 12, 8), ("backward", 4, 8)]


def test_biases_of_experts_are_summed_as_those_of_other_row_parallel_products() -> None:
    # 64 numbers of each of 4 local experts in 4 layers, beside two norms with biases, two biases and a router of 8·65 a layer and a norm.
    arch = biased_experts(gpt(), Experts(8, 2, 96, False, True))
    step = operations(arch, plan_of(arch, 4, {"tp": 2, "sequence_parallel": True, "ep": 2, "etp": 1}))
    rows = step.filter(what="gradients of replicated parameters")["elements"].to_list()
    assert rows == [4 * (4 * 64 + 2 * 2 * 64 + 64 + 8 * 65) + 2 * 64]


@pytest.mark.parametrize(
    ("modules", "times"), [(["moe"], 1), (["shared_experts"], 1), (["moe", "shared_experts"], 2)]
)
def test_shared_experts_are_recomputed_by_each_checkpoint_around_them(modules: list[str], times: int) -> None:
    # 4 layers · 4 micro-batches; with both, the recomputed layer of experts holds a checkpoint that is recomputed too.
    arch = llama(experts=Experts(8, 2, 96, shared=FeedForward(64, True)))
    options = {
        "tp": 2,
        "sequence_parallel": True,
        "recompute_granularity": "selective",
        "recompute_modules": modules,
    }
    step = operations(arch, plan_of(arch, 2, options))
    assert step.filter(what="shared experts input, recomputed")["count"].to_list() == [16 * times]


def test_norms_are_all_of_one_kind() -> None:
    # LayerNorm has a bias in each norm of queries and keys: 8 numbers a head, two norms, 4 layers.
    with_norms, without = (
        sum(tensor.elements for tensor in tensors(layer_norm(llama(qk_norm=has)), "megatron"))
        for has in (True, False)
    )
    assert with_norms - without == 4 * 2 * 2 * 8
    # Of latent attention, norms of 48 compressed queries and 32 compressed keys and values.
    one, other = (sum(t.elements for t in tensors(arch, "megatron") if "_norm." in t.name and t.part == "mixer")
                  for arch in (layer_norm(latent()), latent()))  # fmt: skip
    assert (one, other) == (4 * 2 * (48 + 32), 4 * (48 + 32))


def test_a_description_without_megatron_keeps_its_own_biases() -> None:
    names = {tensor.name for tensor in tensors(biased_experts(gpt(1), Experts(8, 2, 96, False, True)))}
    assert "layers.0.router.bias" not in names
    biased = replace(latent(1).layers[0].mixer, qkv_bias=True)
    assert isinstance(biased, LatentAttention)
    arch = replace(latent(1), layers=(replace(latent(1).layers[0], mixer=biased),))
    assert any(tensor.name.endswith("q_down.bias") for tensor in tensors(arch))
    assert not any(tensor.name.endswith("q_down.bias") for tensor in tensors(arch, "megatron"))


@pytest.mark.parametrize(
    ("options", "training", "rule"),
    [
        ({"use_distributed_optimizer": True}, {"optimizer": "sgd"}, "of Adam only"),
        ({"average_in_collective": True, "calculate_per_token_loss": True}, {}, "divides by all tokens"),
        (
            {"reduce_scatter_with_fp32_accumulation": True, "overlap_grad_reduce": True},
            {},
            "needs use_distributed_optimizer",
        ),
        (
            {
                "reduce_scatter_with_fp32_accumulation": True,
                "use_distributed_optimizer": True,
                "average_in_collective": True,
            },
            {},
            "does not go with average_in_collective",
        ),
        (
            {
                "reduce_scatter_with_fp32_accumulation": True,
                "use_distributed_optimizer": True,
                "num_distributed_optimizer_instances": 2,
            },
            {},
            "num_distributed_optimizer_instances = 1",
        ),
    ],
)
def test_what_the_framework_refuses_is_refused(
    options: dict[str, Any], training: dict[str, Any], rule: str
) -> None:
    with pytest.raises(InputError, match=rule):
        plan_of(llama(), 8, options, **training)


def test_recomputing_a_feed_forward_part_with_a_bias_is_refused() -> None:
    options = {"recompute_granularity": "selective", "recompute_modules": ["mlp", "core_attn"]}
    plan_of(llama(), 8, options)
    with pytest.raises(InputError, match="never ends") as found:
        plan_of(gpt(), 8, options)
    assert found.value.nearest == 'recompute_modules = ["core_attn"]'


def test_accumulation_without_the_distributed_optimizer_changes_nothing() -> None:
    # Gradients are all-reduced as without it (param_and_grad_buffer.py, start_grad_sync).
    plain, with_it = (
        operations(llama(), plan_of(llama(), 8, options))
        for options in ({}, {"reduce_scatter_with_fp32_accumulation": True})
    )
    assert plain.select(pl.exclude("values")).equals(with_it.select(pl.exclude("values")))
