"""Requirements of whole journeys: a small one worked by hand, then what must hold for every one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.house.running import run
from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.journey import Journey
from tokenwire.model import flops_per_token, parameters

# Two GPUs in two nodes, nothing but data parallelism: what they say goes over the network.
TWO = (
    "cluster.nodes=2", "cluster.gpus_per_node=1", "plan.tp=1", "plan.pp=1", "plan.sequence_parallel=false",
    "plan.use_distributed_optimizer=false",
)  # fmt: skip


def _by_name(figures: tuple[Figure, ...]) -> Mapping[str, Figure]:
    return {figure.name: figure for figure in figures}


def _gradient_bytes(journey: Journey) -> int:
    # P gradients in fp32; the vocabulary of 1,000 is a multiple of 8, so nothing is padded.
    return 4 * parameters(journey.model().architecture).total


def test_two_gpus_by_hand() -> None:
    journey = Journey.read(None, TWO)
    need = _by_name(journey.needs())
    S = _gradient_bytes(journey)
    # A ring all_reduce over 2 sends 2·1/2·S = S by each; the rest (loss, gradient norm) is a few bytes.
    sent = need["sent per GPU per step over the network: data parallelism"]
    assert S <= sent.value <= S + 64
    assert need["bytes through the busiest NIC per step"].value == sent.value
    # 42.4 MFLOP · 4,096 tokens over 2 GPUs of 989 TFLOP/s at 40 %.
    t = need["time that the step computes"].value
    assert t == pytest.approx(flops_per_token(journey.model().architecture, 256).value * 4096 / (2 * 989e12 * 0.4))
    # The message is S/2: its packets of 4,096 B cost 82 B each.
    wire = need["the same with headers, preamble and gap"].value
    assert wire == pytest.approx(S * (1 + 82 / 4096), rel=1e-4)
    assert need["largest message from one GPU to another"].value == S // 2
    assert need["largest tensor of one call"].value == S
    # 10 % exposed: B·0.9/(0.1·t), and a tenth of it where everything overlaps.
    slow = need["bandwidth a NIC needs for 10 % exposed, if everything overlaps"].value
    fast = need["bandwidth a NIC needs for 10 % exposed, if nothing overlaps"].value
    assert slow == pytest.approx(wire * 0.9 / t)
    assert fast == pytest.approx(10 * slow)
    # One node a half: all that a NIC sends crosses the middle. Both NICs are on one leaf, so nothing goes up.
    assert need["bisection bandwidth for 10 % exposed, if everything overlaps"].value == pytest.approx(sent.value * 0.9 / t)
    unlimited = need["oversubscription that the leaves tolerate"]
    assert (unlimited.value, unlimited.text, unlimited.as_dict()["value"]) == (math.inf, "unlimited", None)
    packets = need["packets per second through it, if everything overlaps"].value
    assert packets == pytest.approx(S / 4096 * 0.9 / t, rel=1e-2)


def test_one_node_needs_no_network() -> None:
    need = _by_name(Journey.read(None, ["cluster.nodes=1", "cluster.gpus_per_node=8"]).needs())
    assert need["bytes through the busiest NIC per step"].value == 0
    assert not any("bandwidth" in name for name in need)


def test_a_ring_leaves_a_node_by_all_its_nics() -> None:
    two = ["cluster.nodes=2", "cluster.gpus_per_node=8", "cluster.nics_per_node=8", "plan.tp=1", "plan.pp=1", "training.global_batch=32"]
    need = _by_name(Journey.read(None, two).needs())
    # One ring of 16 leaves each node once; NCCL lays one by each of the 8 NICs, and each has an 8th of the bytes.
    one, all_ = need["bytes through the busiest NIC per step"].value, need["the same where rings are laid over all NICs"].value
    assert all_ == pytest.approx(one / 8, rel=1e-6)
    assert need["the same with headers, preamble and gap"].value == pytest.approx(all_ * (1 + 82 / 4096), rel=1e-2)
    # With one NIC in the node there is no other.
    alone = _by_name(Journey.read(None, [*two, "cluster.nics_per_node=1"]).needs())
    assert "the same where rings are laid over all NICs" not in alone


def test_a_pipeline_between_nodes_is_on_the_network() -> None:
    # tp 4 and pp 2 on 2 nodes of 4: tensor parallelism stays on NVLink.
    need = _by_name(Journey.read(None, ["plan.tp=4", "plan.pp=2"]).needs())
    assert "sent per GPU per step over the network: sequence parallelism" not in need
    send = need["sent per GPU per step over the network: pipeline parallelism"]
    # b·s·h/t·2 B forward from stage 0, B/(b·dp) = 8 micro-batches: 2·256·256/4·2·8 = 524,288 B. Apart from it the rows of the
    # tied embedding, all-reduced between 2 ends: V·h/t·4 = 1,000·256/4·4 = 256,000 B (V padded to a multiple of 8·4).
    assert send.value == 2 * 256 * 256 // 4 * 2 * 8
    assert need["sent per GPU per step over the network: tied embedding"].value == 1024 * 256 // 4 * 4


def test_rails_cross_the_spine_only_between_units() -> None:
    # 64 nodes are two units of 32: data parallelism goes from unit to unit through spines.
    figures = _by_name(
        Journey.read(None, ["cluster.nodes=64", "cluster.gpus_per_node=8", "plan.tp=8", "plan.pp=1", "training.global_batch=128"]).needs()
    )
    tolerated = figures["oversubscription that the leaves tolerate, packets sprayed evenly"]
    # In a ring only one of a leaf's 32 NICs has its neighbour in the other unit, on each of 8 leaves: 32 · B / B = 32.
    assert tolerated.value == pytest.approx(32, rel=1e-3)
    # Of whole flows each carries what its NIC carries: a spine link with one flow takes as long as the NIC, with two twice as long.
    adaptive = figures["oversubscription that the leaves tolerate, flows placed by load (adaptive), at most"]
    hashed = figures["oversubscription that the leaves tolerate, flows by ecmp"]
    assert adaptive.value == pytest.approx(1, rel=1e-3)
    assert hashed.value <= adaptive.value
    assert "bandwidth a leaf needs upwards, if everything overlaps" in figures


@settings(max_examples=30)
@given(tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]), nodes=st.sampled_from([1, 2, 4]), x=st.floats(0.01, 0.9))
def test_what_must_hold_for_every_plan(tp: int, pp: int, nodes: int, x: float) -> None:
    world = nodes * 4
    assume(world % (tp * pp) == 0)
    sizes = [f"plan.tp={tp}", f"plan.pp={pp}", f"cluster.nodes={nodes}", "training.global_batch=64"]
    journey = Journey.read(None, sizes)
    figures = journey.needs(exposed=x)
    assert len(_by_name(figures)) == len(figures)  # names tell them apart
    for figure in figures:
        assert figure.value >= 0
        assert figure.unit
        assert figure.source or figure.because
    # No GPU sends more of a kind than the busiest one, so all of them together at most world times the sum of these.
    transfers = journey.traffic().transfers
    inside = pl.col("src") // 4 == pl.col("dst") // 4
    for medium, chosen in (("NVLink", transfers.filter(inside)), ("the network", transfers.filter(~inside))):
        for parallelism, total in chosen.group_by("parallelism").agg(pl.col("bytes").sum()).iter_rows():
            named = [f for f in figures if f.name.startswith(f"sent per GPU per step over {medium}")]
            most = sum(f.value for f in named)
            assert total <= world * most, parallelism


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 5.0, 1e-300, 5e-4, 0.9999])
def test_shares_that_are_none(share: float) -> None:
    with pytest.raises(InputError, match="share"):
        Journey.read(None).needs(exposed=share)
    with pytest.raises(InputError, match="share"):
        Journey.read(None).needs(mfu=share)


def test_a_better_mfu_needs_a_faster_network() -> None:
    journey = Journey.read(None)
    name = "bandwidth a NIC needs for 10 % exposed, if everything overlaps"
    assert _by_name(journey.needs(mfu=0.8))[name].value == pytest.approx(2 * _by_name(journey.needs(mfu=0.4))[name].value)


def test_json_has_the_promised_names() -> None:
    facts = json.loads(run(["needs", "--json", "--exposed", "5%"]).stdout)
    for need in facts["requirements"]:
        assert {"name", "value", "unit", "because"} <= set(need)
    assert any("for 5 % exposed" in need["name"] for need in facts["requirements"])


def test_a_person_reads_it_at_80_columns() -> None:
    shown = run(["needs"]).stdout.decode()
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert "bisection bandwidth" in shown


def test_one_node_of_a_torus_goes_by_its_links() -> None:
    journey = Journey.read(None, ["cluster.preset=tpu-v4-torus", "cluster.gpus=4", "plan.tp=1", "plan.pp=1"])
    found = {need.name: need.value for need in journey.needs()}
    busiest = found["bytes through the busiest NIC per step"]
    assert 0 < busiest < found["the same with headers, preamble and gap"] < 1.1 * busiest
