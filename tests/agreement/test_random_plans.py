"""Plans drawn at random, run by the frameworks themselves: the same in every run, more of them with ``python -m tests.agreement``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .document import changed
from .running import Job, Outcome, missing, run
from .shrinking import smaller

SEED, COUNT = 2026, 10
FRAMEWORKS = ("megatron", "torchtitan", "ddp", "deepspeed")
"""Each of ten plans, the same in every run."""


@pytest.mark.torch
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_random_plans_agree(framework: str, tmp_path: Path, root: Path) -> None:
    if package := missing(framework):
        pytest.skip(f"{package} is not installed")
    # A process of its own: plans are run in forked children of a process that has started no threads.
    file = tmp_path / "plans.jsonl"
    asked = [
        "--seed",
        str(SEED),
        "--count",
        str(COUNT),
        "--processes",
        "2",
        "--no-shrink",
        "--save",
        str(file),
    ]
    ended = subprocess.run([sys.executable, "-m", "tests.agreement", framework, *asked], cwd=root, capture_output=True, text=True,
                           check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    kinds = [json.loads(line)["kind"] for line in file.read_text("utf-8").splitlines()]
    assert len(kinds) == COUNT
    assert kinds.count("equal") >= COUNT // 2  # most of what is drawn is run


def test_a_smaller_plan_says_less() -> None:
    document = {
        "model": {"layers": 4}, "training": {"global_batch": 8}, "plan": {"dialect": "megatron", "tp": 2, "overlap_grad_reduce": True},
        "cluster": {"gpus": 8},
    }  # fmt: skip
    found = list(smaller(document))
    assert changed(document, plan={"overlap_grad_reduce": None}) in found
    assert changed(document, plan={"tp": None}, cluster={"gpus": 4}) in found
    assert changed(document, model={"layers": 2}) in found
    assert document not in found
    assert all(plan["plan"]["dialect"] == "megatron" for plan in found)


def test_faults_are_alike_by_what_differs() -> None:
    row = {"op": "all_reduce", "group": "tp", "phase": "forward", "elements": 8}
    one, other = Outcome("different", rows=(row,)), Outcome("different", rows=({**row, "elements": 16},))
    assert one.fault == other.fault
    assert not one.fault & Outcome("different", rows=({**row, "phase": "backward"},)).fault
    assert (
        Outcome("failed", message="ValueError: a (b.py:c)").fault
        != Outcome("failed", message="TypeError: a (b.py:c)").fault
    )


def test_a_process_that_dies_or_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from . import running

    monkeypatch.setattr(running, "_prepare", lambda name: None)
    for body, message in (
        (lambda job: os._exit(3), "status 3"),
        (lambda job: time.sleep(60), "more than 0.5 s"),
    ):
        monkeypatch.setattr(running, "outcome_of", body)
        ((_, outcome),) = run("megatron", [Job("x", {})], seconds=0.5)
        assert outcome.kind == "failed"
        assert message in outcome.message
