"""What experts move besides their products: copies by dispatcher, biases, one kernel each way, pages."""

from dataclasses import replace

import pytest

from tokenwire.model import preset
from tokenwire.model.architecture import Experts
from tokenwire.timeline.kernels import Operator, Shapes
from tokenwire.timeline.operators import layer_operators

QWEN, OSS = preset("qwen3-30b-a3b").layers[0], preset("gpt-oss-120b").layers[0]
Z = Shapes(tokens=4096, sequence=4096, micro_batch=1, hidden=2048, ep=8)


def moved(layer: object, z: Shapes, name: str, phase: str = "forward") -> float:
    return sum(o.bytes for o in operators(layer, z) if o.name == name and o.phase == phase)


def operators(layer: object, z: Shapes) -> tuple[Operator, ...]:
    return layer_operators(layer, z)  # type: ignore[arg-type]


def test_an_exchange_by_all_to_all_copies_rows_twice_on_each_side() -> None:
    # 4,096 tokens of 4,096 bytes, and 8 rows of each: (1 + 8) and 2·8 times 16 MiB
    token = 4096 * 2048 * 2
    assert moved(QWEN, Z, "permutation") == 9 * token
    assert moved(QWEN, Z, "sorting by expert") == 16 * token


def test_tokens_that_are_sent_once_are_copied_once() -> None:
    z = replace(Z, sent_once=True)
    assert moved(QWEN, z, "sorting by expert") == 0
    # A rank has 16 of 128 experts: none of a token's 8 is there with the chance of C(112,8)/C(128,8) = 0.3312
    token = 4096 * 2048 * 2
    assert moved(QWEN, z, "permutation") == pytest.approx((8 * 0.6688 + 8) * token, rel=1e-3)


def test_biases_and_cut_halves_are_kernels_of_their_own() -> None:
    z = replace(Z, hidden=2880)
    # 4,096 tokens, 4 rows each, 2,880 wide: 28 bytes forward, 40 backward; activation 3 and 8 units of 2 bytes
    rows = 4096 * 4 * 2880
    assert moved(OSS, z, "experts' bias") == 28 * rows
    assert moved(OSS, z, "experts' bias", "input") == 40 * rows
    assert moved(OSS, z, "experts' activation") == 11 * 2 * rows
    plain = replace(OSS, feed_forward=replace(OSS.feed_forward, bias=False))  # type: ignore[arg-type]
    assert moved(plain, z, "experts' activation") == 3 * 2 * rows
    assert moved(plain, z, "experts' bias") == 0


def test_one_kernel_each_way_has_no_bias_and_casts_less() -> None:
    z = replace(Z, hidden=2880, experts_in_one=True)
    assert moved(OSS, z, "experts' bias") == 0
    assert moved(OSS, z, "experts' activation") == 2 * 4096 * 4 * 2880
    uncast = {(o.name, o.phase) for o in operators(OSS, z) if o.kind == "grouped" and not o.cast}
    assert uncast == {("experts up", "input"), ("experts down", "forward")}
    assert all(o.cast for o in operators(OSS, replace(z, experts_in_one=False)))


def test_pages_hold_what_the_backward_needs() -> None:
    # a row: 2,048 and 768 bytes in 8 bits, and 2·768 numbers of 16; read and written, and back
    rows = 4096 * 8
    for phase in ("forward", "input"):
        assert moved(QWEN, replace(Z, stashed=True), "experts' stash", phase) == 2 * rows * (2048 + 768 + 2 * 768 * 2)
    assert moved(QWEN, Z, "experts' stash") == 0


@pytest.mark.parametrize("change", [{"sent_once": True}, {"experts_in_one": True}, {"stashed": True}])
@pytest.mark.parametrize("layer", [QWEN, OSS])
def test_products_are_the_same_whatever_is_moved(change: dict[str, bool], layer: object) -> None:
    assert isinstance(layer.feed_forward, Experts)  # type: ignore[attr-defined]
    flops = [sum(o.flops for o in operators(layer, z)) for z in (Z, replace(Z, **change))]  # type: ignore[arg-type]
    assert flops[0] == flops[1]
