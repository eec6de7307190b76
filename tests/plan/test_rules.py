"""What Megatron refuses, in one line with a nearest value that really works."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.step.models import gpt, llama
from tokenwire.errors import InputError
from tokenwire.model import preset
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
    (gpt(8), 8, {"pp": 4, "vpp": 2}, {"global_batch": 10}, "multiple of 4", "global_batch = 8"),
    (gpt(8), 8, {"pp": 4, "vpp": 2}, {"global_batch": 4}, "at most the 2 that there are", "vpp = 1"),
    (gpt(8), 8, {"pp": 2, "vpp": 2, "microbatch_group_size_per_vp_stage": 4}, {"global_batch": 12}, "in groups of 4", "stage = 3"),
    (gpt(6), 8, {"pp": 4, "decoder_first_pipeline_num_layers": 2}, {}, "4 layers left", "num_layers = 3"),
    (gpt(6), 8, {"pp": 2, "decoder_first_pipeline_num_layers": 2, "account_for_loss_in_pipeline_split": True}, {},
     "cannot go with", "account_for_loss_in_pipeline_split = false"),
    (gpt(8), 8, {"pp": 2, "vpp": 2, "decoder_first_pipeline_num_layers": 4, "decoder_last_pipeline_num_layers": 4}, {},
     "divides by the stages between", "vpp = 1"),
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
    (gpt(), 8, {"cp": 8, "tp": 1, "cp_comm_type": "a2a+p2p"}, {}, "two sizes whose product", "sizes = [2, 4]"),
    (preset("jamba-v0.1"), 8, {"tp": 2, "sequence_parallel": True}, {}, "Mamba 1 are not split", "tp = 1"),
    # Layouts of the pipeline.
    (gpt(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ettt|ttL"}, {}, "has 5 layers (t), and the model has 6", '"Et*3|t*3L"'),
    (gpt(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ettt|tttX"}, {}, "'X' is none of its letters", '"Et*3|t*3L"'),
    (gpt(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "t*999999999"}, {}, "more than 100,000 layers", '"Et*3|t*3L"'),
    (gpt(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Et|tt|tttL"}, {}, "must divide its 3 stages", '"Et*3|t*3L"'),
    (gpt(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "ttt|tttL"}, {}, "must begin with the embedding", '"Et*3|t*3L"'),
    (gpt(6), 8, {"pp": 2, "vpp": 3, "pipeline_model_parallel_layout": "Ettt|tttL"}, {}, "not vpp = 3", '"Et|t|t|t|t|tL"'),
    (gpt(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ettt|tttL", "decoder_last_pipeline_num_layers": 3}, {},
     "cannot go with pipeline_model_parallel_layout", "no decoder_last_pipeline_num_layers"),
    (llama(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ettt|tttmL"}, {}, "has 1 layers of multi-token", '"Et*3|t*3L"'),
    (llama(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ett|ttm|tL|t", "mtp_num_layers": 1}, {}, "must begin with", '"Ett|tt|t|tmL"'),
    (llama(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ett|tm|tt|tL", "mtp_num_layers": 1}, {}, "stand after all others", '"Ett|tt|t|tmL"'),
    (llama(6), 8, {"pp": 2, "pipeline_model_parallel_layout": "Ett|tttt|m|mL", "mtp_num_layers": 2}, {}, "on the same stage", '"Ett|tt|t|tmmL"'),
    # Recomputation.
    (gpt(), 8, {"recompute_granularity": "selective", "recompute_num_layers": 1}, {}, "goes by modules", "no recompute_num_layers"),
    (gpt(), 8, {"recompute_granularity": "selective", "recompute_modules": ["mlpp"]}, {}, "mlpp is none of", '["core_attn"]'),
    (gpt(), 8, {"recompute_granularity": "selective", "recompute_modules": ["moe_act", "mlp"]}, {}, "needs moe_grouped_gemm", '["mlp"]'),
    (gpt(), 8, {"recompute_granularity": "selective", "recompute_modules": ["mla_up_proj"]}, {}, "is of latent attention", '["core_attn"]'),
    (gpt(), 8, {"distribute_saved_activations": True, "tp": 2}, {}, "needs tp above 1 and full", "false"),
    # Multi-token prediction, positions.
    (gpt(), 8, {"mtp_num_layers": 1}, {}, "rotary positions or none", "no mtp_num_layers"),
    (gpt(), 8, {}, {"sequence_length": 128}, "64 learned positions", "sequence_length = 64"),
    # Context parallelism.
    (llama(), 8, {"cp": 8, "cp_comm_type": "a2a"}, {}, "to divide the 4 KV heads", "cp = 4"),
    (llama(window=16), 8, {"cp": 2}, {}, "a window goes with a2a and all_gather only", '"all_gather"'),
    (llama(), 4, {"cp": 4, "cp_comm_type": ["p2p"]}, {}, "one word a layer: 4, not 1", '["p2p", "p2p", "p2p", "p2p"]'),
    (llama(), 4, {"cp": 4, "cp_comm_type": ["p2p"] * 4, "mtp_num_layers": 1}, {}, "nothing of the layers of multi-token", '"p2p"'),
    (llama(), 8, {"fp4": "e2m1"}, {}, "gathered in 4 bits is not predicted", "no fp4"),
    (llama(), 8, {"fp8_dot_product_attention": True}, {}, "needs training.precision", "= false"),
    (llama(), 8, {"cp": 2, "fp8_multi_head_attention": True}, {"precision": "fp8"}, "along the sequence is not predicted", "= false"),
    (llama(sinks=True), 8, {"cp": 2, "cp_comm_type": "all_gather"}, {}, "sinks goes with a2a only", '"a2a"'),
    # Experts.
    (llama(experts=E6), 8, {"variable_seq_lengths": True, "pp": 2}, {}, "moe_token_dispatcher_type", "variable_seq_lengths = false"),
    (llama(experts=E6), 8, {"moe_token_dispatcher_type": "flex"}, {}, "flex needs etp·ep above 1", '"alltoall"'),
    (llama(experts=E6), 8, {"moe_pad_expert_input_to_capacity": True}, {}, "needs moe_expert_capacity_factor", "= false"),
    (llama(experts=E6), 8, {"moe_router_load_balancing_type": "sinkhorn", "moe_aux_loss_coeff": 0.1}, {}, "auxiliary loss", '"none"'),
    # fp8.
    (gpt(), 8, {"fp8_param_gather": True}, {}, 'needs training.precision = "fp8"', "fp8_param_gather = false"),
    (gpt(), 8, {"fp8_param_gather": True}, {"precision": "fp8"}, "needs use_distributed_optimizer", "fp8_param_gather = false"),
    (gpt(), 8, {"first_last_layers_bf16": True}, {"precision": "fp8"}, "does not go with delayed scaling", "first_last_layers_bf16 = false"),
    (gpt(), 8, {"first_last_layers_bf16": True, "fp8_recipe": "tensorwise", "num_layers_at_end_in_bf16": 5}, {"precision": "fp8"},
     "at most the 4 layers", "num_layers_at_end_in_bf16 = 4"),
    (gpt(), 8, {"fp8_param_gather": True, "fp8_recipe": "mxfp8", "use_distributed_optimizer": True}, {"precision": "fp8"},
     "in the buffer of the gradients only", "reuse_grad_buf_for_mxfp8_param_ag = true"),
    (gpt(), 8, {"fp8_recipe": "mxfp8"}, {"precision": "fp8", "sequence_length": 48}, "48 rows of a rank", "sequence_length = 32"),
    (gpt(), 8, {"tp_comm_overlap": True}, {}, "needs sequence_parallel", "tp_comm_overlap = false"),
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
    if error.nearest.startswith("no "):
        options = {key: value for key, value in options.items() if key != error.nearest[3:]}
        resolve(read_plan(options), TrainingConfig(**training), arch, gpus)
        return
    match = re.fullmatch(r"(?:\[(\w+)\] )?(\w+) = (.+)", error.nearest)
    if not match:
        assert error.nearest == ""
        return
    section, key, text = match.groups()
    value = tomllib.loads(f"value = {text}")["value"]
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


@pytest.mark.parametrize(
    ("arch", "gpus", "options", "training", "steps"),
    [(llama(), 16, {"cp": 16, "cp_comm_type": "a2a"}, {"global_batch": 1}, 2), (llama(), 16, {"dialect": "deepspeed", "cp": 16}, {"global_batch": 1}, 2),
     (gpt(18), 64, {"pp": 16, "vpp": 2, "tp": 4}, {"global_batch": 64}, 2)],
)  # fmt: skip
def test_where_two_values_have_to_change_the_first_leads_to_the_second(arch: Any, gpus: int, options: Any, training: Any, steps: int) -> None:
    # Nearer values (15 of 16 ranks) would only break another rule, whose nearest value leads back.
    values = {"sequence_length": 64, "micro_batch": 1, **training}
    said = []
    for _ in range(steps):
        with pytest.raises(InputError) as error:
            resolve(read_plan(options), TrainingConfig(**values), arch, gpus)
        said.append(error.value.nearest)
        key, value = error.value.nearest.split("] ")[-1].split(" = ")
        part = values if key in values else options
        part |= {key: int(value)}
    resolve(read_plan(options), TrainingConfig(**values), arch, gpus)
    assert len(set(said)) == steps


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
     {"tp": 10**30}, {"cp_comm_type": "ring"}, {"ddp_bucket_size": 0},
     {"moe_expert_capacity_factor": 0.0}, {"moe_expert_capacity_factor": float("nan")}],
)  # fmt: skip
def test_wrong_values_are_one_line(values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        read_plan(values)
    assert "\n" not in str(error.value)


def test_sequence_parallelism_without_tensor_parallelism_is_turned_off_with_a_note() -> None:
    plan = resolve(read_plan({"sequence_parallel": True}), TrainingConfig(), llama(), 8)
    assert not plan.sequence_parallel
    assert "sequence_parallel is turned off" in plan.notes[0]
