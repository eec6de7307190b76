"""Labels are for people: whatever they are, every second of a step stays the same."""

import random

import pytest

from tokenwire.fabric import preset as cluster
from tokenwire.model import preset
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.step import calls_of
from tokenwire.timeline import accelerator, step_time

ARCH = preset("llama-3.1-8b")
PLANS = (
    {"tp": 4, "pp": 2, "vpp": 2, "sequence_parallel": True, "use_distributed_optimizer": True},
    {
        "tp": 2,
        "pp": 4,
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    },
    {
        "tp": 8,
        "cp": 2,
        "sequence_parallel": True,
        "use_megatron_fsdp": True,
        "data_parallel_sharding_strategy": "optim_grads_params",
        "use_distributed_optimizer": True,
    },
    {"dialect": "torchtitan", "tp": 4, "pp": 2},
    {"dialect": "torchtitan", "tp": 1, "data_parallel_replicate_degree": 2},
    {"dialect": "deepspeed", "tp": 1, "zero_stage": 3},
    {"dialect": "ddp", "tp": 1},
)


def plan_of(options: dict[str, object]) -> Plan:
    training = TrainingConfig(sequence_length=4096, global_batch=128, micro_batch=1)
    return resolve(read_plan(options), training, ARCH, 32)


@pytest.mark.parametrize(
    "options", PLANS, ids=lambda options: ", ".join(f"{k} {v}" for k, v in options.items())
)
def test_no_second_depends_on_a_label(options: dict[str, object]) -> None:
    plan = plan_of(options)
    rows = calls_of(plan.config.trained(ARCH), plan)
    assert len({row.what for row in rows}) > 1
    labels = [(row.what, row.source, row.why) for row in rows]
    random.Random(7).shuffle(labels)
    shuffled = [
        row._replace(what=what, source=source, why=why)
        for row, (what, source, why) in zip(rows, labels, strict=True)
    ]
    facts, gpu = cluster("dgx-h100-superpod"), accelerator("H100 SXM")
    predicted, other = (step_time(ARCH, plan, some, facts, gpu=gpu) for some in (rows, shuffled))
    assert predicted.step_seconds > 0
    assert other.step_seconds == predicted.step_seconds
    assert other.exposed_communication_seconds == predicted.exposed_communication_seconds


def test_gathers_of_inputs_overlap_the_gradient_of_the_input() -> None:
    """Megatron gathers the input while it computes the input's gradient, and scatters that beside the weight's gradient."""
    plan = plan_of(PLANS[0])
    overlapped = {(row.op, row.overlapped) for row in calls_of(ARCH, plan) if row.overlapped and row.layers}
    assert overlapped == {("all_gather", "input"), ("reduce_scatter", "weight")}
