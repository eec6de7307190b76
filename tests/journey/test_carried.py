"""The message that carries a token: its size is the step's, and its bytes are the numbers of the unsharded model."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tokenwire.journey import Journey
from tokenwire.journey.carried import micro_batch_ids
from tokenwire.model import bfloat16_bits, embedding_row
from tokenwire.model.forward import forward

PLANS = {
    "as built in": [],
    "without sequence parallelism": ["plan.sequence_parallel=false"],
    "four tensor ranks": ["plan.tp=4", "plan.pp=2"],
    "pipeline alone": ["plan.tp=1", "plan.pp=8"],
    "virtual stages": ["plan.vpp=2"],
    "context parallel": ["plan.cp=2"],
    "torch pipeline": ["plan.dialect=torchtitan", "plan.tp=1", "plan.pp=2"],
}


@pytest.mark.parametrize("token", [0, 7, 200, 300, 1500])
@pytest.mark.parametrize("overrides", PLANS.values(), ids=PLANS)
def test_the_bytes_at_the_offset_are_the_activation_of_the_whole_model(overrides, token):
    journey = Journey.read(None, overrides)
    message, place = journey.carried(token), journey.placement(token)
    arch, ids = journey.model().architecture, micro_batch_ids(journey, place)
    assert ids[place.slot, place.position] == journey.encoding().ids[token]
    first = list(journey.plan().stages[0].chunks[0])
    rest = [layer for layer in range(len(arch.layers)) if layer not in first]
    whole = forward(arch, ids, stages=[first, rest], upto_stage=0).hidden[place.position, place.slot]
    there = np.frombuffer(message.around(message.offset, message.offset + message.length), dtype=np.uint16)
    assert (there == message.bits).all()
    # Sharded sums are in another order: equal within a unit in the last place of bfloat16.
    as_numbers = (there.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(as_numbers, whole, rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("overrides", PLANS.values(), ids=PLANS)
def test_the_message_is_the_one_of_the_step(overrides):
    journey = Journey.read(None, overrides)
    message = journey.carried(7)
    rows = journey.step().filter((pl.col("op") == "send") & (pl.col("stage") == 0) & (pl.col("phase") == "forward"))
    assert message.message_bytes in rows["bytes"].to_list()
    # Sender and receiver are neighbours in the pipeline and share their other coordinates.
    source, target = (journey.plan().grid.coordinates(rank) for rank in (message.source, message.target))
    assert target.pop("pp") == source.pop("pp") + 1
    assert source == target
    assert 0 <= message.offset <= message.message_bytes - message.length


@pytest.mark.parametrize("parallel", [True, False])
def test_without_a_pipeline_partial_sums_travel(parallel):
    journey = Journey.read(None, ["plan.pp=1", f"plan.sequence_parallel={str(parallel).lower()}"])
    message = journey.carried(7)
    assert message.op == ("reduce_scatter" if parallel else "all_reduce")
    arch, place = journey.model().architecture, journey.placement(7)
    # The partial sums of both ranks add up to the attention's output (without its bias) of the whole model.
    run = forward(arch, micro_batch_ids(journey, place), tp=2, sequence_parallel=parallel, stages=[[0], list(range(1, 8))],
                  upto_stage=0, vocabulary_rows=1008)  # fmt: skip
    sent = next(one for one in run.sent if one.what == "attention output")
    sender = message.source % 2
    expected = bfloat16_bits(sent.ranks[sender][place.position, place.slot])
    assert (message.bits == expected).all()
    assert (np.frombuffer(message.around(message.offset, message.offset + 512), np.uint16) == expected).all()


@pytest.mark.parametrize(
    "overrides",
    [
        ["plan.pp=1", "plan.tp=1"],
        ["plan.dialect=torchtitan", "plan.tp=1", "plan.pp=1"],
    ],
)
def test_with_data_parallelism_alone_the_row_travels(overrides):
    journey = Journey.read(None, overrides)
    message = journey.carried(7)
    assert message.op == "all_gather"
    row = bfloat16_bits(embedding_row(journey.model().architecture, int(journey.encoding().ids[7])))
    assert message.around(message.offset, message.offset + message.length) == row.tobytes()[: message.length]
    assert 0 <= message.source < 8
    assert message.target == (message.source + 1) % 8


def test_one_gpu_sends_nothing():
    alone = ["plan.pp=1", "plan.tp=1", "cluster.nodes=1", "cluster.gpus_per_node=1"]
    assert Journey.read(None, alone).carried(7) is None


def test_a_model_too_large_to_be_run_says_so():
    message = Journey.read(None, ["model.preset=llama-3.1-8b", "plan.make_vocab_size_divisible_by=128"]).carried(7)
    assert "too large" in message.truth
    assert message.length == 4096 * 2
