"""Plan: who holds what.

In: ``PlanConfig`` (a class a framework: sizes and options by the framework's own names), ``TrainingConfig``, an
``Architecture`` and the number of GPUs. Out of ``resolve``: a ``Plan``, checked against every rule of the framework: the
rank grid, the process groups with their members, the pipeline stages with their layers. ``holdings`` lists which slice of
which tensor a rank holds, with the bytes of weights, gradients and optimizer state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.plan.base import PlanConfig
from tokenwire.plan.grid import Grid
from tokenwire.plan.plan import Plan, Stage, alike, read_plan, resolve
from tokenwire.plan.training import TrainingConfig

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.model.architecture import Architecture

__all__ = ["Grid", "Plan", "PlanConfig", "Stage", "TrainingConfig", "alike", "holdings", "read_plan", "resolve"]


def holdings(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return which slice of which tensor ``rank`` holds, with its bytes: see ``shards.holdings``."""
    # Needs polars and the list of tensors: heavier than a plan has to be.
    from tokenwire.plan import shards

    return shards.holdings(arch, plan, rank)
