"""Operators of a layer against FLOPs worked out by hand and against the model's own count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.model import flops_per_token, preset
from tokenwire.timeline.kernels import Shapes, product
from tokenwire.timeline.operators import head_operators, layer_operators


def shapes(**more: object) -> Shapes:
    return Shapes(**({"tokens": 4096, "sequence": 4096, "micro_batch": 1, "hidden": 4096} | more))  # type: ignore[arg-type]


def test_a_linear_layer_is_three_products_of_equal_work() -> None:
    forward, inner, weight = product("up", "feed_forward", 8, 16, 32, 2)
    # 2·8·16·32 = 8,192
    assert forward.flops == inner.flops == weight.flops == 8192
    assert (forward.m, forward.k, forward.n) == (8, 16, 32)
    assert (inner.m, inner.k, inner.n) == (8, 32, 16)
    assert (weight.m, weight.k, weight.n) == (32, 8, 16)
    # inputs 2·(8·16 + 8·32) = 768, and 16·32 sums in fp32 read and written: 4,096
    assert weight.bytes == 768 + 4096


def test_llama_8b_layer_by_hand() -> None:
    operators = layer_operators(preset("llama-3.1-8b").layers[0], shapes())
    forward = sum(o.flops for o in operators if o.phase == "forward")
    # qkv 2·4096·4096·6144, output 2·4096·4096·4096, up 2·4096·4096·28672, down 2·4096·14336·4096, causal 2·32·128·4096²
    expected = 2 * 4096 * 4096 * (6144 + 4096 + 28672 + 14336) + 2 * 32 * 128 * 4096**2
    assert forward == expected


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "deepseek-v2-lite", "mixtral-8x7b"])
def test_products_are_those_that_the_model_counts(name: str) -> None:
    arch, s = preset(name), 4096
    z = Shapes(tokens=s, sequence=s, micro_batch=1, hidden=arch.hidden_size)
    # Megatron's count takes each backward as two forwards; attention's own backward is 2.5 of them, and the router is left out.
    own = 3 * sum(
        o.flops for layer in arch.layers for o in layer_operators(layer, z) if o.phase == "forward" and o.name != "router"
    ) + 3 * sum(o.flops for o in head_operators(arch.vocabulary_size, z, True) if o.phase == "forward")  # fmt: skip
    assert own / s == pytest.approx(flops_per_token(arch, s).value, rel=0.01)


@given(st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_tensor_parallelism_divides_the_products(tp: int, sequence_parallel: bool) -> None:
    layer = preset("llama-3.1-70b").layers[0]
    whole = sum(o.flops for o in layer_operators(layer, shapes(hidden=8192)))
    part = sum(o.flops for o in layer_operators(layer, shapes(hidden=8192, tp=tp, sequence_parallel=sequence_parallel)))
    assert part * tp == pytest.approx(whole)


@given(st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_context_parallelism_divides_attention(cp: int, ulysses: bool) -> None:
    layer = preset("llama-3.1-70b").layers[0]
    whole = sum(o.flops for o in layer_operators(layer, shapes(hidden=8192)))
    part = sum(o.flops for o in layer_operators(layer, shapes(hidden=8192, tokens=4096 // cp, cp=cp, ulysses=ulysses)))
    assert part * cp == pytest.approx(whole)


def test_scores_written_out_cost_all_of_the_square() -> None:
    layer = preset("gpt2").layers[0]
    def core(unfused: bool) -> float:
        z = Shapes(tokens=1024, sequence=1024, micro_batch=1, hidden=768, unfused=unfused)
        return sum(o.flops for o in layer_operators(layer, z) if o.part == "core" and o.phase == "forward")
    assert core(True) == 2 * core(False)
