"""The Megatron dialect by hand, and by properties that hold for every plan."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import gpt, llama, plan_of
from tokenwire.model.architecture import Architecture, Experts, FeedForward, LatentAttention, Layer, Norm
from tokenwire.step import COLUMNS, operations
from tokenwire.step.dialects.megatron.buckets import Length, buckets, joined
from tokenwire.step.dialects.megatron.sizes import written
from tokenwire.units import element_bytes


def _rows(frame: pl.DataFrame, **equal: object) -> list[tuple[Any, ...]]:
    for column, value in equal.items():
        frame = frame.filter(pl.col(column) == value)
    return frame.select("op", "count", "elements", "dtype", "bytes").rows()


def test_tensor_parallelism_by_hand() -> None:
    # b = 1, s = 64, h = 64: an activation is 4,096 numbers, 8,192 B in bf16. 4 layers of 2 blocks, 4 micro-batches:
    # 32 forward, 32 backward; the embedding 4 forward, the head's input gradient 4 backward.
    arch = gpt()
    step = operations(arch, plan_of(arch, 2, {"tp": 2}))
    blocks = step.filter((pl.col("group") == "tp") & (pl.col("elements") == 4096) & (pl.col("dtype") == "bf16"))
    sums = dict(blocks.group_by("phase").agg(pl.col("count").sum()).iter_rows())
    assert sums == {"forward": 32 + 4, "backward": 32 + 4}
    # Three numbers a token in fp32 for the loss: 64·4 B each, 4 micro-batches.
    assert _rows(step, dtype="fp32", elements=64, phase="forward") == [("all_reduce", 4, 64, "fp32", 256)] * 3


def test_gradients_by_hand() -> None:
    # GPT with h = 64, V' = 1,024 (1,000 padded to 128·1), s_max = 64, 1 layer, t = p = 1, D = 8.
    # embedding 65,536 + position 4,096 + layer 12h² + 13h = 49,152 + 832 + final norm 128 = 119,744 parameters.
    arch = gpt(1)
    plain = operations(arch, plan_of(arch, 8, {}))
    assert _rows(plain, phase="gradients") == [("all_reduce", 1, 119_744, "bf16", 239_488)]
    # Every tensor is a multiple of 64; the whole is padded to 128: 119,744 = 935.5·128 -> 936·128 = 119,808.
    options = {"use_distributed_optimizer": True, "grad_reduce_in_fp32": True}
    sharded = operations(arch, plan_of(arch, 8, options))
    assert _rows(sharded, phase="gradients") == [("reduce_scatter", 1, 119_808, "fp32", 479_232)]
    assert _rows(sharded, phase="optimizer", dtype="bf16") == [("all_gather", 1, 119_808, "bf16", 239_616)]


def test_pipeline_by_hand() -> None:
    # 4 micro-batches, p = 2, v = 2: a micro-batch crosses 3 boundaries: 0→1, 1→0, 0→1. Stage 0 sends 2 forward, gets 1.
    arch = llama()
    step = operations(arch, plan_of(arch, 2, {"pp": 2, "vpp": 2}))
    counts = {(s, op, phase): n for s, op, phase, n in step.filter(pl.col("group") == "pp")
              .select("stage", "op", "phase", "count").iter_rows()}  # fmt: skip
    assert counts == {
        (0, "send", "forward"): 8, (0, "recv", "forward"): 4, (0, "send", "backward"): 4, (0, "recv", "backward"): 8,
        (1, "send", "forward"): 4, (1, "recv", "forward"): 8, (1, "send", "backward"): 8, (1, "recv", "backward"): 4,
    }  # fmt: skip


def test_groups_of_one_are_silent() -> None:
    arch = gpt()
    assert operations(arch, plan_of(arch, 1, {})).is_empty()
    assert (operations(arch, plan_of(arch, 8, {"tp": 2}))["group_size"] > 1).all()


def _lengths(*sizes: int) -> list[Length]:
    return [Length(n, n) for n in sizes]


def test_buckets_by_hand() -> None:
    # Reverse order: 30, 20, 10. Buckets close at 45: 30+20 = 50, then 10.
    assert buckets(_lengths(10, 20, 30), bucket_size=45, group_size=2, padded=False) == [(50, 50), (10, 10)]
    # Padded: 30 at 0, 20 at 64..84, closed to 128; 10 -> 128.
    assert buckets(_lengths(10, 20, 30), bucket_size=45, group_size=2, padded=True) == [(128, 50), (128, 10)]
    # A tied embedding stands alone.
    assert buckets([Length(10, 10, True), *_lengths(20, 30)], bucket_size=None, group_size=3, padded=True) == [(384, 50), (384, 10)]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20), st.integers(1, 12), st.none() | st.integers(1, 800))
def test_buckets_hold_every_parameter(sizes: list[int], group: int, limit: int | None) -> None:
    plain = buckets(_lengths(*sizes), bucket_size=limit, group_size=group, padded=False)
    assert [n for n, inside in plain] == [inside for n, inside in plain]
    assert sum(n for n, _ in plain) == sum(sizes)
    padded = buckets(_lengths(*sizes), bucket_size=limit, group_size=group, padded=True)
    assert all(n % group == 0 and n % 128 == 0 and n >= inside for n, inside in padded)
    assert sum(inside for _, inside in padded) == sum(sizes)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20), st.integers(0, 20), st.integers(1, 12), st.booleans())
def test_what_is_never_cut_may_be_joined(sizes: list[int], at: int, group: int, padded: bool) -> None:
    one_by_one, halves = _lengths(*sizes), (_lengths(*sizes[:at]), _lengths(*sizes[at:]))
    together = [length for half in halves for length in joined(half, padded=padded)]
    whole, same = (buckets(lengths, bucket_size=None, group_size=group, padded=padded) for lengths in (one_by_one, together))
    assert whole == same


PLANS = st.fixed_dictionaries(
    {"tp": st.sampled_from([1, 2, 4]), "pp": st.sampled_from([1, 2, 4]), "cp": st.sampled_from([1, 2])},
    optional={"sequence_parallel": st.booleans(), "use_distributed_optimizer": st.booleans(),
              "grad_reduce_in_fp32": st.booleans(), "variable_seq_lengths": st.booleans()},
)  # fmt: skip


def evaluated(values: str) -> float:
    """Return what the numbers of a formula come to: products, quotients and sums, from left to right."""
    assert re.fullmatch(r"[\d,.()·/+ -]+", values), values
    return float(eval(values.replace(",", "").replace("·", "*"), {"__builtins__": {}}))


@given(PLANS, st.integers(1, 3), st.booleans())
def test_every_plan(options: dict[str, Any], dp: int, tied: bool) -> None:
    arch = llama(tied=tied)
    plan = plan_of(arch, options["tp"] * options["pp"] * options["cp"] * dp, options)
    step = operations(arch, plan)
    assert tuple(step.columns) == COLUMNS
    for row in step.iter_rows(named=True):
        assert row["count"] > 0
        assert row["group_size"] == plan.group_size(row["group"]) > 1
        assert row["bytes"] == element_bytes(row["elements"], row["dtype"])
        assert evaluated(row["values"]) == row["elements"], row["formula"]
        assert ".py" in row["source"]
        if row["op"] in ("all_gather", "reduce_scatter"):
            assert row["elements"] % row["group_size"] == 0
    # What one stage sends, its peer receives.
    p2p = step.filter(pl.col("group") == "pp", pl.col("op").is_in(["send", "recv"]))
    sent = sorted(p2p.filter(pl.col("op") == "send").select("stage", "peer", "phase", "count", "elements").rows())
    got = sorted(p2p.filter(pl.col("op") == "recv").select("peer", "stage", "phase", "count", "elements").rows())
    assert sent == got


@given(st.sampled_from([2, 4]))
def test_sequence_parallelism_moves_the_ring_volume_of_all_reduces_and_half_more(tp: int) -> None:
    # Ring volumes in S(n-1)/n of the blocks: all_reduce counts 2; SP: forward AG + RS = 2, backward 2 AG + RS = 3.
    arch = llama()
    volumes = []
    for sequence in (False, True):
        step = operations(arch, plan_of(arch, tp, {"tp": tp, "sequence_parallel": sequence}))
        blocks = step.filter(pl.col("layers") > 0)
        weight = pl.when(pl.col("op") == "all_reduce").then(2).otherwise(1)
        volumes.append(blocks.select((weight * pl.col("count") * pl.col("bytes")).sum()).item())
    assert volumes[1] * 4 == volumes[0] * 5


def test_experts_by_hand() -> None:
    # e = 4, t = 1, 8 experts, k = 2, 64 tokens a rank: 128 rows of 64 numbers; 4 layers, 4 micro-batches.
    arch = llama(experts=Experts(8, 2, 96))
    step = operations(arch, plan_of(arch, 4, {"ep": 4, "moe_token_dispatcher_type": "alltoall"}))
    rows = _rows(step, group="ep", phase="forward")
    assert rows == [("all_to_all", 16, 8192, "bf16", 16384)] * 2 + [("all_to_all", 16, 128, "bf16", 256)]


def test_deepep_sends_a_token_once_to_a_rank() -> None:
    # 8 experts on 4 ranks, k = 2: P(a rank has none of the two) = C(6,2)/C(8,2) = 15/28, so 4·13/28 = 1.857 ranks a token.
    arch = llama(experts=Experts(8, 2, 96))
    step = operations(arch, plan_of(arch, 4, {"ep": 4, "moe_token_dispatcher_type": "flex"}))
    dispatch = step.filter(pl.col("what") == "tokens: dispatch")["elements"].item()
    assert dispatch == round(64 * 4 * 13 / 28) * 64


def test_a_plan_of_a_hundred_thousand_gpus_has_no_more_rows_than_a_small_one() -> None:
    arch = llama(126, 1024, 128, 8, 128_256, width=4096)
    options = {"tp": 8, "pp": 16, "cp": 2, "sequence_parallel": True, "use_distributed_optimizer": True,
               "decoder_first_pipeline_num_layers": 7, "decoder_last_pipeline_num_layers": 7}  # fmt: skip
    large, small = (operations(arch, plan_of(arch, gpus, options)) for gpus in (100_352, 512))
    # A row is a kind of call of a stage, however many ranks make it.
    same = ["stage", "op", "group", "phase", "count", "what"]
    assert large.select(same).rows() == small.select(same).rows()
    assert large["group_size"].max() == 100_352


@pytest.mark.parametrize(
    ("formula", "text"),
    [("b·s/c·h", "2·8/1·4"), ("V'/t·h", "100/5·4"), ("bucket/D_shard", "bucket/D_shard"), ("s·b", "8·2")],
)
def test_formulas_with_their_values(formula: str, text: str) -> None:
    assert written(formula, {"b": 2, "s": 8, "c": 1, "h": 4, "V'": 100, "t": 5, "D": 7}) == text


def test_latent_attention_by_hand() -> None:
    # DeepSeek-like: 8 heads, q compressed to 48, keys and values to 32 with 16 rotary; 64 tokens, t = 2, 4 micro-batches.
    mixer = LatentAttention(8, 48, 32, 8, 16, 8)
    arch = Architecture("mla", "mla", 1000, 64, (Layer(mixer, FeedForward(128, True)),) * 4, Norm("rms"))
    step = operations(arch, plan_of(arch, 2, {"tp": 2, "sequence_parallel": True}))
    latent = step.filter(pl.col("source").str.contains("multi_latent_attention"))
    counts = {(op, phase, n): c for op, phase, n, c in latent.group_by("op", "phase", "elements").agg(pl.col("count").sum())
              .iter_rows()}  # fmt: skip
    # 64·48 = 3,072; 64·32 = 2,048; rotary 64·16 = 1,024; output 64·64 = 4,096; 4 layers · 4 micro-batches = 16.
    assert counts == {
        ("all_gather", "forward", 3072): 16, ("all_gather", "backward", 3072): 16, ("reduce_scatter", "backward", 3072): 16,
        ("all_gather", "forward", 2048): 16, ("all_gather", "backward", 2048): 16, ("reduce_scatter", "backward", 2048): 16,
        ("all_gather", "forward", 1024): 16, ("reduce_scatter", "backward", 1024): 16,
        ("reduce_scatter", "forward", 4096): 16, ("all_gather", "backward", 4096): 16,
    }  # fmt: skip


def test_fp8_parameters_are_gathered_as_bytes() -> None:
    # h = 64, one layer: 12h² = 49,152 numbers of weights of products in fp8; the other 70,592 in bf16, padded to 70,656.
    arch = gpt(1)
    options = {"use_distributed_optimizer": True, "fp8_param_gather": True}
    step = operations(arch, plan_of(arch, 8, options, precision="fp8"))
    assert _rows(step, phase="optimizer", op="all_gather") == [
        ("all_gather", 1, 49_152, "fp8", 49_152), ("all_gather", 1, 70_656, "bf16", 141_312),
    ]  # fmt: skip
