"""Measured Megatron runs as journeys: none is dropped, what cannot be said says why."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.formats.megatron_arguments import sections
from tokenwire.formats.megatron_arguments.arguments import dense_layers
from validation.golden import golden_run, golden_runs, kind
from validation.memory import GOLDEN, Line, of, predicted
from validation.run import DATA
from validation.tables import b200_runs

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
    # What no argument gives is the plan's own default, as it is for a journey.
    assert "hidden_dropout" not in software


def test_a_gated_feed_forward_is_two_thirds_as_wide() -> None:
    # int(4·512·2/3/64)·64 = int(21.33)·64 = 1344
    assert sections({**ARGS, "swiglu": True}, 8)[0]["model"]["feed_forward"] == 1344


@pytest.mark.parametrize(
    ("pattern", "dense"), [(1, 0), ("([0]*1+[1]*11)", 1), ("([0]*3+[1]*9)", 3)]
)  # fmt: skip
def test_pattern_of_layers_with_experts(pattern: Any, dense: int) -> None:
    assert dense_layers(pattern, 12) == dense


def test_products_in_fp8_of_parameters_in_fp32() -> None:
    # Megatron takes --fp8-format without --bf16: parameters and activations then are fp32.
    args = {key: value for key, value in ARGS.items() if key != "bf16"} | {"fp8-format": "e4m3", "fp8-recipe": "tensorwise", "fp8-param-gather": True}
    run = golden_run({**row(), "args": args})
    assert run.sections["training"]["precision"] == "fp32"
    assert not any(name.startswith("fp8_") for name in run.sections["plan"])
    assert run.software["fp8"]
    assert "the journey says fp32, its products in fp8 are counted beside it" in run.assumed


def test_a_hybrid_with_modules_of_further_tokens() -> None:
    said = {"hybrid-layer-pattern": "M*ME/*E/*E", "mtp-use-repeated-layer": True, "num-experts": 8, "moe-latent-size": 128, "untie-embeddings-and-output-weights": True,
            "position-embedding-type": "none"}  # fmt: skip
    found = golden_run(row(**said)).sections
    assert (found["model"]["layer_pattern"], found["model"]["mtp_pattern"], found["model"]["mtp_layers"]) == ("M*ME", "*E", 1)
    assert (found["plan"]["mtp_num_layers"], found["plan"]["mtp_use_repeated_layer"]) == (2, True)
    assert found["model"]["expert_latent_size"] == 128
    assert golden_run(row(**{**said, "mtp-use-repeated-layer": False})).represented


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cuda-graph-impl": "local"}, "private pools"),
        ({"use-torch-fsdp2": True}, "FSDP2"),
        ({"global-batch-size": 33}, "global_batch"),
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


def test_no_row_is_dropped() -> None:
    runs = golden_runs(GOLDEN)
    assert len(runs) == len(gzip.decompress(GOLDEN.read_bytes()).splitlines()) == 543
    said = sum(run.represented for run in runs)
    assert said >= 521
    assert all(run.reasons for run in runs if not run.represented)
    json.dumps([run.sections for run in runs])


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


def test_a_hybrid_is_a_pattern_of_letters_cut_at_its_strokes() -> None:
    args = {**ARGS, "hybrid-layer-pattern": "M-M*|M-M-|M-M*|M-M-", "pipeline-model-parallel-size": 2}
    del args["num-layers"]
    run = golden_run({**row(), "args": args})
    assert run.sections["model"]["layers"] == 16
    assert run.sections["model"]["layer_pattern"] == "M-M*M-M-M-M*M-M-"
    # Four pieces on two ranks.
    assert run.sections["plan"]["vpp"] == 2


def test_t5_is_its_decoder_with_an_encoder_beside_it() -> None:
    args = {**ARGS, "encoder-num-layers": 12, "decoder-num-layers": 6, "encoder-seq-length": 512, "decoder-seq-length": 128,
            "tokenizer-type": "BertWordPieceCase", "vocab-extra-ids": 100}  # fmt: skip
    del args["num-layers"], args["seq-length"]
    run = golden_run({**row(), "args": args})
    assert run.sections["model"]["layers"] == 6
    assert run.sections["training"]["sequence_length"] == 128
    assert run.software["encoder_layers"] == 12
    # 28,996 words, two ends of a sentence, 100 more.
    assert run.sections["model"]["vocabulary_size"] == 29_098


def test_a_shared_expert_has_a_width_of_its_own() -> None:
    run = golden_run(row(**{"num-experts": 8, "moe-ffn-hidden-size": 1024, "moe-shared-expert-intermediate-size": 512,
                            "disable-bias-linear": True}))  # fmt: skip
    assert run.sections["model"]["shared_feed_forward"] == 512


@pytest.mark.parametrize(
    ("variant", "day", "attention"),
    [
        ("lts_dgx_a100", "2025-11-04", "unfused"),
        ("lts_dgx_a100", "2025-11-05", None),
        ("lts_dgxa100_dracooci", "2025-10-21", "unfused"),
        ("dev_dgx_a100", "2025-10-21", None),
    ],
)
def test_the_image_tells_whether_flash_attention_is_deterministic(variant: str, day: str, attention: str | None) -> None:
    # The lts image was pytorch:24.01 until 25.09 came on 5 November 2025.
    run = golden_run({**row(**{"deterministic-mode": True}), "variant": variant, "recorded": day})
    assert run.software.get("attention_backend") == attention


def test_a_row_without_a_day_is_old_where_every_fifth_step_was_recorded() -> None:
    args = row(**{"deterministic-mode": True})["args"]
    old, new = (golden_run({**row(), "args": args, "variant": "lts_dgx_a100", "iterations": n}) for n in (11, 50))
    assert (old.software["torch"], new.software["torch"]) == ("2.2", "2.11")


def test_the_day_of_a_row_tells_the_version_of_torch() -> None:
    older, newer = (golden_run({**row(), "variant": "dev_dgx_gb200", "recorded": day}) for day in ("2026-05-06", "2026-05-07"))
    assert (newer.software["torch"], older.software["torch"]) == ("2.12", "2.11")


def test_gpus_that_were_inferred_from_what_was_measured_are_marked() -> None:
    large = {**row(**{"global-batch-size": 1024}), "case": "gpt3_15b_8t_release"}
    run = golden_run({**large, "gpus": None})
    assert run.sections["cluster"]["gpus"] == 256
    assert run.inferred == ("allocated_bytes",)
    # What the row itself tells is inferred from nothing.
    assert golden_run(large).inferred == ()


def test_a_row_whose_input_was_inferred_is_in_no_statistic() -> None:
    given = {**row(**{"global-batch-size": 1024}), "gpus": None, "mem_allocated_bytes": 10**9, "mem_max_allocated_bytes": 2 * 10**9}
    found = predicted(golden_run(row()))
    sound, inferred = (Line(golden_run({**given, "case": case}), found) for case in ("x", "gpt3_15b_8t_release"))
    for what in ("allocated", "peak"):
        assert len(of([sound], what)) == 1
        assert of([inferred], what) == []


def test_a_variant_is_surer_of_its_machine_than_its_platform() -> None:
    assert golden_run({**row(), "platform": "dgx_a100", "variant": "dev_dgx_h100"}).software["gpu"] == "H100"


def test_an_argument_that_nobody_knows_is_told() -> None:
    assert any("no-such-option" in words for words in golden_run(row(**{"no-such-option": True})).assumed)
    assert not golden_run(row(**{"lr": 1e-4, "log-interval": 1})).assumed


def test_a_batch_that_eight_gpus_cannot_share_runs_on_fewer() -> None:
    assert golden_run({**row(**{"global-batch-size": 8}), "gpus": None}).sections["cluster"]["gpus"] == 2


def test_a_row_has_the_arguments_that_it_was_measured_with() -> None:
    args = {**ARGS, "cross-entropy-loss-fusion": True, "cross-entropy-fusion-impl": "native"}
    case = {"case": "deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release", "args": args}
    then = golden_run({**row(), **case, "variant": "dev_dgx_gb200"})
    assert then.sections["plan"]["cross_entropy_fusion_impl"] == "te"
    assert "cross-entropy-fusion-impl = te, as when it was recorded" in then.assumed
    now = golden_run({**row(), **case, "variant": "dev_dgx_gb200_2nd"})
    assert now.sections["plan"]["cross_entropy_fusion_impl"] == "native"


def test_a_copied_file_is_no_row() -> None:
    assert "a copy" in golden_run({**row(), "case": "gpt3_15b_8t_release_sm_gb200", "variant": "lts_dgx_a100"}).reasons[0]


ODD = st.sampled_from([0, -1, 3, True, None, "", "x", "4", [1, 2], {"a": 1}, 1e30, 2**70, 0.5, "1e-4", float("nan")])
SIZES = {"tensor-model-parallel-size": 2, "pipeline-model-parallel-size": 2, "num-experts": 8, "expert-model-parallel-size": 2,
         "num-layers-per-virtual-pipeline-stage": 3, "kv-channels": 64, "disable-bias-linear": True, "sequence-parallel": True}  # fmt: skip


@given(st.dictionaries(st.sampled_from([*ARGS, *SIZES]), ODD, min_size=1, max_size=3), ODD)
def test_whatever_a_row_says_it_is_a_journey_or_a_reason(wrong: dict[str, Any], gpus: Any) -> None:
    run = golden_run({**row(), "gpus": gpus, "args": {**ARGS, **SIZES, **wrong}})
    assert run.represented != bool(run.reasons)
    assert all("\n" not in reason for reason in run.reasons)


def test_a_size_that_is_none_is_told() -> None:
    assert golden_run(row(**{"hidden-size": 0})).reasons == ("hidden-size = 0: must be a whole number of at least 1",)


def test_muon_shares_whole_tensors_out() -> None:
    run = golden_run(row(**{"optimizer": "muon", "use-distributed-optimizer": True, "no-use-layer-wise-param-layout": True}))
    assert run.software["layer_wise_optimizer"] == "last"
    assert "use_distributed_optimizer" not in run.sections["plan"]
