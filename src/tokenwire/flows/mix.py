"""Jobs that share a fabric in time: when each ends, and how much longer it takes than alone.

A job makes one step's communication: its kinds one after the other, as the step has them, the flows of a kind all at once, the next
kind when the last of them has ended. It begins at a time of its own. Nothing is computed in between: the jobs meet on the network all
the time. Links are shared max-min fairly among all flows of all jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenwire.errors import InputError
from tokenwire.fabric import Ways
from tokenwire.fabric.fabric import Fabric, Floats, Parts
from tokenwire.fabric.ways import expanded
from tokenwire.flows.contention import MOST_FLOWS, Flows, routed
from tokenwire.flows.jobs import Jobs
from tokenwire.flows.maxmin import simulate


@dataclass(frozen=True)
class Run:
    """One job: its kinds, and when each began and ended (s), alone from 0 and together from ``start``."""

    name: str
    start: float
    kinds: tuple[Flows, ...]
    alone: tuple[Floats, Floats]
    together: tuple[Floats, Floats]

    @property
    def alone_seconds(self) -> float:
        """Return how long the job takes with the fabric to itself."""
        return float(self.alone[1].max(initial=0.0))

    @property
    def seconds(self) -> float:
        """Return how long it takes among the others."""
        return float(self.together[1].max(initial=self.start)) - self.start

    @property
    def interference(self) -> float:
        """Return its time among the others over its time alone (1 for a job that sends nothing)."""
        return self.seconds / self.alone_seconds if self.alone_seconds else 1.0


def mixed(shared: Jobs, starts: Sequence[float], fabric: Fabric, only: Sequence[str] = ()) -> tuple[Run, ...]:
    """Return every job's run on ``fabric`` (the jobs' own, or that with failures). ``starts`` (s) are one a job.

    Raises ``InputError`` for more flows than are simulated.
    """
    found = [tuple(routed(one, fabric, only)) for one in shared.traffics]
    many = sum(kind.ways.size.size for kinds in found for kind in kinds)
    if many > MOST_FLOWS:
        raise InputError(f"{many:,} flows of {len(found)} jobs", rule=f"at most {MOST_FLOWS:,} are simulated", nearest="--only dp")
    together = _run(found, starts, fabric)
    return tuple(
        Run(name, start, kinds, _run([kinds], [0.0], fabric)[0], both)
        for name, start, kinds, both in zip(shared.names, starts, found, together, strict=True)
    )


def _run(jobs: Sequence[Sequence[Flows]], starts: Sequence[float], fabric: Fabric) -> list[tuple[Floats, Floats]]:
    """Return for each job when its kinds began and ended. After a kind stands a flow without links or bytes, which waits for it."""
    every = [(job, kind.ways) for job, kinds in enumerate(jobs) for kind in kinds]
    if not every:
        return [(np.zeros(0), np.zeros(0)) for _ in jobs]
    parts = [_parts(ways) for _, ways in every]
    many = np.array([ways.size.size for _, ways in every], dtype=np.int64)
    last = np.cumsum(many + 1) - 1
    first, none = last - many, np.zeros(1, dtype=np.int64)
    after = []
    for k, (job, _) in enumerate(every):
        own = np.arange(first[k], last[k])
        after.append(np.stack([own, np.full(own.size, last[k])], axis=1))
        if k and every[k - 1][0] == job:
            after.append(np.stack([np.full(own.size, last[k - 1]), own], axis=1))
    offsets = np.cumsum(np.concatenate([none, *(x for part in parts for x in (np.diff(part.offsets), none))]))
    shared = simulate(
        (offsets, np.concatenate([part.entries for part in parts])), np.concatenate([x for _, ways in every for x in (ways.size, none)]),
        fabric.rate, start=np.repeat([starts[job] for job, _ in every], many + 1), after=np.concatenate(after),
        latency=np.concatenate([x for _, ways in every for x in (ways.latency, none)]),
        use=np.concatenate([np.ones(part.entries.size) if part.use is None else part.use for part in parts]),
    )  # fmt: skip
    began, ended = np.minimum.reduceat(shared.began, first), shared.ended[last]
    of_job = np.array([job for job, _ in every])
    return [(began[of_job == job], ended[of_job == job]) for job in range(len(jobs))]


def _parts(ways: Ways) -> Parts:
    """Return what carries the strands as links: trunks of several jobs need not be the same."""
    return expanded(Parts(ways.offsets, ways.entries, ways.use, ways.trunks))
