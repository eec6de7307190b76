"""fp8 in the Megatron dialect, by hand after Transformer Engine's source: its kernels need an accelerator."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.step.models import llama, plan_of
from tokenwire.model.architecture import Architecture, Experts, FeedForward
from tokenwire.step import operations

SP = {"tp": 2, "sequence_parallel": True}
DO = {"use_distributed_optimizer": True, "fp8_param_gather": True}
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def _step(arch: Architecture, options: dict[str, Any], world: int = 8, **training: Any) -> pl.DataFrame:
    return operations(arch, plan_of(arch, world, options, precision="fp8", **training))


def _largest(step: pl.DataFrame, **which: Any) -> list[tuple[Any, ...]]:
    found = step.filter(pl.col("what").str.starts_with("largest values")).filter(**which)
    return list(found.select("group", "phase", "count", "elements", "dtype").iter_rows())


def test_delayed_scaling_reduces_the_whole_list_after_each_forward_and_backward() -> None:
    # A layer: qkv, core attention (counts as three), output, two of the feed-forward: 7 products; 2 layers: 14. Three values a
    # product forward, two backward; 4 micro-batches.
    step = _step(llama(2), {"tp": 2})
    assert _largest(step) == [("tp_dp_cp", "forward", 4, 42, "fp32"), ("tp_dp_cp", "backward", 4, 28, "fp32")]
    assert _largest(_step(llama(2), {"tp": 2, "tp_only_amax_red": True}), phase="forward")[0][0] == "tp_cp"


def test_virtual_stages_share_one_list() -> None:
    # 8 layers on 2 stages, 2 virtual ones each: a rank has 4 layers = 28 products in its list, reduced after every chunk.
    step = _step(llama(8), {"pp": 2, "vpp": 2})
    assert _largest(step, stage=1) == [("tp_dp_cp", "forward", 8, 84, "fp32"), ("tp_dp_cp", "backward", 8, 56, "fp32")]


def test_layers_that_run_again_reduce_again() -> None:
    # Each of 2 layers is a part of its own: 2 reductions of the forward's list in the backward, and one for each of its 4 linear
    # modules of the backward's, none of which gives the mark of the first away.
    step = _step(llama(2), {"tp": 2, **FULL})
    assert _largest(step) == [
        ("tp_dp_cp", "forward", 4, 42, "fp32"), ("tp_dp_cp", "backward", 4 * 2, 42, "fp32"),
        ("tp_dp_cp", "backward", 4 * 2 * 4, 28, "fp32"),
    ]  # fmt: skip
    # Block: the first layer runs again, the second does not and has a first module too.
    block = _step(llama(2), {"tp": 2, **FULL, "recompute_method": "block"})
    assert _largest(block, phase="backward") == [
        ("tp_dp_cp", "backward", 4, 42, "fp32"), ("tp_dp_cp", "backward", 4 * (4 + 1), 28, "fp32"),
    ]  # fmt: skip


def test_a_grouped_product_of_experts_takes_the_mark_away() -> None:
    # 8 experts over ep 2: 4 a rank. A layer: 5 of attention, 2 of shared experts, 2 grouped of 4 = 15 products.
    arch = llama(1, experts=Experts(8, 2, 96, shared=FeedForward(64, True)))
    options = {"ep": 2, "moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
    again = {"recompute_granularity": "selective", "recompute_modules": ["moe"]}
    assert _largest(_step(arch, options), phase="forward") == [("tp_dp_cp", "forward", 4, 45, "fp32")]
    # Run again: shared, shared, grouped; the second grouped one is not taken for the first. With the attention's: 4.
    assert _largest(_step(arch, {**options, **again}), phase="backward") == [
        ("tp_dp_cp", "backward", 4, 45, "fp32"), ("tp_dp_cp", "backward", 4 * 4, 30, "fp32"),
    ]  # fmt: skip


def test_multi_token_prediction_has_two_regions_of_its_own() -> None:
    # 2 layers and 1 further: 3·7 products and its projection: 22. Forward: the stage, the projection, the layer.
    step = _step(llama(2), {"mtp_num_layers": 1})
    assert _largest(step) == [("tp_dp_cp", "forward", 12, 66, "fp32"), ("tp_dp_cp", "backward", 12, 44, "fp32")]


@pytest.mark.parametrize("recipe", ["tensorwise", "mxfp8", "blockwise"])
def test_other_recipes_keep_no_list(recipe: str) -> None:
    assert _largest(_step(llama(2), {"tp": 2, "fp8_recipe": recipe})) == []


def _gathers(recipe: str, what: str, hidden: int = 64, length: int = 64) -> list[tuple[Any, ...]]:
    step = _step(llama(1, hidden), {**SP, "fp8_recipe": recipe}, sequence_length=length)
    rows = step.filter(pl.col("what").str.contains(f"attention {what}"), group="tp")
    return list(rows.select("op", "phase", "elements", "dtype").iter_rows())


def test_a_sequence_is_gathered_after_the_cast() -> None:
    # S = 64·64 numbers, a byte each; sums stay in bf16.
    assert _gathers("delayed", "input") == [
        ("all_gather", "forward", 4096, "fp8"), ("all_gather", "backward", 4096, "fp8"),
        ("reduce_scatter", "backward", 4096, "bf16"),
    ]  # fmt: skip
    # tensorwise: agree on the largest value, where something is cast.
    assert _gathers("tensorwise", "input") == [
        ("all_reduce", "forward", 1, "fp32"), ("all_gather", "forward", 4096, "fp8"), ("all_gather", "backward", 4096, "fp8"),
        ("reduce_scatter", "backward", 4096, "bf16"),
    ]  # fmt: skip


def test_scales_of_blocks_go_with_them() -> None:
    # mxfp8: 32 rows a rank, h = 64: a row has 2 scales, up to 4: 32·4·2 ranks = 256; columns: 1 · 128 · 2 = 256.
    assert _gathers("mxfp8", "output gradient") == [
        ("all_gather", "backward", 256, "uint8"), ("all_gather", "backward", 4096, "fp8"),
        ("all_gather", "backward", 256, "uint8"), ("all_gather", "backward", 4096, "fp8"),
    ]  # fmt: skip
    # blockwise: 128 rows a rank, h = 256: rows 2·128·2 = 512 scales, columns 1·256·2 = 512, fp32.
    data = 256 * 256
    assert _gathers("blockwise", "input", 256, 256)[:4] == [
        ("all_gather", "forward", 512, "fp32"), ("all_gather", "forward", data, "fp8"),
        ("all_gather", "backward", 512, "fp32"), ("all_gather", "backward", data, "fp8"),
    ]  # fmt: skip
    # No whole blocks of 128: gathered as it was.
    assert _gathers("blockwise", "input")[0] == ("all_gather", "forward", 4096, "bf16")


def test_first_and_last_layers_in_bf16() -> None:
    options = {**SP, "fp8_recipe": "tensorwise", "first_last_layers_bf16": True, "num_layers_at_end_in_bf16": 2}
    step = _step(llama(4), options).filter(op="all_gather", phase="forward", what="attention input")
    # Layer 0 and the last 2 of 4: 3 · 4 micro-batches in bf16, 1 · 4 in fp8.
    assert list(step.select("dtype", "count").iter_rows()) == [("bf16", 12), ("fp8", 4)]


def test_weights_in_fp8() -> None:
    # Four products a layer, 2 layers: 8 largest values over the data-parallel group, once a step.
    for recipe in ("delayed", "tensorwise"):
        assert _largest(_step(llama(2), {**DO, "fp8_recipe": recipe}), phase="optimizer") == [("dp", "optimizer", 1, 8, "fp32")]
    # Blocks of 128·128, a row of them up to a multiple of 4, a layer: q, k, v of 128·64 and output of 64·64: 1·4 each;
    # gate and up of 352·64: 3·4; down of 64·176: 1·4. 24 a layer.
    blockwise = _step(llama(2), {**DO, "fp8_recipe": "blockwise"})
    assert _largest(blockwise, phase="optimizer") == [("dp", "optimizer", 1, 48, "fp32")]
    # mxfp8: in the buffer of the gradients, in bf16; the sizes of the two buffers stay.
    options = {**DO, "reuse_grad_buf_for_mxfp8_param_ag": True, "fp8_recipe": "mxfp8"}
    sent = _step(llama(2), options).filter(phase="optimizer", op="all_gather")
    assert sent["dtype"].to_list() == ["bf16", "bf16"]
    assert sent["elements"].to_list() == _step(llama(2), DO).filter(phase="optimizer", op="all_gather")["elements"].to_list()


def test_experts_in_fp8_are_apart() -> None:
    # 8 experts over ep 2: 4 a rank, 2 products each: 8 values over edp; attention's 2 over dp. 1 layer.
    options = {**DO, "ep": 2, "moe_token_dispatcher_type": "alltoall"}
    step = _step(llama(1, experts=Experts(8, 2, 96)), options)
    assert _largest(step, phase="optimizer") == [("dp", "optimizer", 1, 2, "fp32"), ("edp", "optimizer", 1, 8, "fp32")]
