"""Low-rank adapters beside frozen weights: by hand, through plan, step, time and memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.step.models import latent, llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.architecture import Experts
from tokenwire.plan.shards import holdings
from tokenwire.step import operations
from tokenwire.timeline.accelerator import accelerator
from tokenwire.timeline.compute import chunk_work, held
from tokenwire.timeline.memory import Software, memory

LORA: dict[str, Any] = {"lora_dim": 4, "use_distributed_optimizer": True}
QKV: dict[str, Any] = {**LORA, "lora_target_modules": ("linear_qkv",)}
SP = {"tp": 2, "sequence_parallel": True}
ALL = 4 * ((64 + 128) + (64 + 64) + (64 + 352) + (176 + 64))
"""Elements of a layer's adapters of rank 4: qkv 64 to 64 + 2·32, output 64 to 64, up 64 to 2·176, down 176 to 64."""


def said(options: dict[str, Any], **more: Any) -> dict[tuple[str, str, str], tuple[int, int]]:
    rows = operations(llama(**more), plan_of(llama(**more), 8, options)).to_dicts()
    return {(row["what"], row["op"], row["phase"]): (row["count"], row["elements"]) for row in rows}


def test_gradients_are_those_of_adapters_alone() -> None:
    ((count, elements),) = [value for (what, _, _), value in said(LORA).items() if what == "gradients"]
    # 4 layers; each of the 32 matrices starts at a multiple of 64, the whole is one of lcm(8, 128)
    assert (count, elements) == (1, -(-4 * ALL // 128) * 128)
    assert not any("tied" in what or "replicated" in what for what, _, _ in said({**LORA, **SP}, tied=True))


def test_tensor_parallel_calls_with_sequence_parallelism() -> None:
    # 4 micro-batches of 64 tokens; h 64, so S = 4,096 elements; r 4, so 256
    found = said({**LORA, **SP})
    frozen = {what for what, _, _ in found if what.endswith("again")}
    assert frozen == set()
    assert ("embedding gradient", "all_gather", "backward") not in found
    # The first layer's input needs no gradient: 3 of 4 layers.
    assert found["attention input gradient", "reduce_scatter", "backward"] == (12, 4096)
    assert found["feed-forward input gradient", "reduce_scatter", "backward"] == (16, 4096)
    assert found["adapter of linear_qkv: r numbers", "all_gather", "forward"] == (16, 256)
    assert found["adapter of linear_qkv: input gradient", "reduce_scatter", "backward"] == (12, 4096)
    assert found["adapter of linear_fc2: r numbers", "all_reduce", "forward"] == (16, 256)
    assert found["adapter of linear_fc2: output", "all_gather", "forward"] == (16, 4096)
    assert found["adapter of linear_fc2: output gradient", "all_gather", "backward"] == (16, 4096)


def test_what_runs_again_says_its_adapters_again() -> None:
    full = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3}
    found = said({**QKV, "tp": 2, **full})
    assert found["adapter of linear_qkv: r numbers, recomputed", "all_gather", "backward"] == (12, 256)
    # Recomputation starts from an input that has a gradient.
    assert found["attention input gradient", "all_reduce", "backward"] == (16, 4096)


def test_a_rank_holds_gradients_and_states_of_adapters_alone() -> None:
    arch = llama()
    plan = plan_of(arch, 8, {**LORA, **SP})
    table = holdings(arch, plan, 0)
    adapters = table.filter(table["part"] == "adapter")
    # Each matrix is cut in two; gradients in bf16, 12 bytes of state over 4 replicas.
    assert adapters["elements"].sum() == held(arch, plan, plan.stages[0]).dense == 4 * ALL // 2
    assert adapters["gradient_bytes"].sum() == table["gradient_bytes"].sum() == 2 * 4 * ALL // 2
    assert table["optimizer_bytes"].sum() == 12 * 4 * ALL // 2 // 4
    # All else stands as weights alone: 2 bytes of each of 4·(qkv 64·128, out 64·64, up 64·352, down 176·64)/2, 9 norms, two tables of 1,024·64/2
    frozen = 4 * (64 * 128 + 64 * 64 + 64 * 352 + 176 * 64) // 2 + 9 * 64 + 1024 * 64
    assert table["weight_bytes"].sum() == 2 * (frozen + 4 * ALL // 2)


def test_no_gradient_of_a_frozen_weight_is_computed() -> None:
    arch, gpu = llama(), accelerator("H100")
    plan, whole = plan_of(arch, 8, QKV), plan_of(arch, 8, {})
    lora, full = (chunk_work(arch, one, gpu, one.stages[0], 0) for one in (plan, whole))
    products = 2 * 64 * (4 * (64 * 128 + 64 * 64 + 64 * 352 + 176 * 64) + 64 * 1024)
    # The weight gradients of all products go; three products of each adapter matrix come: 64 tokens, 64 to 4 to 128.
    assert full.flops - lora.flops == pytest.approx(products - 3 * 4 * 2 * 64 * 4 * (64 + 128))
    assert lora.weight < full.weight / 3


def test_memory_of_adapters_by_hand() -> None:
    arch = llama()
    stage = memory(arch, plan_of(arch, 8, LORA), Software(gpu="H100")).stages[0]
    assert stage.of("gradients", "loss") == -(-2 * 4 * ALL // 512) * 512
    # Weights, frozen and of adapters, tensor by tensor to 512 bytes; nothing of the frozen has gradients or states.
    assert stage.of("optimizer", "loss") == 12 * 4 * ALL // 8
    kept = {part.what.split(",")[0] for part in stage.parts if part.kind == "activations"}
    assert "adapter of linear_fc2: its input" in kept
    assert not any("input of the down-projection" in what or "input of the products" in what for what in kept)
    narrow = memory(arch, plan_of(arch, 8, QKV), Software(gpu="H100")).stages[0]
    # Without three adapters a layer keeps less: 64 tokens of up's 64 and down's 176 inputs, and of 3·4 numbers, 2 bytes each.
    assert stage.of("activations", "loss") - narrow.of("activations", "loss") == 4 * 64 * 2 * (64 + 176 + 12)


@pytest.mark.parametrize(("options", "words"), [
    ({"lora_dim": 3, "tp": 2}, "nearest that works: lora_dim = 2"), ({"lora_target_modules": ("linear_qkv",)}, "needs lora_dim"),
    ({"lora_dim": 4, "lora_target_modules": ("q_proj",)}, "q_proj is none of"), ({"lora_dim": 4, "lora_target_modules": ("linear_fc1",)}, "linear_qkv among them"),
    ({"lora_dim": 4, "mtp_num_layers": 1}, "does not go with adapters"),
])  # fmt: skip
def test_adapters_that_cannot_be_are_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        plan_of(llama(), 8, options)
    assert "\n" not in str(caught.value)


def test_adapters_stand_in_plain_layers_only() -> None:
    for arch in (latent(), llama(experts=Experts(8, 2, 96))):
        with pytest.raises(InputError, match="attention and a dense feed-forward part only"):
            plan_of(arch, 8, LORA)
