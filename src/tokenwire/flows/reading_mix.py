"""Jobs that share a fabric in time, as facts and as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tokenwire.fabric import without
from tokenwire.flows.jobs import Jobs
from tokenwire.flows.mix import Run, mixed
from tokenwire.flows.reading import Table
from tokenwire.flows.times import times_of
from tokenwire.units import format_seconds

if TYPE_CHECKING:
    import polars as pl


def mix(shared: Jobs, given: Sequence[str], failed: Sequence[str], only: Sequence[str]) -> tuple[Run, ...]:
    """Return the runs of the jobs; ``given`` has starts as users write them (``1=5 ms``), ``failed`` what is taken away."""
    starts = times_of(given, len(shared.names), "--start", "jobs")
    fabric = without(shared.fabric, failed) if failed else shared.fabric
    return mixed(shared, [starts.get(job, 0.0) for job in range(len(shared.names))], fabric, only)


def mix_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return each job's start, end, seconds alone and among the others, the ratio, and the same of its kinds."""
    return {
        "makespan_seconds": max((run.start + run.seconds for run in runs), default=0.0),
        "jobs": [
            {"name": run.name, "start_seconds": run.start, "end_seconds": run.start + run.seconds, "alone_seconds": run.alone_seconds,
             "seconds": run.seconds, "interference": run.interference, "kinds": list(_kinds(run))}
            for run in runs
        ],
    }  # fmt: skip


def mix_table(runs: Sequence[Run]) -> pl.DataFrame:
    """Return a row a job and kind: job, op, group, phase, start_seconds, seconds, alone_seconds, interference."""
    import polars as pl

    schema = {**dict.fromkeys(("job", "op", "group", "phase"), pl.String),
              **dict.fromkeys(("start_seconds", "seconds", "alone_seconds", "interference"), pl.Float64)}  # fmt: skip
    return pl.DataFrame([{"job": run.name, **kind} for run in runs for kind in _kinds(run)], schema=schema)


def _kinds(run: Run) -> Iterator[dict[str, Any]]:
    for kind, began, ended, first, last in zip(run.kinds, *run.together, *run.alone, strict=True):
        alone, seconds = float(last - first), float(ended - began)
        yield {"op": kind.op, "group": kind.group, "phase": kind.phase, "start_seconds": float(began), "seconds": seconds,
               "alone_seconds": alone, "interference": seconds / alone if alone else 1.0}  # fmt: skip


def mix_tables(runs: Sequence[Run], where: str) -> Iterator[Table]:
    """Yield the jobs, and their kinds."""
    rows = [
        (run.name, format_seconds(run.start), format_seconds(run.alone_seconds), format_seconds(run.seconds), f"× {run.interference:.2f}",
         format_seconds(run.start + run.seconds))
        for run in runs
    ]  # fmt: skip
    columns = ["job", "starts", "alone", "together", "slower", "ends"]
    yield f"{len(runs)} jobs on {where}, one step's communication each", columns, columns[1:], rows
    lines = []
    for run in runs:
        for i, kind in enumerate(_kinds(run)):
            lines.append((run.name if i == 0 else "", f"{kind['op']} {kind['group']}", kind["phase"], format_seconds(kind["start_seconds"]),
                          format_seconds(kind["alone_seconds"]), format_seconds(kind["seconds"]), f"× {kind['interference']:.2f}"))  # fmt: skip
    columns = ["job", "kind", "phase", "begins", "alone", "together", "slower"]
    yield "Their kinds, one after the other", columns, columns[3:], lines
