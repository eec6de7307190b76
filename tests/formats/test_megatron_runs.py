"""Measured Megatron runs as journeys: none is dropped, what cannot be said says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenwire.errors import InputError
from tokenwire.formats.megatron_runs import b200_runs, golden_run, golden_runs, kind
from tokenwire.formats.runs.arguments import dense_layers, sections

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "validation"
ARGS: dict[str, Any] = {
    "num-layers": 12, "hidden-size": 512, "num-attention-heads": 8, "micro-batch-size": 4, "global-batch-size": 32, "seq-length": 1024,
    "max-position-embeddings": 1024, "bf16": True,
}  # fmt: skip


def row(**more: Any) -> dict[str, Any]:
    return {"case": "x", "family": "gpt", "platform": "dgx_h100", "gpus": 8, "variant": "dev_dgx_h100", "args": {**ARGS, **more}}


def test_defaults_are_those_of_the_command_line() -> None:
    found, software = sections(ARGS, 8)
    assert found["model"]["vocabulary_size"] == 50_257
    assert found["model"]["feed_forward"] == 4 * 512
    assert found["plan"]["grad_reduce_in_fp32"] is True
    assert software["hidden_dropout"] == 0.1


def test_a_gated_feed_forward_is_two_thirds_as_wide() -> None:
    # int(4·512·2/3/64)·64 = int(21.33)·64 = 1344
    assert sections({**ARGS, "swiglu": True}, 8)[0]["model"]["feed_forward"] == 1344


@pytest.mark.parametrize(
    ("pattern", "dense"), [(1, 0), ("([0]*1+[1]*11)", 1), ("([0]*3+[1]*9)", 3)]
)  # fmt: skip
def test_pattern_of_layers_with_experts(pattern: Any, dense: int) -> None:
    assert dense_layers(pattern, 12) == dense


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"use-megatron-fsdp": True}, "FSDP"),
        ({"encoder-num-layers": 12}, "T5"),
        ({"optimizer": "muon", "use-distributed-optimizer": True}, "muon"),
        ({"tokenizer-type": "TikTokenizer"}, "vocabulary"),
    ],
)
def test_what_cannot_be_said_says_why(more: dict[str, Any], words: str) -> None:
    run = golden_run(row(**more))
    assert not run.represented
    assert words in run.reasons[0]


def test_options_that_shape_memory_are_kept_beside_the_journey() -> None:
    run = golden_run(row(**{"defer-embedding-wgrad-compute": True, "wgrad-deferral-limit": 2, "fp8-format": "hybrid"}))
    assert run.software["defer_embedding_wgrad_compute"] is True
    assert run.software["wgrad_deferral_limit"] == 2
    assert run.sections["training"]["precision"] == "fp8"
    assert run.software["gpu"] == "H100"


def test_a_number_of_gpus_that_is_not_said_is_assumed_and_told() -> None:
    run = golden_run({**row(), "gpus": None})
    assert run.sections["cluster"]["gpus"] == 8
    assert "the row does not say" in run.assumed[0]


@pytest.mark.parametrize("text", ["{", "[]", '{"args": 3}', "[" * 100_000])
def test_a_file_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match="line 1") as caught:
        golden_runs(path)
    assert "\n" not in str(caught.value)


def test_another_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="measured_peak_alloc_gib"):
        b200_runs(path)


@pytest.mark.skipif(not DATA.exists(), reason="the measured runs are not here")
def test_no_row_is_dropped() -> None:
    path = DATA / "megatron_golden_runs.jsonl"
    runs = golden_runs(path)
    assert len(runs) == len(path.read_text().splitlines()) == 543
    said = sum(run.represented for run in runs)
    assert said >= 490
    assert all(run.reasons for run in runs if not run.represented)
    json.dumps([run.sections for run in runs])


@pytest.mark.skipif(not DATA.exists(), reason="the measured runs are not here")
def test_runs_on_b200_have_the_shapes_of_their_launchers() -> None:
    runs = b200_runs(DATA / "b200_megatron_runs.csv")
    assert len(runs) == 29
    large = next(run for run in runs if "405b" in run.case)
    assert large.sections["model"]["kv_heads"] == 16
    assert large.sections["model"]["vocabulary_size"] == 128_257
    assert kind({"num-experts": 8}, "moe") == "MoE"


def test_bert_is_a_decoder_of_its_shape_with_heads_of_its_own() -> None:
    run = golden_run({**row(), "family": "bert"})
    assert run.sections["model"]["vocabulary_size"] == 28_996
    assert run.software["heads"] == "bert"
    assert "heads are counted beside it" in run.assumed[0]
