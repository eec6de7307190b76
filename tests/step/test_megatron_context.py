"""Context parallelism of the Megatron dialect: by hand after Transformer Engine's source, and state spaces as Megatron runs them."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import llama, plan_of
from tokenwire.model.architecture import Architecture, FeedForward, LatentAttention, Layer, Norm, StateSpace
from tokenwire.step import operations


def _said(step: pl.DataFrame, group: str, *ops: str) -> list[tuple[Any, ...]]:
    rows = step.filter(pl.col("group") == group, pl.col("op").is_in(ops))
    return list(rows.select("op", "phase", "count", "elements").iter_rows())


def test_a_ring_by_hand() -> None:
    # 3 hops, 4 layers, 4 micro-batches; keys and values of 16 tokens, 2 · 4 heads · 8: 1,024 numbers. Backward: the first hop
    # has keys and values, two have them with gradients, the last gradients alone.
    step = operations(llama(), plan_of(llama(), 4, {"cp": 4}))
    assert _said(step, "cp", "send") == [
        ("send", "forward", 48, 1024), ("send", "backward", 16, 1024), ("send", "backward", 32, 2048),
        ("send", "backward", 16, 1024),
    ]  # fmt: skip
    # Two ranks: one hop each way, no message with both.
    pair = operations(llama(), plan_of(llama(), 2, {"cp": 2}))
    assert _said(pair, "cp", "send") == [("send", "forward", 16, 2048), ("send", "backward", 16, 2048), ("send", "backward", 16, 2048)]


@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 2]))
def test_a_ring_as_it_is_played(c: int, micro_batch: int) -> None:
    # Each rank holds one block, passes it on until all have seen it; a gradient starts where its block is first used and follows
    # it, a hop behind, until it is home: both make c - 1 hops.
    arch = llama(1)
    plan = plan_of(arch, c, {"cp": c}, micro_batch=micro_batch, global_batch=4 * micro_batch)
    block = plan.training.micro_batch * 64 // c * 2 * 4 * 8
    messages: Counter[tuple[str, int]] = Counter()
    seen = [{rank} for rank in range(c)]
    for hop in range(c - 1):
        messages["forward", block] += 1
        for rank in range(c):
            seen[rank].add((rank - 1 - hop) % c)
    assert all(len(blocks) == c for blocks in seen)
    hops = 0
    for step in range(c):
        load = (step < c - 1) + (step > 0)
        messages["backward", load * block] += 1
        hops += step > 0
    assert hops == c - 1
    rows = operations(arch, plan).filter(group="cp", op="send")
    said = Counter({})  # type: ignore[var-annotated]
    for phase, count, elements in rows.select("phase", "count", "elements").iter_rows():
        said[phase, elements] += count // 4
    assert said == messages


def test_gathered_and_exchanged_by_hand() -> None:
    # Keys of the whole sequence: 64·4·8 = 2,048 numbers; keys and values, 16 each; backward again, and their gradients.
    gathered = operations(llama(), plan_of(llama(), 4, {"cp": 4, "cp_comm_type": "all_gather"}))
    assert _said(gathered, "cp", "all_gather", "reduce_scatter") == [
        *[("all_gather", "forward", 16, 2048)] * 2, *[("all_gather", "backward", 16, 2048)] * 2,
        *[("reduce_scatter", "backward", 16, 2048)] * 2,
    ]  # fmt: skip
    # Queries of a rank's tokens: 16·8·8 = 1,024; keys and values half of that (4 heads of 8).
    ulysses = operations(llama(), plan_of(llama(), 4, {"cp": 4, "cp_comm_type": "a2a"}))
    assert [row[3] for row in _said(ulysses, "cp", "all_to_all")] == [1024, 512, 512, 1024, 1024, 1024, 512, 512]


def test_sinks_are_gathered_where_heads_are_exchanged() -> None:
    arch = llama(sinks=True)
    step = operations(arch, plan_of(arch, 4, {"cp": 2, "tp": 2, "cp_comm_type": "a2a"}))
    # 8 heads over tp 2: 4, fp32.
    assert _said(step, "cp", "all_gather") == [("all_gather", "backward", 16, 4)]


def test_exchange_within_and_ring_between() -> None:
    # c = 4 as 2 · 2: four all_to_alls each way in pairs of neighbours, one hop round the other pair.
    arch = llama()
    options = {"cp": 4, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [2, 2]}
    plan = plan_of(arch, 4, options)
    assert (plan.members("cp_a2a", 1).tolist(), plan.members("cp_p2p", 1).tolist()) == ([0, 1], [1, 3])
    step = operations(arch, plan)
    assert Counter(row[1] for row in _said(step, "cp_a2a", "all_to_all")) == {"forward": 4, "backward": 4}
    # Heads are halved, tokens doubled: 2·16 tokens · 2 heads · 8, keys and values: 1,024.
    assert _said(step, "cp_p2p", "send")[0] == ("send", "forward", 16, 1024)


def test_each_layer_has_its_own_way() -> None:
    # Four layers, four ways: each says what it would say in a model of its own, a quarter of the calls of four such layers.
    ways = ("p2p", "a2a", "a2a+p2p", "all_gather")
    within = {"cp": 4, "hierarchical_context_parallel_sizes": [2, 2]}
    mixed = plan_of(llama(), 4, {**within, "cp_comm_type": ways})
    apart = [operations(llama(), plan_of(llama(), 4, {**within, "cp_comm_type": way})) for way in ways]
    facts = ["op", "group", "phase", "count", "elements", "dtype", "what"]
    one_layer = pl.concat(apart).filter(parallelism="cp").with_columns(pl.col("count") // 4)
    assert sorted(operations(llama(), mixed).filter(parallelism="cp").select(facts).rows()) == sorted(one_layer.select(facts).rows())
    assert "IndexError" in mixed.notes[0]


def test_latent_attention_sends_keys_wider_than_values() -> None:
    # 4 heads: keys of 16 + 8, values of 16 numbers a head: 16 tokens · 4 · (24 + 16) = 2,560.
    mixer = LatentAttention(4, None, 32, 16, 8, 16)
    arch = Architecture("mla", "mla", 1000, 64, (Layer(mixer, FeedForward(128, True)),) * 2, Norm("rms"), "rotary")
    step = operations(arch, plan_of(arch, 4, {"cp": 4}))
    assert _said(step, "cp", "send")[0] == ("send", "forward", 3 * 2 * 4, 2560)


HYBRID = StateSpace(2, 128, 16, 4, heads=8, head_dim=16, groups=2)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(("world", "tp", "cp"), [(2, 1, 2), (8, 1, 8), (4, 2, 2), (8, 2, 4)])
def test_state_spaces_exchange_what_megatron_does(world: int, tp: int, cp: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("megatron.core")
    import torch.distributed as dist
    from megatron.core.ssm import mamba_context_parallel as module

    from tokenwire.measure.dryrun.megatron_calls import Phase, recorder
    from tokenwire.measure.dryrun.megatron_cpu import fake_world

    arch = Architecture("hybrid", "hybrid", 1000, 64, (Layer(HYBRID, None, 1),), Norm("rms"), "none")
    plan = plan_of(arch, world, {"tp": tp, "cp": cp})
    calls: list[Any] = []
    heads, groups, inner = HYBRID.heads // tp, HYBRID.groups // tp, HYBRID.inner_size // tp
    repeat = lambda x, pattern, g, n, r: x.unflatten(-1, (g, n)).repeat_interleave(r, -2).flatten(-2)  # noqa: E731
    # The one thing that is asked of einops.
    with mock.patch.multiple(module, HAVE_EINOPS=True, repeat=repeat, create=True), fake_world(0, world):
        group = dist.new_group(plan.members("cp", 0).tolist())
        context = module.MambaContextParallel(group, inner, heads, groups, HYBRID.state_size, None, None, None, None, False)
        x = torch.zeros(64 // cp, 1, 2 * inner + 2 * groups * HYBRID.state_size + heads, requires_grad=True)
        phase = Phase()
        with recorder(phase, calls, plan, 0):
            with phase.during("forward"):
                out = context.pre_conv_ssm(x)
                out = context.post_conv_ssm(out[..., : inner // cp].contiguous())
            with phase.during("backward"):
                out.sum().backward()
    seen = Counter((call.phase, call.elements) for call in calls if call.op == "all_to_all")
    rows = operations(arch, plan).filter(group="cp", op="all_to_all")
    said = Counter({})  # type: ignore[var-annotated]
    for when, count, elements in rows.select("phase", "count", "elements").iter_rows():
        said[when, elements] += count // plan.micro_batches
    assert said == seen
