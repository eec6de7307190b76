"""What runs again in the backward: whole layers, layers that stop early, chosen operators."""

import pytest

from tokenwire.model import preset
from tokenwire.plan import read_plan
from tokenwire.timeline.kernels import Shapes
from tokenwire.timeline.operators import layer_operators
from tokenwire.timeline.recompute import Again, again, repeated

GPT = preset("gpt2").layers[0]
LLAMA = preset("llama-3.1-8b").layers[0]


def again_share(redo: Again, layer: object, hidden: int) -> float:
    """Return the FLOPs of a layer's products that run again, over those of its forward, attention between projections left out."""
    z = Shapes(tokens=4096, sequence=4096, micro_batch=1, hidden=hidden)
    products = [o for o in layer_operators(layer, z) if o.phase == "forward" and o.kind == "matmul"]  # type: ignore[arg-type]
    return sum(o.flops * repeated(redo, o, layer) for o in products) / sum(o.flops for o in products)  # type: ignore[arg-type]


def test_a_checkpoint_of_torch_leaves_out_the_last_product() -> None:
    # GPT: query, key, value 6h², output 2h², up 8h², down 8h²: 16 of 24
    assert again_share(Again("layer, stopped early"), GPT, 768) == pytest.approx(16 / 24)
    assert again_share(Again("layer"), GPT, 768) == 1


def test_every_second_product_by_operator() -> None:
    # Llama 8B, in 4096·4096: q 1, k 1/4, v 1/4, o 1, w1 3.5, w3 3.5, w2 3.5. Again: k, o, w3 = 4.75 of 13
    assert again_share(Again("operators"), LLAMA, 4096) == pytest.approx(4.75 / 13)


@pytest.mark.parametrize(("options", "rule"), [
    ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, "layer"),
    ({"recompute_granularity": "selective"}, "modules"), ({}, "nothing"),
    ({"dialect": "torchtitan", "activation_checkpoint_mode": "full"}, "layer"),
    ({"dialect": "torchtitan", "activation_checkpoint_mode": "full", "early_stop": True}, "layer, stopped early"),
    ({"dialect": "torchtitan", "activation_checkpoint_mode": "selective", "selective_ac_option": "op"}, "operators"),
    ({"dialect": "torchtitan", "activation_checkpoint_mode": "selective", "selective_ac_option": "op", "early_stop": True},
     "operators, stopped early"),
])  # fmt: skip
def test_rules_by_framework(options: dict[str, object], rule: str) -> None:
    assert again(read_plan(options), (0,))[0].rule == rule


def test_blocks_repeat_the_first_layers_and_every_second_one() -> None:
    block = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1}
    assert [redo.rule for redo in again(read_plan(block), (0, 1))] == ["layer", "nothing"]


@pytest.mark.parametrize(("option", "before", "want"), [
    ("2", 0, [0, 1, 0, 1]), ("2", 1, [1, 0, 1, 0]), ("3", 0, [0, 0, 1, 0]), ("3", 4, [0, 1, 0, 0]), ("1", 3, [1, 1, 1, 1]),
])  # fmt: skip
def test_torchtitan_counts_layers_from_one_over_all_of_a_rank(option: str, before: int, want: list[int]) -> None:
    # _layer_sac_count is raised before it is divided, and goes on through the rank's virtual stages, whatever the layers' own numbers
    config = read_plan({"dialect": "torchtitan", "activation_checkpoint_mode": "selective", "selective_ac_option": option})
    assert [redo.rule == "layer" for redo in again(config, (20, 21, 22, 23), before)] == [bool(one) for one in want]


def test_by_operator_only_the_last_sum_depends_on_stopping() -> None:
    z = Shapes(tokens=4096, sequence=4096, micro_batch=1, hidden=4096)
    forward = [o for o in layer_operators(LLAMA, z) if o.phase == "forward"]
    differs = [o.name for o in forward if repeated(Again("operators"), o, LLAMA) != repeated(Again("operators, stopped early"), o, LLAMA)]
    assert differs == ["feed-forward residual"]


@pytest.mark.parametrize(("module", "names"), [
    ("core_attn", {"core attention"}), ("layernorm", {"norm"}), ("moe_act", {"experts' activation"}), ("mlp", set()),
    ("mla_up_proj", {"query up", "key and value up", "rotary positions and joining"}), ("shared_experts", {"up", "activation", "down"}),
])  # fmt: skip
def test_the_modules_of_megatron(module: str, names: set[str]) -> None:
    layer = preset("deepseek-v3").layers[10]
    z = Shapes(tokens=4096, sequence=4096, micro_batch=1, hidden=7168, ep=32)
    redo = Again("modules", frozenset({module}))
    found = {o.name for o in layer_operators(layer, z) if o.phase == "forward" and repeated(redo, o, layer)}
    assert found == names
