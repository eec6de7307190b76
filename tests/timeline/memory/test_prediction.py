"""The parts of a rank's memory: counted by hand, and what must hold of any plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.model import architecture, preset
from tokenwire.model.architecture import Architecture
from tokenwire.model.config import ModelConfig
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Memory, Software, memory
from tokenwire.timeline.memory.flight import in_flight
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.passing import recomputed

GPT: dict[str, Any] = {
    "hidden_size": 1024, "layers": 8, "heads": 16, "feed_forward": 4096, "vocabulary_size": 32_000, "max_positions": 1024, "tied_embeddings": False,
    "positions": "none", "bias": False, "norm": "rms",
}  # fmt: skip
NO_DROPOUT = Software(attention_dropout=0, hidden_dropout=0)


def of(model: dict[str, Any] | Architecture, gpus: int, software: Software | None = None, training: dict[str, Any] | None = None, **options: Any) -> Memory:
    arch = model if isinstance(model, Architecture) else architecture(ModelConfig.model_validate(model))
    said = TrainingConfig.model_validate({"sequence_length": 1024, "global_batch": 64, "micro_batch": 2, **(training or {})})
    return memory(arch, resolve(read_plan(options), said, arch, gpus), software or NO_DROPOUT)


def test_states_by_hand() -> None:
    # Layers: 8·(4·1024² + 2·1024·4096 + 2·1024) = 100,679,680; embedding and head: 2·32,000·1024 = 65,536,000; last norm 1024.
    parameters = 100_679_680 + 65_536_000 + 1024
    stage = of(GPT, 4, use_distributed_optimizer=True, grad_reduce_in_fp32=True).stages[0]
    assert stage.of("weights") == pytest.approx(2 * parameters, abs=2**20)
    assert stage.of("gradients") == pytest.approx(4 * parameters, abs=2**20)
    assert stage.of("optimizer") == 12 * parameters // 4


def test_activations_of_a_layer_by_hand() -> None:
    # T = 2·1024 tokens, e = 2. Norms: 2 inputs and 2 outputs of h, 2·4 B of statistics; queries, keys, values 3·h; sums 4·16; output h;
    # feed-forward 2·4096. (4+3+1)·1024·2 + 8 + 64 + 2·4096·2 = 32,840 B a token, 8 layers.
    stage = of(GPT, 1).stages[0]
    assert stage.of("activations", "loss") == 8 * 2048 * 32_840


def test_dropout_is_megatrons_default_and_named_as_assumed() -> None:
    # Masks of a byte: two of h a layer and token, one of the embedding; 8 layers, 2,048 tokens, h 1,024.
    found, without = of(GPT, 1, Software()), of(GPT, 1)
    assert found.stages[0].of("activations", "loss") - without.stages[0].of("activations", "loss") == (2 * 8 + 1) * 2048 * 1024
    assert next(line.partition(" (")[0] for line in found.assumptions) == "attention_dropout = 0.1, hidden_dropout = 0.1"
    given = of(GPT, 1, Software(), attention_dropout=0, hidden_dropout=0)
    assert given.worst.peak == without.worst.peak
    assert not any("dropout" in line for line in given.assumptions)


def test_torchtitan_keeps_the_inputs_of_the_layers_that_run_again() -> None:
    # Every second layer of a rank, counted from 1 through its virtual stages: of layers 0 1 2 and 6 7 8 those are 1, 6 and 8.
    arch = architecture(ModelConfig.model_validate(GPT))
    options = {"dialect": "torchtitan", "activation_checkpoint_mode": "selective", "selective_ac_option": "2"}
    plan = resolve(read_plan(options), TrainingConfig(sequence_length=1024, global_batch=64, micro_batch=2), arch, 1)
    stage = replace(plan.stages[0], chunks=((0, 1, 2), (6, 7, 8)))
    assert [recomputed(Frame(arch, plan, Software()), stage, number) for number in (0, 1, -1)] == [(1,), (6, 8), (6, 8)]


def test_korthikanti_of_scores_that_are_kept() -> None:
    # 5·a·s²·b bytes a layer: softmax 2, dropout's mask 1 and result 2 (Korthikanti et al. 2022, section 4.1); 4 B sums of a token and head less.
    flash = of(GPT, 1, Software(attention_dropout=0.1)).stages[0].of("activations", "loss")
    kept = of(GPT, 1, Software(attention_dropout=0.1, attention_backend="unfused")).stages[0].of("activations", "loss")
    assert kept - flash == 8 * (5 * 16 * 1024**2 * 2 - 4 * 2048 * 16)


def test_pipeline_holds_as_many_micro_batches_as_stages_follow() -> None:
    model = {**GPT, "layers": 16}
    sizes = [stage.of("activations", "forward") for stage in of(model, 4, pp=4).stages]
    assert [round(size / sizes[-1], 2) for size in sizes] == [4, 3, 2, 1]


@pytest.mark.parametrize(("name", "stages"), [("GPipe", 1), ("LoopedBFS", 2)])
def test_every_forward_first_holds_every_micro_batch(name: str, stages: int) -> None:
    # 40 micro-batches on 2 ranks: all are in flight before the first backward, on every rank and virtual stage.
    arch = architecture(ModelConfig.model_validate(GPT))
    options = {"dialect": "torchtitan", "pp": 2, "vpp": stages, "pipeline_parallel_schedule": name}
    plan = resolve(read_plan(options), TrainingConfig(sequence_length=1024, global_batch=40, micro_batch=1), arch, 2)
    assert [in_flight(plan, rank, [1.0] * stages).most for rank in range(2)] == [(40,) * stages] * 2


def test_full_recomputation_keeps_inputs_only() -> None:
    options = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    stage = of(GPT, 1, **options).stages[0]
    assert stage.of("activations", "loss") == 8 * 2048 * 1024 * 2


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_cuts_what_its_stage_says(stage: int) -> None:
    # 2·P, 2·P and 12·P bytes over 8 ranks (Rajbhandari et al. 2020, figure 1).
    P = 100_679_680 + 65_536_000 + 1024
    one = of(GPT, 8, dialect="deepspeed", zero_stage=stage).stages[0]
    cut = [8 if stage >= least else 1 for least in (3, 2, 1)]
    assert [one.of(kind, "between") for kind in ("weights", "gradients", "optimizer")] == [size * P // n for size, n in zip((2, 2, 12), cut, strict=True)]


def test_two_stages_of_fsdp_keep_whole_gradients_until_the_last_micro_batch() -> None:
    stage = of({**GPT, "layers": 10}, 4, dialect="torchtitan", pp=2, pipeline_parallel_schedule="1F1B").stages[1]
    whole = [part for part in stage.parts if "whole gradients" in part.what]
    assert len(whole) == 1
    layers = 5 * 12_584_960  # ten layers, embedding and head count as one each
    assert whole[0].size == 4 * (layers + 32_000 * 1024)


def test_next_tokens_are_there_where_the_plan_trains_them() -> None:
    model = {**GPT, "tied_embeddings": False, "positions": "rotary"}
    without, single = of(model, 2, pp=2).stages[1], of(model, 2, pp=2, mtp_num_layers=1).stages[1]
    # Its layer, norms of embedding, hidden state and output, 2·h·h of the product, and the table of tokens a second time.
    more = 12_584_960 + 3 * 1024 + 2 * 1024**2 + 32_000 * 1024
    assert single.of("weights", "between") - without.of("weights", "between") == pytest.approx(2 * more, abs=8 * 512)
    assert single.of("head", "loss") > without.of("head", "loss")


SIZES = st.sampled_from([1, 2, 4])


@settings(max_examples=20, deadline=None)
@given(tp=SIZES, pp=SIZES, micro=st.sampled_from([1, 2, 4]), sharded=st.booleans())
def test_what_holds_of_every_plan(tp: int, pp: int, micro: int, sharded: bool) -> None:
    options: dict[str, Any] = {"tp": tp, "pp": pp, "use_distributed_optimizer": sharded, "sequence_parallel": tp > 1}
    found = of(GPT, 32, training={"micro_batch": micro, "global_batch": 256}, **options)
    more = of(GPT, 32, training={"micro_batch": micro * 2, "global_batch": 256}, **options)
    for one, other in zip(found.stages, more.stages, strict=True):
        assert 0 < one.between <= one.peak
        assert one.peak == sum(part.size for part in one.parts if one.moment in part.moments)
        assert all(part.size >= 0 for part in one.parts)
        assert one.peak <= other.peak
    assert sum(found.table()["bytes"]) == sum(part.size for stage in found.stages for part in stage.parts)
    assert all(figure.unit == "B" and figure.formula for figure in found.figures() if figure.value)


@pytest.mark.parametrize("name", ["dante", "gpt2", "llama-3.1-405b", "deepseek-v3", "mixtral-8x7b", "mamba2-2.7b", "jamba-v0.1", "qwen3-235b-a22b"])
def test_every_kind_of_layer_is_counted(name: str) -> None:
    arch = preset(name, 50_257 if name in ("gpt2", "dante") else None)
    stage = of(arch, 8, training={"sequence_length": 256, "micro_batch": 1}, grad_reduce_in_fp32=True).stages[0]
    assert stage.of("activations", "loss") > 0
    assert stage.peak > stage.between


def test_layers_that_are_alike_are_one_part() -> None:
    # 126 layers on 9 stages, 14 on each, and 9 layers, 1 on each: as many parts, 14 times the bytes of a stage's layers.
    arch = preset("llama-3.1-405b")
    training = TrainingConfig(sequence_length=8192, global_batch=1152, micro_batch=1)
    short = replace(arch, layers=arch.layers[:9])
    found = []
    for model in (arch, short):
        plan = resolve(read_plan({"tp": 8, "pp": 9, "use_distributed_optimizer": True}), training, model, 1152)
        found.append(memory(model, plan).stages[4])
    assert [part.kind for part in found[0].parts] == [part.kind for part in found[1].parts]
    assert found[0].of("weights") == 14 * found[1].of("weights")


def test_heads_of_bert_by_hand() -> None:
    # Kinds of tokens 2·h; h² + 3·h + 32,000 of the language head; h² + h, 2·h + 2 of the other (megatron-core, models/bert).
    more = of(GPT, 1, Software(heads="bert")).stages[0].of("weights") - of(GPT, 1).stages[0].of("weights")
    assert more == pytest.approx(2 * (2 * 1024 + 1024**2 + 3 * 1024 + 32_000 + 1024**2 + 1024 + 2 * 1024 + 2), abs=10 * 512)
