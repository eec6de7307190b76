"""What Megatron refuses, in one line with a nearest value that really works."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import gpt, llama
from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Experts
from tokenwire.plan import TrainingConfig, read_plan, resolve

E6 = Experts(6, 2, 96)

# (model, GPUs, [plan], [training], part of the rule, nearest)
CASES: list[tuple[Architecture, int, dict[str, Any], dict[str, Any], str, str]] = [
    (gpt(), 8, {"tp": 3}, {}, "tp·pp·cp = 3·1·1 = 3 must divide the 8 GPUs", "tp = 2"),
    (gpt(), 48, {"tp": 3}, {"global_batch": 64}, "must divide the 8 attention heads", "tp = 2"),
    (llama(kv_heads=6, heads=12, hidden=96, width=192), 8, {"tp": 4}, {}, "6 KV heads", "tp = 2"),
    (llama(width=100), 8, {"tp": 8}, {}, "feed-forward width of 100", "tp = 4"),
    (gpt(), 8, {"pp": 8}, {}, "only 4 layers", "pp = 4"),
    (gpt(6), 8, {"pp": 4}, {}, "must divide the 6 layers", "pp = 2"),
    (gpt(6), 8, {"pp": 2, "vpp": 2}, {}, "must divide the 3 layers of a stage", "vpp = 1"),
    (gpt(), 8, {"vpp": 2}, {}, "pp must be greater than 1", "vpp = 1"),
    (gpt(8), 8, {"pp": 4, "vpp": 2}, {"global_batch": 4}, "multiple of 4", "global_batch = 8"),
    (gpt(6), 8, {"pp": 4, "decoder_first_pipeline_num_layers": 2}, {}, "4 layers left", "num_layers = 3"),
    (gpt(6), 8, {"pp": 2, "decoder_first_pipeline_num_layers": 2, "account_for_loss_in_pipeline_split": True}, {},
     "cannot go with", "account_for_loss_in_pipeline_split = false"),
    (gpt(), 8, {}, {"global_batch": 12}, "micro_batch·dp = 1·8 = 8 must divide", "global_batch = 8"),
    (gpt(), 8, {"cp": 4}, {"sequence_length": 60}, "2·cp = 8 must divide", "sequence_length = 56"),
    (gpt(), 8, {"tp": 8, "sequence_parallel": True}, {"sequence_length": 60}, "tp = 8 must divide", "sequence_length = 56"),
    (gpt(), 8, {"ep": 2}, {}, "has no experts", "ep = 1"),
    (llama(experts=E6), 8, {"ep": 4}, {}, "must divide the 6 experts", "ep = 2"),
    (llama(experts=E6), 8, {"tp": 2, "ep": 2}, {}, "need sequence parallelism", "sequence_parallel = true"),
    (gpt(), 8, {"overlap_param_gather": True}, {}, "needs use_distributed_optimizer", "overlap_param_gather = false"),
    (gpt(), 8, {"use_distributed_optimizer": True, "num_distributed_optimizer_instances": 3}, {}, "must divide the 8",
     "num_distributed_optimizer_instances = 2"),
    (gpt(), 8, {"recompute_granularity": "full", "recompute_method": "uniform"}, {}, "needs recompute_num_layers", "recompute_num_layers = 1"),
    (gpt(), 8, {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 3}, {},
     "must divide the 4 layers", "recompute_num_layers = 2"),
    (gpt(), 8, {"cp": 8, "tp": 1, "cp_comm_type": "a2a+p2p"}, {}, "two sizes whose product", ""),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[4])
def test_refused(case: Any) -> None:
    arch, gpus, options, training, rule, nearest = case
    values = {"sequence_length": 64, "micro_batch": 1, "global_batch": 16, **training}
    with pytest.raises(InputError) as error:
        resolve(read_plan(options), TrainingConfig(**values), arch, gpus)
    line = str(error.value)
    assert "\n" not in line
    assert rule in line
    assert nearest in line
    _mended(error.value, options, values, arch, gpus)


def _mended(error: InputError, options: dict[str, Any], training: dict[str, Any], arch: Architecture, gpus: int) -> None:
    """Take the nearest value at its word: the plan works then, or another rule is named."""
    match = re.fullmatch(r"(?:\[(\w+)\] )?(\w+) = (\w+)", error.nearest)
    if not match:
        assert error.nearest == ""
        return
    section, key, text = match.groups()
    value: Any = {"true": True, "false": False}.get(text) if text in ("true", "false") else int(text)
    section = section or error.where.strip("[]")
    if section == "cluster":
        gpus = value
    elif section == "training":
        training = {**training, key: value}
    else:
        options = {**options, key: value}
    rule = ""
    try:
        resolve(read_plan(options), TrainingConfig(**training), arch, gpus)
    except InputError as other:
        rule = other.rule
    assert rule != error.rule


@given(
    st.fixed_dictionaries(
        {}, optional={key: st.integers(1, 9) for key in ("tp", "pp", "cp", "ep", "etp", "vpp")}
        | {"sequence_parallel": st.booleans(), "use_distributed_optimizer": st.booleans()}
    ),
    st.integers(-1, 70), st.integers(1, 40), st.integers(1, 130),
)  # fmt: skip
def test_any_plan_is_made_or_refused_in_one_line(options: Any, gpus: int, batch: int, length: int) -> None:
    training = TrainingConfig(sequence_length=length, micro_batch=1, global_batch=batch)
    arch = llama(experts=E6) if "ep" in options else gpt()
    refused = None
    try:
        plan = resolve(read_plan(options), training, arch, gpus)
    except InputError as error:
        refused = error
    if refused is not None:
        assert "\n" not in str(refused)
        _mended(refused, options, training.model_dump(), arch, gpus)
    else:
        assert plan.tp * plan.pp * plan.cp * plan.dp == gpus == plan.etp * plan.ep * plan.edp * plan.pp
        assert sorted(layer for stage in plan.stages for layer in stage.layers) == list(range(len(arch.layers)))


@pytest.mark.parametrize(
    "values",
    [{"tp": 0}, {"tp": -1}, {"tp": "two"}, {"tp": True, "tq": 1}, {"dialect": 3}, {"dialect": "jax"}, {"tp": 1.5},
     {"tp": 10**30}, {"cp_comm_type": "ring"}, {"ddp_bucket_size": 0}],
)  # fmt: skip
def test_wrong_values_are_one_line(values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        read_plan(values)
    assert "\n" not in str(error.value)


def test_sequence_parallelism_without_tensor_parallelism_is_turned_off_with_a_note() -> None:
    plan = resolve(read_plan({"sequence_parallel": True}), TrainingConfig(), gpt(), 8)
    assert not plan.sequence_parallel
    assert "sequence_parallel is turned off" in plan.notes[0]
