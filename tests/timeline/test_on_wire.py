"""A step on the wire: bytes of each NIC by hand, conserved over the intervals; links that groups share."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.journey import Journey
from tokenwire.timeline import StepTime, accelerator, step_time
from tokenwire.timeline.communication import Place
from tokenwire.timeline.on_wire import Signature, leaving, signatures
from tokenwire.timeline.sharing import slowdowns

BASE = ("model.preset=llama-3.1-8b", "training.sequence_length=2048", "training.global_batch=64", "training.micro_batch=1",
        "cluster.nodes=4", "cluster.gpus_per_node=8", "cluster.nics_per_node=8", "plan.tp=2", "plan.pp=2",
        "plan.use_distributed_optimizer=true")  # fmt: skip


def seen(*overrides: str) -> tuple[StepTime, tuple[Signature, ...]]:
    journey = Journey.read(None, [*BASE, *overrides])
    arch, plan, rows, facts = journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts
    step = step_time(arch, plan, rows, facts, whole=True)
    return step, signatures(step, plan, rows, facts, accelerator(facts.gpu))


def test_what_leaves_a_node_by_hand() -> None:
    # 16 ranks on 2 nodes: a ring passes 15/16 of S over each border, on 8 NICs; an exchange keeps half of its parts at home.
    assert leaving("reduce_scatter", 16_000, Place(16, 2, 8))[0] == 15_000 / 8
    assert leaving("all_reduce", 16_000, Place(16, 2, 8))[0] == 30_000 / 8
    assert leaving("all_to_all", 16_000, Place(16, 2, 8)) == (8_000, 8, 8)
    # 4 ranks, each on a node of its own
    assert leaving("all_gather", 4_000, Place(4, 4, 1)) == (3_000, 3, 1)


@pytest.mark.parametrize("overrides", [(), ("plan.overlap_grad_reduce=true",), ("training.global_batch=4096",)])
def test_all_bytes_are_in_some_interval(overrides: tuple[str, ...]) -> None:
    _, found = seen(*overrides)
    for one in found:
        assert one.series.sum() == pytest.approx(one.bytes)
        assert (one.series >= -1e-6).all()
        facts = one.facts()
        assert facts["mean_rate"] <= facts["peak_rate"] * (1 + 1e-9)
        assert 0 < facts["duty_cycle"] <= 1


def test_no_nic_sends_faster_than_it_can() -> None:
    _, found = seen()
    for one in found:
        for burst in one.bursts:
            # 400 Gb/s
            assert burst.rate <= 50e9 * 1.001


def test_gradients_of_a_whole_stage_by_hand() -> None:
    _, found = seen()
    # 8 replicas of tp 2 on half of 4 nodes: 4 ranks a node, 2 nodes; fp32 gradients of half of the layers, S·7/8 over 4 NICs
    burst = next(one for one in found[1].bursts if one.phase == "gradients" and one.op == "reduce_scatter")
    assert burst.bytes == pytest.approx(4 * 4_015_263_744 / 2 * 7 / 8 / 4, rel=0.001)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"]), st.integers(1, 1 << 30),
       st.sampled_from([1, 2, 4, 8]), st.integers(2, 16))  # fmt: skip
def test_no_more_leaves_a_node_than_its_ranks_have_to_send(op: str, size: int, per_node: int, nodes: int) -> None:
    sent, messages, peers = leaving(op, size, Place(per_node * nodes, nodes, per_node))
    assert 0 < sent <= 2 * size
    assert messages >= 1
    assert 1 <= peers < per_node * nodes


def test_an_oversubscribed_network_is_slower_behind_the_nics() -> None:
    small = ("cluster.nodes=8", "cluster.nodes_per_unit=2", "plan.pp=4", "plan.tp=1", "training.global_batch=64")

    def factors(*overrides: str) -> dict[tuple[str, str, str], float]:
        return slowdowns(Journey.read(None, [*BASE, *small, *overrides]).traffic())

    fair, narrow = factors(), factors("cluster.oversubscription=8")
    assert all(value >= 1 for value in fair.values())
    assert narrow["send", "pp", "forward"] >= fair["send", "pp", "forward"]
    assert narrow["send", "pp", "forward"] > 1.5


def test_shared_links_make_the_step_longer() -> None:
    journey = Journey.read(None, BASE)
    arch, plan, rows, facts = journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts
    plain = step_time(arch, plan, rows, facts)
    slow = step_time(arch, plan, rows, facts, shared={("reduce_scatter", "dp", "gradients"): 3.0})
    assert slow.gradients_seconds == pytest.approx(3 * plain.gradients_seconds)
