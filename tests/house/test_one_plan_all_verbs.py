"""A plan that any verb accepts is accepted by all: random small plans of every framework through all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tokenwire import Journey
from tokenwire.errors import InputError
from tokenwire.plan.torchtitan import SCHEDULES, SINGLE_STAGE
from tokenwire.timeline import step_time
from tokenwire.timeline.memory import fit, memory, software_on

MODEL = ("model.hidden_size=64", "model.heads=4", "model.feed_forward=128", "model.vocabulary_size=512", "model.max_positions=64")
powers = st.sampled_from([1, 2, 4])


@st.composite
def megatron(draw: st.DrawFn) -> dict[str, Any]:
    tp, pp = draw(st.sampled_from([1, 2])), draw(powers)
    vpp = draw(st.sampled_from([1, 2, 3])) if pp > 1 else 1
    return {"dialect": "megatron", "tp": tp, "pp": pp, "vpp": vpp, "sequence_parallel": draw(st.booleans()),
            "use_distributed_optimizer": draw(st.booleans())}  # fmt: skip


@st.composite
def torchtitan(draw: st.DrawFn) -> dict[str, Any]:
    pp = draw(powers)
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    vpp = 1 if pp == 1 or name in SINGLE_STAGE else draw(st.sampled_from([2, 3]))
    return {"dialect": "torchtitan", "pp": pp, "vpp": vpp, "pipeline_parallel_schedule": name, "cp": draw(st.sampled_from([1, 2]))}


deepspeed = st.fixed_dictionaries({"dialect": st.just("deepspeed"), "pp": st.sampled_from([1, 2, 3]), "zero_stage": st.integers(0, 3)})
ddp = st.fixed_dictionaries({"dialect": st.just("ddp"), "no_sync": st.booleans()})


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.slow
@given(st.one_of(megatron(), torchtitan(), deepspeed, ddp), st.integers(1, 20), st.sampled_from([6, 12, 16]), st.sampled_from([1, 2]))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_plan_that_one_verb_takes_all_take(plan: dict[str, Any], micro_batches: int, layers: int, dp: int) -> None:
    learned = "none" if plan["dialect"] == "torchtitan" else "learned"
    gpus = plan.get("tp", 1) * plan.get("pp", 1) * plan.get("cp", 1) * dp
    said = [*MODEL, f"model.layers={layers}", f"model.positions={learned}", "training.sequence_length=64", "training.micro_batch=1",
            f"training.global_batch={micro_batches * dp}", f"cluster.gpus={gpus}", *(f"plan.{key}={_text(x)}" for key, x in plan.items())]  # fmt: skip
    try:
        journey = Journey.read(None, said)
        made = journey.plan()
    except InputError:
        assume(False)
        raise AssertionError from None
    arch, facts = journey.model().architecture, journey.config.cluster.facts
    assert journey.calls() is not None
    assert journey.traffic().totals is not None
    timed = step_time(arch, made, journey.calls(), facts)
    assert timed.step_seconds > 0
    found = memory(arch, made, software_on(facts))
    assert fit(arch, made, found).fits
    assert journey.needs()


@pytest.mark.parametrize("micro_batches", [5, 6, 7, 10, 15])
def test_the_rounds_of_torchs_interleaving(micro_batches: int) -> None:
    # pytorch/pytorch #129597: M must be a multiple of max(1, M // pp), which Megatron's rule, a multiple of pp, is not.
    said = ["model.preset=llama-3.1-8b", "training.sequence_length=4096", f"training.global_batch={micro_batches}", "training.micro_batch=1",
            "plan.dialect=torchtitan", "plan.tp=1", "plan.pp=4", "plan.vpp=2", "plan.pipeline_parallel_schedule=Interleaved1F1B", "cluster.gpus=4"]  # fmt: skip
    journey = Journey.read(None, said)
    arch, plan, facts = journey.model().architecture, journey.plan(), journey.config.cluster.facts
    assert step_time(arch, plan, journey.calls(), facts).step_seconds > 0
    assert memory(arch, plan, software_on(facts)).worst.peak > 0


@pytest.mark.parametrize("micro_batches", [9, 11, 13])
def test_no_verb_takes_what_torch_refuses(micro_batches: int) -> None:
    said = ["model.preset=llama-3.1-8b", "training.sequence_length=4096", f"training.global_batch={micro_batches}", "training.micro_batch=1",
            "plan.dialect=torchtitan", "plan.tp=1", "plan.pp=4", "plan.vpp=2", "plan.pipeline_parallel_schedule=Interleaved1F1B", "cluster.gpus=4"]  # fmt: skip
    with pytest.raises(InputError, match=r"\[training\] global_batch .* rounds"):
        Journey.read(None, said).plan()
