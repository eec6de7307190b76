"""ZeRO, ZeRO++, Ulysses and the pipeline of DeepSpeed: worked by hand, properties, and users' questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model import parameters
from tokenwire.model.architecture import Tensor
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.step import operations
from tokenwire.step.dialects.deepspeed.fetching import Limits, gathers
from tokenwire.step.dialects.deepspeed.zero import closed_before, padded

SPEED = {"dialect": "deepspeed"}
NOTHING_KEPT = {"stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}


def test_stage_1_reduces_once_and_stage_2_in_every_micro_batch() -> None:
    arch = llama(2)
    counts = {}
    for stage in (1, 2):
        table = operations(arch, plan_of(arch, 8, {**SPEED, "zero_stage": stage}))
        gradients = table.filter(table["phase"] == "gradients")
        assert gradients["elements"].to_list() == [parameters(arch).total]
        counts[stage] = gradients["count"].sum()
    assert counts == {1: 1, 2: 4}


def test_parameters_come_back_padded() -> None:
    # Parts of 8 ranks begin at multiples of 2: the model's elements rounded up to a multiple of 16.
    arch = llama(1, 90, 6, 3, 1001, width=251)
    rows = operations(arch, plan_of(arch, 8, {**SPEED, "zero_stage": 1})).to_dicts()
    total = parameters(arch).total
    assert next(r for r in rows if r["what"] == "updated parameters")["elements"] == -(-total // 16) * 16


def test_stage_3_gathers_twice_and_scatters_once_a_micro_batch() -> None:
    arch = llama(2)
    table = operations(arch, plan_of(arch, 8, {**SPEED, "zero_stage": 3, **NOTHING_KEPT}))
    sums = {
        phase: int((part["count"] * part["elements"]).sum())
        for (phase,), part in table.filter(table["op"] != "all_reduce").partition_by("phase", as_dict=True).items()
    }
    total = 4 * parameters(arch).total
    assert sums == {"forward": total, "backward": total, "gradients": total}


@pytest.mark.parametrize(("precision", "stage", "pp", "groups"), [
    ("fp32", 1, 1, []), ("fp32", 1, 2, []), ("fp32", 3, 1, []), ("bf16", 0, 2, []), ("bf16", 3, 1, []), ("fp16", 0, 1, []),
    ("fp16", 0, 2, ["pp"]), ("fp16", 1, 1, ["dp"]), ("fp16", 1, 2, ["dp", "pp"]), ("fp16", 2, 1, ["dp"]), ("fp16", 3, 1, ["dp"]),
])  # fmt: skip
def test_overflow_is_asked_of_halves(precision: str, stage: int, pp: int, groups: list[str]) -> None:
    # As DeepSpeed 0.19.8's engine says it on the fake backend, with a static scale of the loss.
    arch = llama(2)
    plan = resolve(read_plan({**SPEED, "zero_stage": stage, "pp": pp}),
                   TrainingConfig.model_validate({"sequence_length": 64, "global_batch": 64, "micro_batch": 1, "precision": precision}), arch, 8)  # fmt: skip
    table = operations(arch, plan)
    asked = table.filter((table["what"] == "overflow") & (table["group_size"] > 1))
    assert sorted(set(asked["group"])) == groups


def test_network_of_zero_3_for_80_billion_parameters() -> None:
    # deepspeedai/DeepSpeed #2928: 16 nodes of 8, bf16. Nothing of this size stays: two gathers of 2 bytes and a scatter of 2
    # bytes a parameter and micro-batch. 80 layers of 8,192 with width 28,672, 64 heads, 8 KV heads: 70.6 billion.
    arch = llama(92, 8192, 64, 8, 128_256, width=28_672)
    total = parameters(arch).total
    assert 78e9 < total < 82e9
    plan = resolve(read_plan({**SPEED, "zero_stage": 3}), TrainingConfig(sequence_length=2048, global_batch=128, micro_batch=1),
                   arch, 128)  # fmt: skip
    table = operations(arch, plan)
    moved = {
        phase: int((part["count"] * part["bytes"]).sum())
        for (phase,), part in table.filter(table["group_size"] == 128).partition_by("phase", as_dict=True).items()
    }
    # What is gathered once may serve the end of forward and the start of backward: within max_live_parameters, 10^9 elements.
    assert 2 * total * 0.99 < moved["forward"] < 2 * total * 1.001
    assert 2 * (total - 2.1e9) < moved["backward"] <= 2 * total * 1.001
    assert moved["gradients"] == 2 * total


def test_ulysses_sends_less_the_more_ranks_and_megatron_does_not() -> None:
    # deepspeedai/DeepSpeed #4217. Ulysses: 4 all_to_alls a layer and pass of b·s/c·h (equal heads); a rank keeps 1/c of each.
    # Megatron with sequence parallelism: 4 gathers or scatters of b·s·h a layer forward, whatever the number of ranks.
    arch = llama(4, kv_heads=8)
    ulysses, megatron = {}, {}
    for n in (2, 4, 8):
        table = operations(arch, plan_of(arch, n, {**SPEED, "zero_stage": 1, "cp": n}))
        mine = table.filter((table["op"] == "all_to_all") & (table["phase"] == "forward"))
        ulysses[n] = int((mine["count"] * mine["elements"]).sum()) * (n - 1) / n
        table = operations(arch, plan_of(arch, n, {"dialect": "megatron", "tp": n, "sequence_parallel": True}))
        theirs = table.filter((table["group"] == "tp") & (table["phase"] == "forward") & (table["layers"] > 0))
        megatron[n] = int((theirs["count"] * theirs["elements"]).sum()) * (n - 1) / n
    # b·s·h = 64·64: 4 layers · 4 micro-batches · 4 all_to_alls · 4096/n · (n-1)/n.
    assert ulysses == {n: 4 * 4 * 4 * 4096 / n * (n - 1) / n for n in (2, 4, 8)}
    assert ulysses[2] > ulysses[4] > ulysses[8]
    assert megatron[2] < megatron[4] < megatron[8]


def test_secondary_partitions_stay_in_the_node() -> None:
    arch = llama(2)
    options = {**SPEED, "zero_stage": 3, **NOTHING_KEPT, "zero_hpz_partition_size": 8}
    table = operations(arch, plan_of(arch, 32, options))
    backward = table.filter(table["phase"] == "backward")
    assert set(backward["group"]) == {"hpz"}
    assert set(backward["group_size"]) == {8}


def test_quantised_weights_halve_the_gathers() -> None:
    arch = llama(2, 256, 8, 8, 1024, width=512)
    full, eight = (
        operations(arch, plan_of(arch, 8, {**SPEED, "zero_stage": 3, **NOTHING_KEPT, "zero_quantized_weights": flag}))
        for flag in (False, True)
    )
    bytes_of = [
        int((t["count"] * t["bytes"]).filter(t["phase"] == "forward").sum()) for t in (full, eight.filter(eight["dtype"] == "int8"))
    ]  # fmt: skip
    assert bytes_of[0] == 2 * bytes_of[1]


def test_what_a_pipeline_sends_is_received() -> None:
    arch = llama(4)
    rows = operations(arch, plan_of(arch, 8, {**SPEED, "pp": 4, "zero_stage": 1})).to_dicts()
    ends = {op: sorted((r["stage"], r["peer"], r["phase"], r["count"], r["elements"]) for r in rows if r["op"] == op)
            for op in ("send", "recv")}  # fmt: skip
    assert sorted((peer, stage, *rest) for stage, peer, *rest in ends["send"]) == ends["recv"]


@given(sizes=st.lists(st.integers(1, 100), max_size=40), limit=st.integers(1, 200))
def test_a_bucket_never_overflows_but_for_one_large_tensor(sizes: list[int], limit: int) -> None:
    buckets = closed_before(sizes, limit)
    assert [x for bucket in buckets for x in bucket] == sizes
    assert all(sum(bucket) <= limit or len(bucket) == 1 for bucket in buckets)


@given(elements=st.integers(1, 10**9), n=st.integers(1, 4096), alignment=st.sampled_from([1, 2]))
def test_padding_is_the_least_that_divides(elements: int, n: int, alignment: int) -> None:
    size = padded(elements, n, alignment)
    assert size % (n * alignment) == 0
    assert elements <= size < elements + n * alignment


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20), prefetch=st.integers(0, 100), live=st.integers(0, 300),
    reuse=st.integers(0, 300), persistence=st.integers(0, 20),
)  # fmt: skip
def test_every_parameter_is_there_for_forward(sizes: list[int], prefetch: int, live: int, reuse: int, persistence: int) -> None:
    held = [Tensor(f"m{i}.weight", "mixer", (size,)) for i, size in enumerate(sizes)]
    seen = gathers(held, Limits(persistence, prefetch, live, reuse))
    names = [name for _, part in seen for name in part]
    # Large ones are gathered once or twice in a micro-batch, those that stay never.
    for tensor in held:
        assert names.count(tensor.name) in ((0,) if tensor.elements <= persistence else (1, 2))


@pytest.mark.parametrize(("vocabulary", "world", "options", "rule"), [
    # 1,000 scales of the embedding on 16 ranks; 3,447 elements of a rank's part are no multiple of 8.
    (1000, 16, {"zero_quantized_gradients": True}, "scales of head.weight do not divide over 16 ranks"),
    (1001, 64, {"zero_quantized_weights": True, "stage3_param_persistence_threshold": 0}, "must be a multiple of 8"),
])  # fmt: skip
def test_what_its_kernels_refuse_is_refused(vocabulary: int, world: int, options: dict[str, object], rule: str) -> None:
    arch = llama(2, vocabulary=vocabulary)
    with pytest.raises(InputError, match=rule):
        operations(arch, plan_of(arch, world, {"dialect": "deepspeed", "zero_stage": 3, **options}))
