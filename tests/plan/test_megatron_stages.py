"""Which layers stand where, and what is refused, as megatron-core itself says."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.step.models import llama
from tokenwire.errors import InputError
from tokenwire.plan import TrainingConfig, megatron_layout, read_plan, resolve
from tokenwire.plan.megatron_pipeline_layout import even, rows
from tokenwire.plan.megatron_rules import broken
from tokenwire.plan.rules import Choice

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def _transformer(layers: int, options: dict[str, Any]) -> Any:
    """Return megatron-core's TransformerConfig for a split of the pipeline. Raises what it raises."""
    pytest.importorskip("megatron.core")
    import torch
    from megatron.core.transformer import TransformerConfig

    named = {"pp": "pipeline_model_parallel_size", "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
             "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage"}  # fmt: skip
    given_ = {named.get(key, key): value for key, value in options.items() if key != "vpp"}
    vpp = options.get("vpp", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TransformerConfig(
            num_layers=layers, hidden_size=64, num_attention_heads=8, virtual_pipeline_model_parallel_size=vpp if vpp > 1 else None,
            pipeline_dtype=torch.bfloat16, use_cpu_initialization=True, **given_,
        )  # fmt: skip


def _megatron_chunks(layers: int, options: dict[str, Any]) -> list[list[list[int]]] | None:
    """Return the layers of each virtual stage of each rank by megatron-core's own functions, or None where it refuses."""
    pytest.importorskip("megatron.core")
    from megatron.core import parallel_state
    from megatron.core.transformer import transformer_block, transformer_layer

    try:
        config = _transformer(layers, options)
        if config.virtual_pipeline_model_parallel_size and config.pipeline_model_parallel_size == 1:
            return None  # parallel_state.initialize_model_parallel
        v = config.virtual_pipeline_model_parallel_size
        out = []
        for rank in range(config.pipeline_model_parallel_size):
            with (
                mock.patch.object(parallel_state, "get_pipeline_model_parallel_rank", return_value=rank),
                mock.patch.object(parallel_state, "get_virtual_pipeline_model_parallel_world_size", return_value=v),
            ):
                stage = []
                for chunk in range(v or 1):
                    virtual = chunk if v else None
                    count = transformer_block.get_num_layers_to_build(config, virtual, rank)
                    offset = transformer_layer.get_transformer_layer_offset(config, virtual, rank)
                    stage.append(list(range(offset, offset + count)))
                out.append(stage)
    except (ValueError, AssertionError, NotImplementedError, ZeroDivisionError):
        # Megatron's own ways to refuse; it divides by zero where both end stages are given and no stage is left between.
        return None
    return out


def _our_chunks(layers: int, options: dict[str, Any]) -> list[list[list[int]]] | None:
    p = options.get("pp", 1)
    # Micro-batches enough for any group of them, so that only the split of the layers is asked; no search for what would work.
    training = TrainingConfig(sequence_length=64, micro_batch=1, global_batch=24 * p)
    config, _ = megatron_layout.as_megatron_runs_it(read_plan(options))
    if any(broken(Choice(config, training, p), llama(layers))):
        return None
    plan = resolve(read_plan(options), training, llama(layers), p)
    return [[list(chunk) for chunk in stage.chunks] for stage in plan.stages]


COUNT = st.integers(1, 6)
SPLITS = st.fixed_dictionaries(
    {"pp": COUNT}, optional={
        "vpp": st.integers(2, 3), "decoder_first_pipeline_num_layers": COUNT, "decoder_last_pipeline_num_layers": COUNT,
        "account_for_embedding_in_pipeline_split": st.booleans(), "account_for_loss_in_pipeline_split": st.booleans(),
    },
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 16), SPLITS)
def test_splits_are_those_of_megatron(layers: int, options: dict[str, Any]) -> None:
    if options["pp"] == 1:
        # It goes below zero there with both ends given, and lets it be.
        options = {key: value for key, value in options.items() if not key.startswith("decoder")}
    real = _megatron_chunks(layers, options)
    ours = _our_chunks(layers, options)
    if real is not None and ours is None:
        # Refused by us alone: only a pipeline in which a stage is without a layer, unless embedding or loss stands for it.
        assert any(not chunk for stage in real for chunk in stage)
    else:
        assert ours == real


