"""What every rank is told, and which tokens it trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.measure.training.task import Task
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan

Ids = npt.NDArray[np.int64]
STARTING = 2
"""Steps that are not like the others: torch makes groups, buckets and optimizer states in them."""


@dataclass(frozen=True, kw_only=True)
class Job(Task):
    """A run: ``ids`` int64[tokens] of the text; ``zero`` and ``sequence_parallel`` as in ``modes``; ``timed``: calls are timed, too."""

    module = "tokenwire.measure.training.rank"
    arch: Architecture
    plan: Plan
    ids: Ids
    steps: int
    zero: bool = False
    sequence_parallel: bool = True
    learning_rate: float = 3e-3
    seed: int = 1
    timed: bool = False
    fails: tuple[int, int] | None = None

    def batch(self, step: int, rank: int) -> tuple[Ids, Ids]:
        """Return inputs and labels of a rank in a step, each int64[micro_batches·micro_batch, s], as they lie in the text."""
        t, plan = self.plan.training, self.plan
        rows = plan.micro_batches * t.micro_batch
        replica = data_parallel_index(plan, rank)
        s = t.sequence_length
        first = (step * t.global_batch + replica * rows) * s
        at = (first + np.arange(rows)[:, None] * s + np.arange(s)[None, :]) % (len(self.ids) - s - 1)
        return self.ids[at], self.ids[at + 1]


def data_parallel_index(plan: Plan, rank: int) -> int:
    """Return which of the data-parallel ranks a rank is."""
    place, index = plan.grid.coordinates(rank), 0
    for axis in ("dp_replicate", "dp_shard", "dp"):
        index = index * plan.grid.size(axis) + place.get(axis, 0)
    return index


def require_tokens(ids: Any, plan: Plan) -> None:
    """Raise ``InputError`` where the text is shorter than one sequence."""
    s = plan.training.sequence_length
    if len(ids) < s + 2:
        raise InputError(f"sequence_length = {s:,}", where="[training]", rule=f"the text has only {len(ids):,} tokens",
                         nearest=str(max(1, len(ids) - 2)))  # fmt: skip
