"""A whole step: what must sum, what must not depend, flags that hide, and runs that were measured."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, preset
from tokenwire.journey import Journey
from tokenwire.model import flops_per_token
from tokenwire.plan.torchtitan import SCHEDULES
from tokenwire.timeline import StepTime, accelerator, step_time
from tokenwire.timeline.communication import Place, call_seconds
from tokenwire.timeline.overlap import exposed

LLAMA = ("model.preset=llama-3.1-8b", "training.sequence_length=4096", "training.global_batch=64", "training.micro_batch=1",
         "cluster.nodes=2", "cluster.gpus_per_node=8", "cluster.nics_per_node=8", "plan.tp=2", "plan.pp=2", "plan.use_distributed_optimizer=true")  # fmt: skip


def timed(*overrides: str, **more: Any) -> StepTime:
    journey = Journey.read(None, [*LLAMA, *overrides])
    return step_time(journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts, **more)


def test_compute_exposed_and_bubble_are_the_step() -> None:
    step = timed()
    assert step.compute_seconds + step.exposed_communication_seconds + step.bubble_seconds == pytest.approx(step.step_seconds)
    assert 0 < step.mfu < 1


def test_mfu_by_hand() -> None:
    step = timed()
    from tokenwire.model import preset as model

    need = flops_per_token(model("llama-3.1-8b"), 4096).value
    # FLOPs a token · 64·4096 tokens / (16 GPUs · 989 TFLOP/s · step)
    assert step.mfu == pytest.approx(need * 64 * 4096 / (16 * 989e12 * step.step_seconds))


@pytest.mark.parametrize(
    ("before", "flag"),
    [
        ((), "overlap_grad_reduce"),
        (("plan.overlap_grad_reduce=true",), "overlap_param_gather"),
        (("plan.sequence_parallel=true",), "tp_comm_overlap"),
    ],
)
def test_overlap_makes_a_step_shorter(before: tuple[str, ...], flag: str) -> None:
    plain, overlapped = timed(*before), timed(*before, f"plan.{flag}=true")
    assert overlapped.step_seconds < plain.step_seconds
    # Overlap hides communication; it never does away with more of it than was exposed.
    assert plain.step_seconds - overlapped.step_seconds <= plain.exposed_communication_seconds + plain.bubble_seconds


def test_overlapped_gradients_are_hidden() -> None:
    plain, hidden = timed(), timed("plan.overlap_grad_reduce=true")
    assert hidden.step_seconds < plain.step_seconds
    # The first stage alone cuts its gradients into buckets; the last has the draining of the pipeline to reduce its one.
    assert hidden.stages[0].exposed["gradients"] < plain.stages[0].exposed["gradients"] / 10
    assert hidden.gradients_seconds < plain.gradients_seconds


@pytest.mark.parametrize(("said", "plan"), [
    ({"sp", "pp", "gradients", "weights", "small"}, "tp=2 pp=2 sequence_parallel=true use_distributed_optimizer=true"),
    ({"dp"}, "dialect=ddp"), ({"fsdp", "sp"}, "dialect=torchtitan tp=2"), ({"dp"}, "dialect=deepspeed zero_stage=3"),
])  # fmt: skip
def test_what_is_waited_for_has_the_name_under_which_it_is_said(said: set[str], plan: str) -> None:
    journey = Journey.read(None, [*(one for one in LLAMA if not one.startswith("plan.")), *(f"plan.{one}" for one in plan.split())], base="gpt2")
    step = step_time(journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts, setting="none")
    for stage in step.stages:
        assert said <= set(stage.said)
        # Of nothing is waited for longer than it is said: sends are waited for in the bubble, and no product is slowed without a setting.
        assert all(seconds <= stage.said[who] * (1 + 1e-9) for who, seconds in stage.exposed.items())


def test_recomputation_costs_a_forward() -> None:
    again = ("plan.recompute_granularity=full", "plan.recompute_method=uniform", "plan.recompute_num_layers=1")
    plain, more = timed(), timed(*again)
    layers = more.stages[0].parts["feed_forward"] / plain.stages[0].parts["feed_forward"]
    # 1 forward in 3 products before, 1 in 4 after; generic shares differ a little by shape
    assert 1.25 < layers < 1.42


@pytest.mark.parametrize(("rank", "least"), [(0, 1.02), (15, 1.15)])
def test_a_slow_rank_makes_the_step_later(rank: int, least: float) -> None:
    # Rank 15 is of the stage with the head, which sets the pace; that of rank 0 has time to spare.
    assert least < timed(slow={rank: 0.2}).step_seconds / timed().step_seconds < 1.2


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="ranks 0 to 15"):
        timed(slow={16: 0.1})
    with pytest.raises(InputError, match="slow by"):
        timed(slow={0: -1.0})


@pytest.mark.parametrize("dialect", ["torchtitan", "deepspeed", "ddp"])
def test_every_dialect_has_a_time(dialect: str) -> None:
    sizes = [] if dialect == "torchtitan" else ["plan.tp=1", "plan.pp=1"]
    step = Journey.read(None, ["model.preset=llama-3.2-1b", "training.sequence_length=1024", f"plan.dialect={dialect}", *sizes])
    out = step_time(step.model().architecture, step.plan(), step.calls(), step.config.cluster.facts)
    # No GPU does more than its peak: FLOPs per token · tokens of the step / (GPUs · peak)
    plan, facts = step.plan(), step.config.cluster.facts
    tokens = plan.training.global_batch * plan.training.sequence_length
    least = flops_per_token(step.model().architecture, 1024).value * tokens / (plan.world * accelerator(facts.gpu, facts.peak_flops).peak("bf16"))
    assert least < out.compute_seconds < out.step_seconds
    assert out.compute_seconds + out.exposed_communication_seconds + out.bubble_seconds == pytest.approx(out.step_seconds)


def scheduled(name: str) -> StepTime:
    journey = Journey.read(None, [*LLAMA[:5], "plan.dialect=torchtitan", "plan.tp=1", "plan.pp=2", f"plan.pipeline_parallel_schedule={name}"])
    return step_time(journey.model().architecture, journey.plan(), journey.calls(), journey.config.cluster.facts)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_no_schedule_of_torchtitan_is_shorter_than_its_busiest_stage(name: str) -> None:
    out = scheduled(name)
    assert out.pipeline_seconds >= max(out.micro_batches * (stage.forward + stage.backward) for stage in out.stages)
    assert out.compute_seconds + out.exposed_communication_seconds + out.bubble_seconds == pytest.approx(out.step_seconds)


@pytest.mark.parametrize("name", ["1F1B", "GPipe"])
def test_a_pipeline_of_two_stages_by_hand(name: str) -> None:
    # The second stage sets the pace: f1 + m·(f2 + b2) + b1, and one send there and one back.
    out = scheduled(name)
    first, second = out.stages
    by_hand = first.forward + out.micro_batches * (second.forward + second.backward) + first.backward
    assert by_hand <= out.pipeline_seconds <= by_hand + 3 * out.send_seconds


def test_schedules_with_several_chunks_or_split_backwards_have_smaller_bubbles() -> None:
    bubbles = [scheduled(name).stages[0].bubble for name in ("1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")]
    assert bubbles == sorted(bubbles, reverse=True)
    assert len(set(bubbles)) == 4


@given(st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"]), st.integers(1, 1 << 32),
       st.integers(1, 8), st.sampled_from([1, 2, 8]))  # fmt: skip
@settings(deadline=None)
def test_calls_take_time_and_more_bytes_no_less(op: str, size: int, per_node: int, nodes: int) -> None:
    facts, gpu = preset("dgx-h100-superpod"), accelerator("H100 SXM")
    place = Place(per_node * nodes, nodes, per_node)
    small, large = (call_seconds(op, size * k, place, facts, gpu) for k in (1, 4))
    assert small >= 0
    assert large >= small * 0.999


def test_measured_calls_inside_a_node_by_hand() -> None:
    facts, gpu = ClusterConfig(preset="dgx-b200-superpod", gpus=8).facts, accelerator("B200")
    # 7/8 · 1 GiB / (900 GiB/s · 0.6735) + 23.1049 us + 7 · 9.1828 us
    expected = 7 / 8 / (900 * 0.6735) + 23.1049e-6 + 7 * 9.1828e-6
    assert call_seconds("all_gather", 1 << 30, Place(8, 1, 8), facts, gpu) == pytest.approx(expected)


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.integers(1, 100))
def test_what_is_exposed_lies_between_nothing_and_all(c: float, work: float, pieces: int) -> None:
    assert 0 <= exposed(c, work, pieces) <= c
    assert exposed(c, work, pieces) >= c - work - 1e-9


@pytest.mark.parametrize("overrides", [(), ("plan.overlap_grad_reduce=true",), ("model.preset=mixtral-8x7b", "plan.ep=2")])
def test_what_is_kept_from_plans_before_changes_nothing(overrides: tuple[str, ...]) -> None:
    from tokenwire.timeline import communication, compute, efficiency, operators, order

    again = timed(*overrides) and timed(*overrides)
    for module in (communication, compute, efficiency, operators, order):
        for made in vars(module).values():
            if hasattr(made, "cache_clear"):
                made.cache_clear()
    fresh = timed(*overrides)
    assert (fresh.step_seconds, fresh.stages, fresh.figures) == (again.step_seconds, again.stages, again.figures)
