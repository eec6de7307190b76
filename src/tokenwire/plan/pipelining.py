"""Which pipeline schedule a plan runs, by the name that ``step.schedules`` has for it: what every framework's section answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ScheduleName = Literal["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zbv", "dualpipe", "dualpipev"]


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule and the micro-batches that pass a virtual stage before the next one runs (``group``; None: as many as ranks)."""

    name: ScheduleName
    group: int | None = None
