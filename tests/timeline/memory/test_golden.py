"""Golden runs of Megatron: the errors that docs/validation-memory.md tells hold."""

from __future__ import annotations

import statistics
from functools import cache
from pathlib import Path

import pytest

from tests.timeline.memory.test_measured import predicted
from tokenwire.formats.megatron_runs import WORLDS, golden_runs

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "data" / "validation" / "megatron_golden_runs.jsonl"
pytestmark = [pytest.mark.skipif(not GOLDEN.exists(), reason="the measured runs are not here"), pytest.mark.slow]


MAIN = ("GPT", "MoE", "MLA")
"""Kinds that the median is held for; BERT, T5 and hybrids are said as decoders with something beside them."""


@cache
def errors(kinds: tuple[str, ...] = ("",)) -> tuple[list[float], list[float]]:
    allocated, peaks = [], []
    for run in golden_runs(GOLDEN):
        if not run.represented or not run.kind.startswith(kinds):
            continue
        last = predicted(run).stages[-1]
        if not any(run.case.startswith(case) for case, _ in WORLDS):
            allocated.append(abs(last.between / run.measured["allocated_bytes"] - 1))
        if "peak_bytes" in run.measured:
            peaks.append(abs(last.peak / run.measured["peak_bytes"] - 1))
    return allocated, peaks


def within(values: list[float], limit: float) -> float:
    return sum(value <= limit for value in values) / len(values)


def test_what_is_allocated() -> None:
    allocated, _ = errors(MAIN)
    assert statistics.median(allocated) <= 0.003
    assert within(allocated, 0.05) >= 0.99


def test_the_peak() -> None:
    _, peaks = errors(MAIN)
    assert statistics.median(peaks) <= 0.0035
    assert within(peaks, 0.05) >= 0.97


def test_all_kinds_are_near() -> None:
    allocated, peaks = errors()
    assert len(peaks) >= 510
    assert within(allocated, 0.05) >= 0.99
    assert within(peaks, 0.05) >= 0.96
