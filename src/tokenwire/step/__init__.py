"""Step: what is said. One training step as a table of operations.

In: an ``Architecture`` and a checked ``Plan``. Out of ``calls_of``: an ``Operation`` a kind of call by one rank of a pipeline stage in
one optimizer step; out of ``operations`` the same as a polars frame (columns: ``operation.COLUMNS``). ``dialects/`` has one package a framework, which
offers ``operations(arch, plan) -> Iterable[Operation]``; ``schedules/`` the ordered actions of each pipeline rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from tokenwire.step.operation import COLUMNS, Operation
from tokenwire.step.transfer import Transfer

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

__all__ = ["COLUMNS", "Operation", "Transfer", "calls_of", "operations", "transfers_of"]


def calls_of(arch: Architecture, plan: Plan) -> tuple[Operation, ...]:
    """Return every communication of one optimizer step, an entry a kind of call by a rank of a stage.

    Raises ``InputError`` where the plan's dialect is not known.
    """
    from tokenwire.step.dialects import dialect
    from tokenwire.step.operation import spoken

    return spoken(dialect(plan.config.dialect)(arch, plan))


def transfers_of(arch: Architecture, plan: Plan, calls: Iterable[Operation]) -> tuple[Transfer, ...]:
    """Return what ranks copy between GPU and host in one optimizer step; ``calls`` is the step table. Empty without offload."""
    from tokenwire.step.dialects import OFFLOADING

    if not plan.config.offload().any or plan.config.dialect not in OFFLOADING:
        return ()
    found: Iterable[Transfer] = import_module(f"tokenwire.step.dialects.{plan.config.dialect}.offload").transfers(arch, plan, calls)
    return tuple(one for one in found if one.bytes)


def operations(arch: Architecture, plan: Plan) -> pl.DataFrame:
    """Return the step table: what ``calls_of`` says, a row each. Raises ``InputError`` as that does."""
    from tokenwire.step.operation import frame

    return frame(calls_of(arch, plan))
