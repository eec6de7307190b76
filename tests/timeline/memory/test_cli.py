"""The verb memory, as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tokenwire.cli import app

RUNNER = CliRunner()
SETS = ["--set", "model.preset=llama-3.1-8b", "--set", "plan.tp=4", "--set", "training.sequence_length=8192"]


def run(*args: str) -> str:
    result = RUNNER.invoke(app, ["memory", *args])
    assert result.exit_code == 0, result.output
    return result.output


def test_json_has_the_agreed_names() -> None:
    facts = json.loads(run(*SETS, "--json"))
    assert len(facts["peak_memory_bytes_by_stage"]) == 2
    assert facts["fits"] is True
    assert facts["over_bytes"] == 0
    for stage, peak in zip(facts["stages"], facts["peak_memory_bytes_by_stage"], strict=True):
        assert stage["peak_bytes"] == peak == sum(stage["by_kind"].values())
        assert peak == sum(part["bytes"] for part in stage["parts"] if stage["moment"] in part["moments"])


def test_it_is_readable_at_80_columns() -> None:
    text = run(*SETS)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "fits: " in text
    assert "GiB" in text


def test_what_does_not_fit_is_no_error_and_says_what_would() -> None:
    text = run(*SETS, "--set", "training.micro_batch=8", "--set", "training.global_batch=64", "--gpu", "A100")
    assert "does not fit: stage 0 needs" in text
    assert "the smallest change that fits" in text


def test_every_part_is_derived() -> None:
    text = run(*SETS, "--explain", "all")
    assert "4.1)" in text
    assert " = " in text
    assert "E'" not in text


def test_a_version_is_no_number() -> None:
    # torch 2.10 and 2.11 give Blackwell workspaces of 8.125 MiB, those from 2.12 on 32 MiB.
    small, large = (run("--gpu", "B200", "--option", f"torch={version}", "--explain", "workspaces") for version in ("2.10", "2.12"))
    assert "2·8,519,680" in small
    assert "2·33,554,432" in large


def test_table_and_picture_are_written(tmp_path: Path) -> None:
    run(*SETS, "--csv", str(tmp_path / "m.csv"), "--plot", str(tmp_path / "m.svg"))
    head, *rows = (tmp_path / "m.csv").read_text().splitlines()
    assert head.startswith("stage,kind,what,bytes,between,forward,loss,head,backward,optimizer,")
    assert len(rows) > 20
    assert (tmp_path / "m.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--gpu", "Voodoo 2"], "known are"),
        (["--option", "hidden_dropot=0.1"], "hidden_dropout"),
        (["--option", "nothing"], "KEY=VALUE"),
        (["--option", "hidden_dropout=1.5"], "less than 1"),
        (["--explain", "acts"], "activations"),
        (["--reserve", "105%"], "share"),
        (["--plot", "x.pdf"], ".svg"),
    ],
)
def test_what_is_wrong_is_one_line(args: list[str], words: str) -> None:
    result = RUNNER.invoke(app, ["memory", *args])
    assert result.exit_code == 1
    assert words in str(result.exception)


def test_a_gpu_that_is_not_known_lists_the_known_and_what_to_give() -> None:
    result = RUNNER.invoke(app, ["memory", "--gpu", "RTX 9999"])
    assert result.exit_code == 1
    assert all(words in str(result.exception) for words in ("a100 (80 GiB)", "gpu_memory=48GiB", "gpu_capability=8"))
    given = run("--gpu", "RTX 9999", "--option", "gpu_memory=48GiB", "--option", "gpu_capability=8")
    assert "of the 48.00 GiB of a RTX 9999" in given


def test_memory_of_another_size_is_believed() -> None:
    assert "of the 94.00 GiB of a H100" in run("--gpu", "H100", "--option", "gpu_memory=94GiB")


def test_a_gpu_that_the_cluster_tells_of_has_its_memory() -> None:
    said = [x for text in ("cluster.gpu=X900", "cluster.peak_flops=1500 TFLOP/s", "cluster.gpu_memory=120GiB") for x in ("--set", text)]
    assert "of the 120.00 GiB of a X900" in run(*said)
    assert "of the 94.00 GiB of a X900" in run(*said, "--option", "gpu_memory=94GiB")
    # What is said of one GPU is not said of another.
    assert "of the 80.00 GiB of a H100" in run(*said, "--gpu", "H100")


def test_no_reserve_is_a_reserve() -> None:
    assert "of the 80.00 GiB that can be used" in run("--reserve", "0%")


@pytest.mark.parametrize(("text", "size"), [("31.74GiB", 34_080_565_493), ("31.74 GiB", 34_080_565_493), ("34080565493", 34_080_565_493)])
def test_memory_is_read_as_torch_prints_it(text: str, size: int) -> None:
    # 31.74·2^30 = 34,080,565,493.76, rounded down to a whole byte.
    facts = json.loads(run("--option", f"gpu_memory={text}", "--json"))
    assert facts["gpu_memory_bytes"] == size
    # No GPU was given beside its memory, so none is named.
    assert facts["gpu"] is None
    assert json.loads(run("--set", f"cluster.gpu_memory={text}", "--json"))["gpu_memory_bytes"] == size


def test_no_gpu_is_named_that_was_not_given() -> None:
    text = run("--option", "gpu_memory=31.74GiB")
    assert "of the 31.74 GiB given" in text
    assert "H100" not in text
    assert "compute capability 9" in " ".join(text.split())
    assert "compute capability" not in run("--option", "gpu_memory=31.74GiB", "--option", "gpu_capability=7")
