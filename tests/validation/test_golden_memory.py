"""Golden runs of Megatron: the errors that docs/validation-memory.md tells hold."""

from __future__ import annotations

import statistics
from functools import cache

import pytest

from validation.golden import golden_runs
from validation.memory import GOLDEN, Line, lines, of

pytestmark = pytest.mark.slow


MAIN = ("GPT", "MoE", "MLA")
"""Kinds that the median is held for; BERT, T5 and hybrids are said as decoders with something beside them."""


@cache
def rows() -> tuple[Line, ...]:
    return tuple(lines(golden_runs(GOLDEN)))


def errors(kinds: tuple[str, ...] = ("",)) -> tuple[list[float], list[float]]:
    some = [row for row in rows() if row.run.kind.startswith(kinds)]
    return of(some, "allocated"), of(some, "peak")


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
