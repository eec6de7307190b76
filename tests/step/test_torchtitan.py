"""FSDP2, HSDP, tensor, pipeline and context parallelism in the torchtitan dialect: worked by hand, and properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import gpt, llama, plan_of
from tokenwire.model import parameters
from tokenwire.step import operations
from tokenwire.step.dialects.torchtitan.units import padded

TITAN = {"dialect": "torchtitan"}


def test_gathers_and_scatters_of_plain_fsdp() -> None:
    # 64 ranks, 4 blocks: root and blocks gathered forward, blocks again backward, all scattered: 1 + L, L, 1 + L a micro-batch.
    arch = llama(4)
    table = operations(arch, plan_of(arch, 64, {**TITAN, "fsdp_wrap": "blocks"}))
    m = 4
    by = {(r["op"], r["phase"]): 0 for r in table.to_dicts()}
    for row in table.to_dicts():
        by[row["op"], row["phase"]] += row["count"]
    assert by["all_gather", "forward"] == m * 5
    assert by["all_gather", "backward"] == m * 4
    assert by["reduce_scatter", "gradients"] == m * 5


def test_a_block_by_hand() -> None:
    # h 64, 8 heads of 8, 4 KV heads, width 176, 8 ranks. q 64·64 + k, v 2·32·64 + o 64·64 = 12,288; gate, up, down
    # 3·176·64 = 33,792; norms 2·64 = 128. Together 46,208: every first dimension divides by 8, so nothing is added.
    arch = llama(4)
    rows = operations(arch, plan_of(arch, 8, TITAN)).to_dicts()
    block = next(r for r in rows if r["what"] == "parameters of block")
    assert (block["elements"], block["dtype"], block["bytes"]) == (46_208, "bf16", 92_416)
    gradients = next(r for r in rows if r["what"] == "gradients of block")
    # fp32 gradients: twice the bytes of the bf16 parameters.
    assert gradients["bytes"] == 2 * block["bytes"]


def test_padding_by_hand() -> None:
    # 1001 rows on 8 ranks: ceil(1001/8) = 126 rows each, 1008 in all; 64 wide: 64,512.
    arch = llama(1, vocabulary=1001)
    rows = operations(arch, plan_of(arch, 8, TITAN)).to_dicts()
    assert next(r for r in rows if r["what"] == "parameters of embedding")["elements"] == 64_512


def test_a_shard_group_of_one_sends_nothing() -> None:
    # HSDP on a mesh of (N, 1): nothing is gathered or scattered (pytorch/pytorch #163761).
    arch = llama(2)
    options = {**TITAN, "data_parallel_replicate_degree": 8, "data_parallel_shard_degree": 1}
    table = operations(arch, plan_of(arch, 8, options))
    step = table.filter(table["phase"] != "setup")
    assert set(step["op"]) == {"all_reduce"}
    # All gradients once a micro-batch, in buckets of 100 MiB: one bucket here.
    gradients = step.filter(step["phase"] == "gradients")
    assert gradients["elements"].to_list() == [parameters(arch).total]


def test_hsdp_sums_shards_over_replicas() -> None:
    arch = llama(2)
    rows = operations(arch, plan_of(arch, 8, {**TITAN, "data_parallel_replicate_degree": 2})).to_dicts()
    scatter = next(r for r in rows if r["what"] == "gradients of block")
    reduce = next(r for r in rows if r["what"] == "gradient shards of block")
    assert (scatter["group_size"], reduce["group_size"]) == (4, 2)
    assert reduce["elements"] == scatter["elements"] // 4
    assert reduce["count"] == scatter["count"]


def test_context_parallel_by_hand() -> None:
    # b 1, s 64, c 4, 4 KV heads of 8, 2 layers, 4 micro-batches. A rank has 2·16·4·8 = 1,024 elements of K and V.
    arch = llama(2)
    rows = operations(arch, plan_of(arch, 4, {**TITAN, "cp": 4})).to_dicts()
    gathers = [r for r in rows if r["what"] == "keys and values"]
    assert [(r["phase"], r["count"], r["elements"]) for r in gathers] == [("forward", 8, 4096), ("backward", 8, 4096)]
    home = next(r for r in rows if r["what"] == "gradients of keys and values")
    # c shifts of what a rank has, in fp32.
    assert (home["count"], home["elements"], home["dtype"]) == (4 * 2 * 4, 1024, "fp32")


def test_tensor_parallel_keeps_what_it_gathered() -> None:
    # A block: 2 gathers and 2 scatters forward, the same number back; Megatron gathers twice more.
    arch = llama(4)
    table = operations(arch, plan_of(arch, 8, {**TITAN, "tp": 2}))
    tp = table.filter((table["group"] == "tp") & (table["layers"] > 0) & (table["op"] != "all_reduce"))
    counts = {key: part["count"].sum() for key, part in tp.partition_by("op", "phase", as_dict=True).items()}
    assert set(counts.values()) == {4 * 2 * 4}


def test_an_option_by_its_long_name() -> None:
    arch = llama(2)
    short, long = (plan_of(arch, 4, {**TITAN, key: 2}) for key in ("tp", "tensor_parallel_degree"))
    assert short.tp == long.tp == 2


@given(rows=st.integers(1, 5000), rest=st.integers(1, 64), n=st.integers(1, 4096))
def test_padding_is_the_least_that_divides(rows: int, rest: int, n: int) -> None:
    size = padded((rows, rest), n)
    assert size % (n * rest) == 0
    assert rows * rest <= size < (rows + n) * rest


@given(shards=st.sampled_from([2, 4, 8, 16, 64]), tied=st.booleans())
def test_every_parameter_is_in_one_unit(shards: int, tied: bool) -> None:
    # Units together hold each parameter once: their elements, less padding, are the model's.
    from tokenwire.step.dialects.torchtitan.sizes import Sizes
    from tokenwire.step.dialects.torchtitan.units import units

    arch = gpt(3, tied=tied)
    plan = plan_of(arch, shards, TITAN)
    held = list(units(Sizes.of(arch, plan), plan.stages[0]))
    assert sum(unit.exact * unit.copies for unit in held) == parameters(arch).total


@given(pp=st.sampled_from([1, 2, 4]), schedule=st.sampled_from(["1F1B", "Interleaved1F1B", "ZBVZeroBubble"]))
def test_what_is_sent_is_received(pp: int, schedule: str) -> None:
    arch = llama(8)
    table = operations(arch, plan_of(arch, 8, {**TITAN, "pp": pp, "pipeline_parallel_schedule": schedule if pp > 1 else "1F1B"},
                                     global_batch=64))  # fmt: skip
    ends = {op: sorted((r["stage"], r["peer"], r["phase"], r["count"], r["elements"]) for r in table.to_dicts() if r["op"] == op)
            for op in ("send", "recv")}  # fmt: skip
    assert sorted((peer, stage, *rest) for stage, peer, *rest in ends["send"]) == ends["recv"]
