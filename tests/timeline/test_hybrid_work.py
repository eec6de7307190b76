"""Work of state-space blocks, of experts on a narrower width, and of modules that predict further tokens: by hand."""

from __future__ import annotations

import pytest

from tests.step.models import llama, plan_of
from tests.step.test_megatron_hybrid import HYBRID, NARROW, TWICE
from tokenwire.fabric import preset
from tokenwire.model.architecture import Layer, StateSpace
from tokenwire.step import calls_of
from tokenwire.timeline import step_time
from tokenwire.timeline.accelerator import accelerator
from tokenwire.timeline.compute import chunk_work, held
from tokenwire.timeline.kernels import Shapes
from tokenwire.timeline.operators import layer_operators
from tokenwire.timeline.state_space import moved_between_projections

GPU = accelerator("H100")


def flops(layer: Layer, z: Shapes) -> dict[str, float]:
    return {o.name: o.flops for o in layer_operators(layer, z) if o.phase == "forward" and o.flops}


def test_experts_on_a_narrower_width_have_a_product_to_it_and_one_back() -> None:
    found = flops(Layer(None, NARROW, 1), Shapes(tokens=64, sequence=64, micro_batch=1, hidden=64))
    # 64 tokens; 64 to 16 and back; 2 of 8 experts a token, 16 to 96 and back
    assert found["to the experts' width"] == found["from the experts' width"] == 2 * 64 * 64 * 16
    assert found["experts up"] == found["experts down"] == 2 * 64 * 2 * 16 * 96
    assert found["router"] == 2 * 64 * 64 * 8


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_tensor_parallelism_cuts_all_of_a_state_space_block(tp: int) -> None:
    block = StateSpace(2, 8192, 128, 4, heads=128, head_dim=64, groups=8)
    found = flops(
        Layer(block, None, 1), Shapes(tokens=4096, sequence=4096, micro_batch=1, hidden=4096, tp=tp)
    )
    # gate and input 2·8192, B and C 2·8·128, dt 128
    assert found["state-space input"] == 2 * 4096 * 4096 * (2 * 8192 + 2 * 8 * 128 + 128) / tp
    assert moved_between_projections(block, tp, 2.0)[0] == pytest.approx(
        moved_between_projections(block, 1, 2.0)[0] / tp
    )


@pytest.mark.parametrize("modules", [1, 2])
def test_modules_of_further_tokens_embed_project_and_have_head_and_loss_each(modules: int) -> None:
    without = plan_of(HYBRID, 8, {key: TWICE[key] for key in ("ep", "moe_token_dispatcher_type")})
    having = plan_of(HYBRID, 8, {**TWICE, "mtp_num_layers": modules})
    one, other = (chunk_work(HYBRID, plan, GPU, plan.stages[0], 0) for plan in (without, having))
    z = Shapes(tokens=64, sequence=64, micro_batch=1, hidden=64, ep=2)
    block = sum(o.flops for layer in HYBRID.mtp_block for o in layer_operators(layer, z))
    # Three products each: 2·64 to 64; the head, whose table of 1,000 words is padded to 1,024.
    assert other.flops - one.flops == pytest.approx(
        modules * (block + 3 * 2 * 64 * (2 * 64 * 64 + 64 * 1024))
    )
    assert other.total > one.total
    # Weights of one module, however often it is run: without experts as in tests/step/test_megatron_hybrid.py
    more = held(HYBRID, having, having.stages[0]).dense - held(HYBRID, without, without.stages[0]).dense
    assert more == 64 * 128 + 64 * 64 + 8 * 64 + 2 * 16 * 64 + 2 * 48 * 64 + 2 * 64 * 64 + 5 * 64


def test_first_and_last_layers_in_16_bits_take_as_long_as_all_in_16() -> None:
    options = {"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 2, "num_layers_at_end_in_bf16": 2, "fp8_recipe": "mxfp8"}
    arch = llama(hidden=512, layers=4, width=1408)
    wide, mixed, narrow = (
        chunk_work(arch, plan, GPU, plan.stages[0], 0)
        for plan in (
            plan_of(arch, 8, {}, sequence_length=4096),
            plan_of(arch, 8, options, sequence_length=4096, precision="fp8"),
            plan_of(arch, 8, {"fp8_recipe": "mxfp8"}, sequence_length=4096, precision="fp8"),
        )
    )
    # Four of four layers; the head is in 16 bits in all.
    assert mixed.total == pytest.approx(wide.total)
    assert narrow.total != pytest.approx(wide.total)
    assert mixed.flops == wide.flops == narrow.flops


def test_a_stage_between_with_a_layer_in_16_bits_is_not_like_one_without() -> None:
    options = {"pp": 4, "vpp": 2, "fp8_recipe": "mxfp8", "first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 2}
    arch = llama(hidden=512, layers=8, width=1408)
    plan = plan_of(arch, 4, options, sequence_length=4096, precision="fp8")
    step = step_time(arch, plan, calls_of(arch, plan), preset("dgx-h100-superpod"))
    # Layers 1 and 5, of which 1 stays in 16 bits; and layers 2 and 6. So narrow a model is slower in 8 bits, for the casts.
    assert step.stages[1].forward < 0.97 * step.stages[2].forward
