"""The verb ``time``: its table, its JSON, its trace, and what it refuses."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tokenwire.cli import app
from tokenwire.errors import InputError

RUN = CliRunner()


def ran(*words: str) -> str:
    found = RUN.invoke(app, ["time", *words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_json_has_the_agreed_names() -> None:
    out = json.loads(ran("--json"))
    names = {"peak_memory_bytes_by_stage", "step_seconds", "compute_seconds", "exposed_communication_seconds", "bubble_seconds", "mfu", "tflops_per_gpu",
             "tokens_per_second"}  # fmt: skip
    assert names <= set(out)
    parts = out["compute_seconds"] + out["exposed_communication_seconds"] + out["bubble_seconds"]
    assert parts == pytest.approx(out["step_seconds"])


def test_the_table_is_readable_at_80_columns() -> None:
    out = ran()
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "F forward, B backward" in out


def test_a_trace_has_every_micro_batch(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    ran("--trace", str(file), "--json")
    events = json.loads(file.read_text())["traceEvents"]
    # 2 stages, 4 micro-batches, forward and backward of each
    assert sum(e["ph"] == "X" and e["cat"] in ("forward", "backward") for e in events) == 2 * 4 * 2
    assert all(e["dur"] > 0 for e in events if e["ph"] == "X")


def test_a_trace_is_what_perfetto_reads(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    ran("--trace", str(file), "--set", "training.global_batch=64", "--json")
    data = json.loads(file.read_text())
    assert data["displayTimeUnit"] == "ms"
    events = data["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}
    # On a thread one thing at a time; a stage is a process.
    for pid in (0, 1):
        for tid in (0, 1):
            spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid))
            assert spans
            assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans))
    # Every transfer begins where it is sent and ends, later, on the other stage: 16 activations, 16 gradients.
    begins, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in ("s", "f"))
    assert len(begins) == 32
    assert begins.keys() == ends.keys()
    assert all(begins[i]["ts"] <= ends[i]["ts"] and begins[i]["pid"] != ends[i]["pid"] for i in begins)


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_a_picture_has_a_bar_an_action(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"step.{ending}"
    ran("--plot", str(file), "--json")
    drawn = file.read_text()
    # 2 stages, 4 micro-batches, forward and backward
    assert drawn.count("<title>forward of") == drawn.count("<title>backward of") == 8
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_the_wire_as_table_json_and_csv(tmp_path: Path) -> None:
    file = tmp_path / "bursts.csv"
    assert "messages/s" in ran("--wire")
    ran("--wire", "--csv", str(file))
    out = json.loads(ran("--wire", "--json"))["wire"]
    assert sum(len(stage["bursts"]) for stage in out) == len(file.read_text().splitlines()) - 1
    for stage in out:
        assert sum(stage["bytes_by_interval"]) == pytest.approx(stage["bytes"])


def test_csv_has_a_row_a_stage(tmp_path: Path) -> None:
    file = tmp_path / "stages.csv"
    ran("--csv", str(file))
    assert len(file.read_text().splitlines()) == 3


@pytest.mark.parametrize("words", [("--slow", "3"), ("--slow", "x=10%"), ("--slow", "0=10000%"), ("--slow", "0=-5%"), ("--slow", "99999=10%"),
                                   ("--attention", "magic")])  # fmt: skip
def test_wrong_input_is_one_line(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        RUN.invoke(app, ["time", *words], catch_exceptions=False)


def test_a_rank_twice_as_slow_is_slower_by_100_percent() -> None:
    plain, twice, more = (
        json.loads(ran("--json", *words))["stages"][0]["compute_seconds"] for words in ((), ("--slow", "0=100%"), ("--slow", "0=250%"))
    )
    # All of a stage waits for its slowest rank: 2 and 3.5 times as long
    assert twice == pytest.approx(2 * plain)
    assert more == pytest.approx(3.5 * plain)
