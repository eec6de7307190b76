"""The verbs plan and step, as people and programs use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tokenwire", *arguments], capture_output=True, text=True, check=False)


def test_step_json_has_the_promised_names() -> None:
    facts = json.loads(_run("step", "--json").stdout)
    assert [stage["stage"] for stage in facts["stages"]] == [0, 1]
    promised = {"op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes"}
    assert all(promised <= set(op) for stage in facts["stages"] for op in stage["ops"])


def test_step_table_fits_80_columns() -> None:
    out = _run("step").stdout
    assert "reduce_scatter" in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_step_explains() -> None:
    out = _run("step", "--explain", "tp", "--stage", "0").stdout
    assert "b·s/c·h = 2·256/1·256 = 131,072 elements of bf16" in out
    assert "source: megatron-core" in out
    assert "dp" not in {line.split(" on ")[1].split()[0] for line in out.splitlines() if " on " in line and line[0].isdigit()}
    assert "why:" in _run("step", "--why", "0").stdout


def test_step_files(tmp_path: Path) -> None:
    assert _run("step", "--csv", str(tmp_path / "a.csv"), "--parquet", str(tmp_path / "a.parquet")).returncode == 0
    assert pl.read_csv(tmp_path / "a.csv").equals(pl.read_parquet(tmp_path / "a.parquet"))


def test_plan_says_who_holds_what() -> None:
    facts = json.loads(_run("plan", "--json").stdout)
    assert (facts["tp"], facts["dp"], facts["pp"], facts["world"]) == (2, 2, 2, 8)
    rank = json.loads(_run("plan", "--rank", "5", "--json").stdout)
    assert rank["groups"]["tp"] == [4, 5]
    assert rank["groups"]["dp"] == [5, 7]
    assert "Process groups" in _run("plan").stdout


def test_one_gpu_says_nothing() -> None:
    out = _run("step", "--set", "cluster.nodes=1", "--set", "cluster.gpus_per_node=1", "--set", "plan.tp=1", "--set", "plan.pp=1")
    assert "Nothing is said" in out.stdout


@pytest.mark.parametrize(
    "arguments",
    [("step", "--stage", "9"), ("step", "--why", "999"), ("step", "--explain", "xx"), ("plan", "--rank", "8"),
     ("step", "--set", "plan.tp=3"), ("plan", "--set", "plan.pp=99")],
)  # fmt: skip
def test_wrong_input_is_one_line(arguments: tuple[str, ...]) -> None:
    ran = _run(*arguments)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "nearest" in ran.stderr
