"""Dry runs: the real framework in one process that takes the place of one rank; see ``record`` for how.

``check(arch, plan, rank)`` puts the recording beside the prediction; ``function.run_function`` records a function of the
user's own. A framework's module offers ``record(arch, plan, rank) -> table`` and is imported when its dialect is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tokenwire.errors import InputError, unknown

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

__all__ = ["FRAMEWORKS", "check", "default_ranks", "recorded"]

FRAMEWORKS: dict[str, str] = {
    "megatron": "tokenwire.measure.dryrun.megatron",
    "torchtitan": "tokenwire.measure.dryrun.torchtitan",
    "ddp": "tokenwire.measure.dryrun.ddp",
    "deepspeed": "tokenwire.measure.dryrun.deepspeed",
}
"""The module that runs the framework of each dialect."""

OUTSIDE: dict[str, tuple[str, ...]] = {
    "megatron": ("Megatron-LM", "TransformerEngine"),
    # All of DeepSpeed's rows are run; what its launcher and engine say once, before any step, is not predicted.
    "deepspeed": ("DeepSpeed launcher",),
}
"""Sources of rows that a dry run does not run: Megatron-Core is a library, its training script and attention kernels are not.

With a name here, calls that are made once, before any step, are shown but not compared.
"""


def recorded(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return what the plan's framework, really run as ``rank``, calls for in one step.

    Columns: at least ``op, group, group_size, phase, count, elements, dtype, bytes``. Raises ``InputError`` for a rank that the
    plan has not, or what the dry run cannot build; ``MissingExtra`` without the framework.
    """
    if not 0 <= rank < plan.world:
        raise InputError(f"rank = {rank}", rule=f"the plan has ranks 0 to {plan.world - 1:,}",
                         nearest=str(min(max(rank, 0), plan.world - 1)))  # fmt: skip
    dialect = plan.config.dialect
    if dialect not in FRAMEWORKS:
        raise unknown("dry run of a dialect", dialect, FRAMEWORKS)
    calls: pl.DataFrame = import_module(FRAMEWORKS[dialect]).record(arch, plan, rank)
    return calls


def check(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return predicted and recorded calls of a rank side by side (``compare.compare``)."""
    from tokenwire.measure.dryrun.compare import compare
    from tokenwire.step import operations

    outside = OUTSIDE.get(plan.config.dialect, ())
    # The recording first: a process that polars has not given threads yet can be forked.
    calls = recorded(arch, plan, rank)
    return compare(operations(arch, plan), calls, plan, rank, outside)


def default_ranks(plan: Plan) -> list[int]:
    """Return the first rank of each pipeline stage.

    Ranks of a stage say the same, so one of each shows all there is.
    """
    return [plan.grid.rank_of(pp=stage.index) for stage in plan.stages]
