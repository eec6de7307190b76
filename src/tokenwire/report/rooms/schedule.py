"""The pipeline of a plan by its schedule, in units of a forward: what each stage does when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenwire.step.schedules import schedule, timing
from tokenwire.step.schedules.timing import COST

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey

MOST_ACTIONS = 4_000
"""Actions that are drawn: of longer schedules the first micro-batches."""


def actions(journey: Journey) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the schedule (name, bubble, micro_batches, shown) and its actions: stage, action, chunk, micro_batch, start, end.

    Times are in forwards of a rank's layers; sending takes none here (``timeline`` has real times). Of a step with very many
    micro-batches only so many are run that the actions stay few.
    """
    import polars as pl

    plan = journey.plan()
    chunks = plan.vpp if plan.pp > 1 else 1
    name, group = plan.schedule.name, plan.schedule.group or plan.pp
    fit = max(2 * group, MOST_ACTIONS // (2 * plan.pp * chunks) // group * group)
    shown = plan.micro_batches if plan.micro_batches <= fit else fit + plan.micro_batches % group
    made = schedule(name, plan.pp, shown, chunks, group)
    timed = timing(made)
    share = len(made.ranks) / made.stages
    rows = [
        {"stage": rank, "action": action.kind, "chunk": action.stage // plan.pp, "micro_batch": action.micro_batch,
         "start": end - COST[action.kind] * share, "end": end}
        for rank, (done, ends) in enumerate(zip(made.ranks, timed.ends, strict=True)) for action, end in zip(done, ends, strict=True)
    ]  # fmt: skip
    about = {"name": name, "bubble": timed.bubble, "micro_batches": plan.micro_batches, "shown": shown, "in_flight": timed.in_flight, "makespan": timed.makespan}
    return about, pl.DataFrame(rows)
