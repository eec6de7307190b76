"""Megatron-FSDP that cuts all: by hand, through plan, step, time and memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step.models import llama, plan_of
from tests.step.test_megatron_hybrid import HYBRID, TWICE
from tokenwire.errors import InputError
from tokenwire.model.architecture import Experts
from tokenwire.plan.shards import holdings
from tokenwire.step import operations
from tokenwire.timeline.memory import Software, memory

FSDP: dict[str, Any] = {
    "use_megatron_fsdp": True,
    "data_parallel_sharding_strategy": "optim_grads_params",
    "use_distributed_optimizer": True,
}
LAYER = 64 * 128 + 64 * 64 + 64 * 352 + 176 * 64 + 2 * 64
"""Parameters of a layer: queries, keys and values, output, gate and up, down, two norms."""
OUTSIDE = 2 * 1024 * 64 + 64
"""Two tables of 1,000 words padded to 1,024, and the last norm."""


def said(
    arch: Any, options: dict[str, Any], **training: Any
) -> dict[tuple[str, str, str], tuple[int, int, str]]:
    rows = operations(arch, plan_of(arch, 8, options, **training)).to_dicts()
    return {
        (row["what"], row["op"], row["phase"]): (row["count"], row["elements"], row["dtype"])
        for row in rows if row["parallelism"] == "fsdp"
    }  # fmt: skip


def test_layers_are_gathered_twice_and_scattered_once_a_micro_batch() -> None:
    # 4 layers, 4 micro-batches; what is in no layer is gathered once.
    assert said(llama(), FSDP) == {
        ("parameters of a layer", "all_gather", "forward"): (16, LAYER, "bf16"),
        ("parameters of a layer, again", "all_gather", "backward"): (16, LAYER, "bf16"),
        ("gradients of a layer", "reduce_scatter", "gradients"): (16, LAYER, "bf16"),
        ("parameters of embedding, head and norms outside of layers", "all_gather", "forward"): (
            1,
            OUTSIDE,
            "bf16",
        ),
        ("gradients of embedding, head and norms outside of layers", "reduce_scatter", "gradients"): (
            4,
            OUTSIDE,
            "bf16",
        ),
    }
    assert {
        dtype
        for (what, _, _), (_, _, dtype) in said(llama(), {**FSDP, "grad_reduce_in_fp32": True}).items()
        if "gradients" in what
    } == {"fp32"}


def test_nothing_is_said_of_buffers() -> None:
    rows = operations(llama(), plan_of(llama(), 8, FSDP)).to_dicts()
    assert not any(row["what"] in ("gradients", "parameters") for row in rows)


def test_instances_add_their_parts_once_a_step() -> None:
    found = said(llama(), {**FSDP, "num_distributed_optimizer_instances": 2})
    assert found["parts of gradients of a layer, between instances", "all_reduce", "gradients"] == (
        4,
        LAYER // 4,
        "bf16",
    )


def test_experts_are_gathered_over_their_own_replicas() -> None:
    # 8 experts of three 96·64 over ep 2: four a rank, in groups of 4
    arch = llama(experts=Experts(8, 2, 96))
    found = said(arch, {**FSDP, "ep": 2, "moe_token_dispatcher_type": "alltoall"})
    assert found["parameters of a layer, experts", "all_gather", "forward"] == (16, 4 * 3 * 96 * 64, "bf16")


def test_a_module_of_further_tokens_is_gathered_for_each() -> None:
    # Two layers of experts four times each, and that of the module twice four times; its gradients are scattered together.
    rows = operations(HYBRID, plan_of(HYBRID, 8, {**FSDP, **TWICE})).to_dicts()
    gathered = sum(
        row["count"]
        for row in rows
        if row["what"] == "parameters of a layer, experts" and row["phase"] == "forward"
    )
    scattered = sum(row["count"] for row in rows if row["what"] == "gradients of a layer, experts")
    assert (gathered, scattered) == (2 * 4 + 2 * 4, 2 * 4 + 4)


def test_a_rank_holds_an_eighth_of_all() -> None:
    arch = llama()
    plan = plan_of(arch, 8, FSDP)
    table = holdings(arch, plan, 0)
    whole = 4 * LAYER + OUTSIDE
    assert (table["weight_bytes"].sum(), table["gradient_bytes"].sum(), table["optimizer_bytes"].sum()) == (
        whole // 4,
        whole // 4,
        12 * whole // 8,
    )
    by_software = memory(
        arch,
        plan_of(arch, 8, {"use_distributed_optimizer": True}),
        Software(gpu="H100", data_parallel_sharding_strategy="optim_grads_params"),
    )
    assert memory(arch, plan, Software(gpu="H100")).worst.peak == by_software.worst.peak


@pytest.mark.parametrize(("options", "words"), [
    ({**FSDP, "pp": 2}, "without a pipeline"), ({**FSDP, "data_parallel_sharding_strategy": "optim"}, "optim_grads_params only"),
    ({**FSDP, "use_distributed_optimizer": False}, "needs use_distributed_optimizer"), ({"data_parallel_sharding_strategy": "optim"}, "needs use_megatron_fsdp"),
])  # fmt: skip
def test_what_is_not_predicted_is_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        plan_of(llama(), 8, options)
    assert "\n" not in str(caught.value)
