"""Needs by the time line: rates and latencies that are found, growth, plans, storage; by hand and as properties."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.house.running import run
from tokenwire.errors import InputError
from tokenwire.journey import Journey
from tokenwire.needs import Timed, largest, plans_of, timed_requirements
from tokenwire.needs.storage import storage_figures
from tokenwire.needs.timed import ENDLESS, SLOWEST, least
from tokenwire.report.rooms.needs_by_time import beside, figures

# 80 billion parameters, ZeRO-3 on 16 nodes of 8 A100 (deepspeedai/DeepSpeed #2928; docs/cases.md, case 1)
ZERO3 = (
    "model.hidden_size=8192", "model.layers=93", "model.heads=64", "model.kv_heads=8", "model.feed_forward=28672", "model.gated=true",
    "model.positions=rotary", "model.norm=rms", "model.bias=false", "model.tied_embeddings=false", "model.vocabulary_size=32000",
    "training.sequence_length=2048", "training.global_batch=128", "training.micro_batch=1", "plan.dialect=deepspeed", "plan.zero_stage=3",
    "plan.activation_checkpointing=true", "cluster.preset=dgx-a100-superpod", "cluster.nodes=16", "cluster.gpus_per_node=8",
    "cluster.nics_per_node=8",
)  # fmt: skip
TWO = ("model.preset=llama-3.2-1b", "training.sequence_length=2048", "training.global_batch=32", "training.micro_batch=1",
       "cluster.nodes=2", "cluster.gpus_per_node=8", "cluster.nics_per_node=8", "plan.tp=1", "plan.pp=1",
       "plan.use_distributed_optimizer=true")  # fmt: skip


def timed(*overrides: str) -> Timed:
    journey = Journey.read(None, overrides, base="gpt2")
    facts = journey.config.cluster.facts
    return Timed(journey.model().architecture, journey.plan(), journey.calls(), facts)


def test_zero3_needs_a_fast_nic() -> None:
    plan = timed(*ZERO3)
    rate = plan.least_rate(0.1)
    assert rate is not None
    # 475 GB leave a node in a step of less than 9 s over 8 NICs: no NIC below 475/9/8 = 6.6 GB/s hides them, and 50 GB/s does.
    assert 6.6e9 < rate < 50e9
    assert plan.share("nic_rate", rate, ENDLESS) <= 0.1
    assert plan.share("nic_rate", rate * 0.95, ENDLESS) > 0.1
    assert plan.demands(rate) == "dp"


@given(st.floats(1.5, 1e6))
def test_the_least_that_is_enough_is_found(x: float) -> None:
    found = least(lambda value: value >= x, 1.0, 1e7)
    assert found is not None
    assert x <= found <= x * 1.01


def test_more_rate_never_makes_a_step_longer() -> None:
    plan = timed(*TWO)
    seconds = [plan.step(nic_rate=rate).step_seconds for rate in (SLOWEST, 1e9, 1e10, 5e10, ENDLESS)]
    assert seconds == sorted(seconds, reverse=True)
    assert plan.efficiency(ENDLESS) == 1
    assert 0 < plan.efficiency(1e9) < plan.efficiency(1e10) <= 1


def test_more_latency_never_makes_a_step_shorter() -> None:
    plan = timed(*TWO)
    seconds = [plan.step(link_latency=late).step_seconds for late in (0.0, 1e-6, 1e-4, 1e-2)]
    assert seconds == sorted(seconds)
    most = plan.most_latency(0.1)
    assert most is not None
    assert plan.share("link_latency", most, 0.0) <= 0.1


def test_one_node_needs_no_network() -> None:
    plan = timed(*TWO, "cluster.nodes=1")
    assert plan.least_rate(0.01) is None
    figures = {figure.name: figure for figure in timed_requirements(plan, 10**9, 0.1)}
    assert figures["NIC for 10 % of the step, by the time line"].value == 0
    assert not any(name.startswith("longest burst") for name in figures)


def test_a_checkpoint_by_hand() -> None:
    size, waited, beside, tokens = (figure.value for figure in storage_figures(70 * 10**9, 4 * 2**20, 10.0, 0.1, vocabulary=128_256))
    # 14 · 70e9 = 980 GB every 1,800 s: 0.1·1,800 s to write it in, or all of them; 4 B · 4,194,304 in 10 s
    assert (size, waited, beside, tokens) == pytest.approx((980e9, 980e9 / 180, 980e9 / 1800, 1677721.6))
    # Megatron stores ids of fewer than 65,500 as uint16.
    assert storage_figures(70 * 10**9, 4 * 2**20, 10.0, 0.1, vocabulary=50_257)[-1].value == tokens / 2


def test_an_exchange_needs_a_buffer() -> None:
    moe = timed("model.preset=mixtral-8x7b", "training.sequence_length=4096", "training.global_batch=16", "training.micro_batch=1",
                "cluster.nodes=2", "cluster.gpus_per_node=4", "cluster.nics_per_node=4", "plan.tp=1", "plan.pp=1", "plan.ep=8",
                "plan.moe_token_dispatcher_type=alltoall", "plan.sequence_parallel=false")  # fmt: skip
    figures = {figure.name: figure for figure in timed_requirements(moe, 47 * 10**9, 0.1)}
    # 4 of the 8 ranks are on the other node: 4 send to one NIC, each 1/8 of 4096 tokens · 2 experts · 4096 · 2 B
    assert figures["buffer for the worst incast"].value == pytest.approx(3 * 4096 * 2 * 4096 * 2 / 8)
    assert figures["queue pairs of a NIC, at least"].value >= 4


def test_a_cluster_grows_until_there_is_no_work_left() -> None:
    journey = Journey.read(None, TWO)
    found = largest(journey.model().architecture, journey.plan(), journey.config.cluster.facts, 0.5)
    fixed = [one for one in found if one.batch == "fixed"]
    # 32 sequences: at most 32 replicas of one GPU
    assert [one.gpus for one in fixed] == [16, 32]
    assert all(one.share <= 0.5 for one in found)
    growing = [one for one in found if one.batch == "growing"]
    assert [one.global_batch // one.gpus for one in growing] == [2] * len(growing)


def test_one_gpu_grows_until_the_latency_of_its_network_tells() -> None:
    one = ("cluster.nodes=1", "cluster.gpus_per_node=1", "cluster.nics_per_node=1", "plan.tp=1", "plan.pp=1")
    journey = Journey.read(None, one)
    found = largest(journey.model().architecture, journey.plan(), journey.config.cluster.facts, 0.5)
    growing = [size for size in found if size.batch == "growing"]
    # Each replica does the same: all by which a step is longer than that of one GPU is the network's, up to the weights' share of the optimizer
    shares = [size.share for size in growing]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert growing[-1].gpus < 1 << 20
    assert 1 - growing[0].seconds / growing[-1].seconds == pytest.approx(growing[-1].share, abs=0.05)


def test_plans_that_fit_come_first() -> None:
    journey = Journey.read(None, TWO)
    found = plans_of(journey.model().architecture, journey.plan(), journey.config.cluster.facts)
    assert all(one.tp * one.pp * one.cp * one.dp == 16 for one in found)
    fit = [one for one in found if one.fits]
    assert found[: len(fit)] == tuple(sorted(fit, key=lambda one: one.seconds))


@pytest.mark.parametrize(("words", "key"), [
    (["--efficiency", "90%"], "speeds"), pytest.param(["--largest"], "sizes", marks=pytest.mark.slow), (["--against", "cluster.nic_rate=25 Gb/s"], "networks"),
    ([], "requirements"),
])  # fmt: skip
def test_each_question_has_json(words: list[str], key: str) -> None:
    ended = run(["needs", *words, "--json"])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)[key]


def test_two_networks_beside_each_other() -> None:
    ended = run(["needs", "--against", "cluster.nic_rate=5 Gb/s", "--json"])
    one, other = json.loads(ended.stdout)["networks"]
    assert other["step_seconds"] > one["step_seconds"]
    assert other["network_share"] > one["network_share"]
    assert run(["needs", "--efficiency", "2"]).returncode == 1


def test_two_questions_at_once_are_refused() -> None:
    ended = run(["needs", "--largest", "--plans"])
    assert ended.returncode == 1
    assert ended.stderr.decode().count("\n") == 1
    assert "--largest and --plans" in ended.stderr.decode()


@pytest.mark.parametrize("every", ["1e-300 s", "0 s", "1 us", "1e309 s"])
def test_a_time_between_checkpoints_that_cannot_be(every: str) -> None:
    # 1e-300 s would need 1e308 B/s and more, which no figure can say.
    with pytest.raises(InputError):
        figures(Journey.read(None), 0.1, every)


def test_the_network_costs_the_same_in_every_question() -> None:
    # Bytes and latency: against a step in which what leaves a node takes no time, in `needs`, `--largest`, `--against` and `--plans` alike.
    journey = Journey.read(None, TWO)
    plan = timed(*TWO)
    found = {figure.name: figure for figure in timed_requirements(plan, 10**9, 0.1)}
    share = found["share of the step that the network costs"].value
    assert share > plan.share("nic_rate", plan.facts.nic_rate, ENDLESS)
    sizes = largest(journey.model().architecture, journey.plan(), journey.config.cluster.facts, 0.999)
    assert share == sizes[0].share == beside(journey, journey)[0]["network_share"]


def test_a_burst_lasts_as_long_as_its_bytes_at_line_rate() -> None:
    # The tied embedding of the built-in walk is half of 1,008 rows of 256 fp32: 516 kB, at 400 Gb/s 10.3 us; its call takes longer.
    found = {figure.name: figure for figure in figures(Journey.read(None), 0.1)}
    burst = found["longest burst of a NIC at line rate"]
    assert burst.value == pytest.approx(1008 / 2 * 256 * 4 / 50e9, rel=0.01)
    assert "38" in burst.because
