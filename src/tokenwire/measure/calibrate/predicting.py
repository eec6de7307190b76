"""Seconds that a rank communicates in a step: each call as long as it took by itself.

Calls follow one another, as those of one rank do where torch waits for each or its threads share the link. Waiting for a rank
that is late is not in it, nor pipelines, whose sends wait for what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.measure.calibrate.calibration import Calibration
from tokenwire.measure.training.modes import Mode
from tokenwire.measure.training.tensor import sums
from tokenwire.measure.training.zero import FP32, broadcasts

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

Spoken = tuple[str, int, int, int]
"""A call: op, ranks, bytes of the full tensor, how often."""


def communication_seconds(table: pl.DataFrame, arch: Architecture, plan: Plan, mode: Mode, calibration: Calibration) -> float:
    """Return the seconds of a step's calls on one rank. Raises ``InputError`` for a pipeline and for what was not measured."""
    if plan.pp > 1:
        raise InputError(f"pp = {plan.pp}", where="[plan]", rule="a pipeline's sends wait for its stages: their time is not predicted",
                         nearest="pp = 1")  # fmt: skip
    return sum(count * calibration.seconds(op, n, size) for op, n, size, count in _spoken(table, arch, plan, mode))


def _spoken(table: pl.DataFrame, arch: Architecture, plan: Plan, mode: Mode) -> Iterable[Spoken]:
    if mode.predicted == "tensor":
        yield from (("all_reduce", plan.world, elements * FP32, count) for elements, count in sums(arch, plan))
        return
    for row in table.iter_rows(named=True):
        if row["phase"] != "setup" and row["group_size"] > 1:
            yield row["op"], row["group_size"], row["bytes"], row["count"]
    if mode.predicted == "table+zero":
        yield from (("broadcast", plan.world, size, count) for _, size, count in broadcasts(arch, plan.world))
