"""Muon, on every rank and shared out: what is kept, what is sent and what it computes, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.model import architecture
from tokenwire.model.architecture import Architecture, Tensor
from tokenwire.model.config import ModelConfig
from tokenwire.model.tensors import tensors
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.plan.muon import stacks
from tokenwire.plan.shards import holdings
from tokenwire.step.dialects import ddp, megatron
from tokenwire.timeline.accelerator import accelerator
from tokenwire.timeline.memory import memory
from tokenwire.timeline.muon import STEPS, muon_seconds, newton_schulz

SIZES: dict[str, Any] = {
    "hidden_size": 256, "heads": 4, "feed_forward": 1024, "norm": "rms", "activation": "relu2", "positions": "rotary", "tied_embeddings": False,
    "bias": False, "layers": 3, "vocabulary_size": 4096,
}  # fmt: skip


def _plan(options: dict[str, Any], optimizer: str, gpus: int = 8) -> tuple[Architecture, Plan]:
    arch = architecture(ModelConfig(**SIZES))
    training = TrainingConfig(sequence_length=128, global_batch=16, micro_batch=2, optimizer=optimizer)  # type: ignore[arg-type]
    return arch, resolve(read_plan(options), training, arch, gpus)


def test_nanochats_calls() -> None:
    rows = [row for row in ddp.operations(*_plan({"dialect": "ddp"}, "dist_muon")) if row.elements > 1000]
    # 12 of 256 x 256 in ⌈12/8⌉·8 = 16 places, 3 each of 256 x 1,024 and 1,024 x 256 in 8; embedding and head; norms of 256 are below 1,024.
    found = sorted((row.op, row.elements, row.count, row.dtype) for row in rows)
    expected = [(4096 * 256, 2), (16 * 256 * 256, 1), (8 * 256 * 1024, 1), (8 * 256 * 1024, 1)]
    assert found == sorted((op, n, count, "fp32") for n, count in expected for op in ("all_gather", "reduce_scatter"))


def test_nanochats_state() -> None:
    arch, plan = _plan({"dialect": "ddp"}, "dist_muon")
    matrices = 2 * 256 * 256 + 2 * 256 * 1024
    rest = 2 * 4096 * 256 // 8 + 7 * 256
    assert memory(arch, plan).stages[0].of("optimizer", "between") == 4 * (matrices + 2 * rest)


@given(st.lists(st.sampled_from([(4, 4), (4, 8), (8, 4)])), st.integers(1, 16))
def test_every_matrix_has_one_place(shapes: list[tuple[int, int]], ranks: int) -> None:
    held = [Tensor(f"{i}", "mixer", shape) for i, shape in enumerate(shapes)]
    found = stacks(held, ranks)
    assert sum(stack.count for stack in found) == len(shapes)
    assert all(stack.count <= stack.each * ranks < stack.count + ranks for stack in found)


def test_one_moment_of_matrices() -> None:
    for options in ({"dialect": "ddp"}, {"dialect": "megatron"}):
        arch, plan = _plan(options, "muon")
        held = holdings(arch, plan, 0)
        copy = 4  # of 16-bit weights, in fp32
        matrices = 3 * (4 * 256 * 256 + 2 * 256 * 1024)
        others = sum(x.elements for x in tensors(arch)) - matrices
        assert held["optimizer_bytes"].sum() == matrices * (4 + copy) + others * (8 + copy)


def test_megatron_gathers_what_each_rank_updated() -> None:
    arch, plan = _plan({"dialect": "megatron"}, "dist_muon")
    rows = [row for row in megatron.operations(arch, plan) if row.elements > 100]
    total = sum(x.elements for x in tensors(arch))
    assert [(row.op, row.elements, row.phase) for row in rows] == [("all_reduce", total, "gradients"), ("all_gather", total, "optimizer")]
    assert [row.group for row in megatron.operations(arch, plan) if row.what == "gradient norm"] == ["world"]
    sizes = {o: memory(arch, _plan({"dialect": "megatron"}, o)[1]).stages[0].of("optimizer", "between") for o in ("muon", "dist_muon")}
    # Tensors stay whole, so the rank that has the embedding holds more than an eighth.
    assert sizes["muon"] / 8 < sizes["dist_muon"] < sizes["muon"] / 2


@pytest.mark.parametrize(
    ("options", "optimizer"),
    [({"use_distributed_optimizer": True}, "muon"), ({"dialect": "torchtitan"}, "dist_muon"), ({"dialect": "deepspeed", "zero_stage": 2}, "muon")],
)
def test_where_matrices_are_not_whole(options: dict[str, Any], optimizer: str) -> None:
    with pytest.raises(InputError, match="Muon"):
        _plan(options, optimizer)


def test_newton_and_schulz_by_hand() -> None:
    # 4·256²·1,024 + 2·256³ FLOPs a step, whichever side is longer.
    expected = 4 * 256**2 * 1024 + 2 * 256**3
    assert sum(o.flops for o in newton_schulz(256, 1024)) == sum(o.flops for o in newton_schulz(1024, 256)) == expected
    assert STEPS == 5


@pytest.mark.parametrize("dialect", ["ddp", "megatron"])
def test_shared_out_it_takes_less(dialect: str) -> None:
    gpu = accelerator("H100 SXM")
    taken = {}
    for optimizer in ("adamw", "dist_muon", "muon"):
        arch, plan = _plan({"dialect": dialect}, optimizer)
        taken[optimizer] = muon_seconds(arch, plan, gpu, plan.stages[0])
    assert taken["adamw"] == 0 < taken["dist_muon"] < taken["muon"]


def test_what_cannot_be_run_is_refused() -> None:
    from tokenwire.measure.dryrun import ddp as dry
    from tokenwire.measure.training.modes import own_mode

    arch, plan = _plan({"dialect": "ddp"}, "dist_muon")
    with pytest.raises(InputError, match="which it goes without"):
        dry.record(arch, plan, 0)
    with pytest.raises(InputError, match="with AdamW"):
        own_mode(plan)