LAYOUTS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(LAYOUTS, st.integers(1, 4), st.integers(0, 2), st.sampled_from(["text", "rows", "times"]), st.integers(-1, 1))
def test_layouts_are_read_as_megatron_reads_them(sizes: list[int], pp: int, further: int, form: str, off: int) -> None:
    parts = ["t" * n for n in sizes]
    parts[0], parts[-1] = "E" + parts[0], parts[-1] + "m" * further + "L"
    layout: Any = "|".join(parts)
    if form == "times":
        layout = ",".join("|".join(part.replace("tt", "t*2") for part in parts))
        layout = layout.replace(",*,", "*")
    elif form == "rows":
        layout = [list(row.names) for row in rows(layout)]
    layers = sum(sizes) + off
    if layers < 1:
        return
    options: dict[str, Any] = {"pp": pp, "pipeline_model_parallel_layout": layout}
    if further:
        options["mtp_num_layers"] = further
    assert _our_chunks(layers, options) == _megatron_chunks(layers, options)


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 2))
def test_the_layout_that_is_proposed_works(layers: int, stages: int, further: int) -> None:
    text = even(layers, stages, further)
    names = [name for row in rows(text) for name in row.names]
    assert (names.count("decoder"), names.count("mtp"), len(rows(text))) == (layers, further, stages)


# What TransformerConfig refuses, with the options that this project has by the same name: (fields of megatron-core, [plan]).
REFUSED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"fp8": "e4m3", "first_last_layers_bf16": True, "fp8_recipe": "delayed"}, {"first_last_layers_bf16": True}, {"precision": "fp8"}),
    ({"fp8": "e4m3", "first_last_layers_bf16": True, "fp8_recipe": "tensorwise", "num_layers_at_start_in_bf16": 9},
     {"first_last_layers_bf16": True, "fp8_recipe": "tensorwise", "num_layers_at_start_in_bf16": 9}, {"precision": "fp8"}),
    ({"fp8_param": True}, {"fp8_param": True, "use_distributed_optimizer": True}, {}),
    ({"recompute_granularity": "selective", "recompute_num_layers": 1}, {"recompute_granularity": "selective", "recompute_num_layers": 1}, {}),
    ({"recompute_granularity": "full"}, {"recompute_granularity": "full"}, {}),
    ({"recompute_granularity": "selective", "recompute_modules": ["x"]}, {"recompute_granularity": "selective", "recompute_modules": ["x"]}, {}),
    ({"recompute_granularity": "selective", "recompute_modules": ["moe_act"]}, {"recompute_granularity": "selective", "recompute_modules": ["moe_act"]}, {}),
    ({"recompute_granularity": "selective", "recompute_modules": ["mla_up_proj"]},
     {"recompute_granularity": "selective", "recompute_modules": ["mla_up_proj"]}, {}),
    ({"fp8": "e4m3", "fp8_recipe": "delayed", "recompute_granularity": "selective", "recompute_modules": ["layernorm"]},
     {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]}, {"precision": "fp8"}),
    ({"tensor_model_parallel_size": 3}, {"tp": 3}, {}),
    ({"pipeline_model_parallel_size": 3, "num_layers_in_first_pipeline_stage": 3}, {"pp": 3, "num_layers_in_first_pipeline_stage": 3}, {}),
    ({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Etttt|ttttL", "account_for_loss_in_pipeline_split": True},
     {"pp": 2, "pipeline_model_parallel_layout": "Etttt|ttttL", "account_for_loss_in_pipeline_split": True}, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: ",".join(case[0]))
def test_refused_by_both(case: Any) -> None:
    pytest.importorskip("megatron.core")
    import torch
    from megatron.core.transformer import TransformerConfig

    fields, options, training = case
    common = {"num_layers": 8, "hidden_size": 64, "num_attention_heads": 8, "num_query_groups": 4, "pipeline_dtype": torch.bfloat16}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, AssertionError)):
            TransformerConfig(**{**common, **fields})
        TransformerConfig(**common)
    gpus = options.get("tp", 1) * options.get("pp", 1) * 2
    values = {"sequence_length": 64, "micro_batch": 1, "global_batch": 48, **training}
    with pytest.raises(InputError) as error:
        resolve(read_plan(options), TrainingConfig(**values), llama(8), gpus)
    assert "\n" not in str(error.value)
