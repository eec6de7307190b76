"""Plan: who holds what.

In: ``PlanConfig`` (a class a framework: sizes and options by the framework's own names), ``TrainingConfig``, an
``Architecture`` and the number of GPUs. Out of ``resolve``: a ``Plan``, checked against every rule of the framework: the
rank grid, the process groups with their members, the pipeline stages with their layers. ``holdings`` lists which slice of
which tensor a rank holds, with the bytes of weights, gradients and optimizer state.
"""

from tokenwire.plan.base import PlanConfig
from tokenwire.plan.grid import Grid
from tokenwire.plan.plan import Plan, Stage, read_plan, resolve
from tokenwire.plan.training import TrainingConfig

__all__ = ["Grid", "Plan", "PlanConfig", "Stage", "TrainingConfig", "holdings", "read_plan", "resolve"]


def __getattr__(name: str) -> object:
    # holdings needs polars and the list of tensors: heavier than a plan has to be.
    if name == "holdings":
        from tokenwire.plan.shards import holdings

        return holdings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
