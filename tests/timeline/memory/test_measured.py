"""Peaks and what stands between steps, against measured runs; the rows that are left out here are tried in docs/validate_memory.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tokenwire.formats.megatron_runs import b200_runs
from tokenwire.formats.runs import Run
from tokenwire.model import architecture
from tokenwire.model.config import ModelConfig
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Memory, Software, memory

B200 = Path(__file__).resolve().parents[4] / "shared" / "data" / "validation" / "b200_megatron_runs.csv"


def predicted(run: Run) -> Memory:
    sections = run.sections
    arch = architecture(ModelConfig.model_validate(sections["model"]))
    plan = resolve(read_plan(sections["plan"]), TrainingConfig.model_validate(sections["training"]), arch, sections["cluster"]["gpus"])
    return memory(arch, plan, Software.model_validate(run.software))


@cache
def runs() -> tuple[Run, ...]:
    return b200_runs(B200)


@pytest.mark.skipif(not B200.exists(), reason="the measured runs are not here")
def test_peak_of_every_run_on_b200_is_within_a_tenth_of_a_percent() -> None:
    errors = {run.case: predicted(run).worst.peak / run.measured["peak_bytes"] - 1 for run in runs()}
    assert len(errors) == 29
    assert max(map(abs, errors.values())) < 1e-3, errors
    peers = [abs(run.measured["peer_peak_bytes"] / run.measured["peak_bytes"] - 1) for run in runs()]
    assert sum(map(abs, errors.values())) < sum(peers) / 10
