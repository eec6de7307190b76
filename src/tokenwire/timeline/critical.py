"""The critical path of a step: the actions and transfers of the pipeline that decide when it ends, and what they are spent on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenwire.timeline.simulation import Run


class Leg(NamedTuple):
    """One action on the path: its number in the run's graph, and the seconds of the transfer that it waited for."""

    action: int
    transfer: float


@dataclass(frozen=True)
class Path:
    """Seconds on the critical path of the whole pipeline, by (rank, kind, position of the virtual stage), and in transfers."""

    actions: dict[tuple[int, str, int], float] = field(default_factory=dict)
    transfers: float = 0.0

    def by_rank(self) -> dict[int, float]:
        """Return the seconds by rank."""
        out: dict[int, float] = defaultdict(float)
        for (rank, _, _), seconds in self.actions.items():
            out[rank] += seconds
        return dict(out)


def legs(run: Run) -> tuple[Leg, ...]:
    """Return the path through the micro-batches that were run one by one, first to last.

    Walks back from the last action to what it waited for: of several that came at the same time, the one before it on its rank.

    >>> from tokenwire.timeline.simulation import pipeline
    >>> two = pipeline("1f1b", 2, 1, 1, [{("F", 0): 1.0, ("B", 0): 2.0}] * 2, send=0.5)
    >>> [(str(two.graph.actions[leg.action]), leg.transfer) for leg in legs(two)]
    [('0F0', 0.0), ('1F0', 0.5), ('1B0', 0.0), ('0B0', 0.5)]
    """
    x: int | None = max(range(len(run.ended)), key=run.ended.__getitem__)
    out: list[Leg] = []
    while x is not None:
        y = _waited_for(run, x)
        out.append(Leg(x, max(0.0, run.started[x] - run.ended[y]) if y is not None else 0.0))
        x = y
    return tuple(reversed(out))


def _waited_for(run: Run, x: int) -> int | None:
    """Return what an action waited for longest: of equals what came before it on its rank."""
    graph = run.graph
    rank = graph.rank[x]
    came: list[tuple[float, bool, int]] = []
    if x > graph.first[rank]:
        held = run.send if run.blocking and graph.sends[x - 1] else 0.0
        came.append((run.ended[x - 1] + held, True, x - 1))
    came += [(run.ended[y] + run.send, False, y) for y in (graph.one[x], graph.two[x]) if y >= 0 and graph.rank[y] != rank]
    close = [one for one in came if one[0] >= run.started[x] * (1 - 1e-12)]
    return max(close, key=lambda one: one[1])[2] if close else None


def critical_path(run: Run) -> Path:
    """Return what lies on the path of the whole pipeline; micro-batches that were not run take their share of one period's path."""
    actions: dict[tuple[int, str, int], float] = defaultdict(float)
    found = legs(run)
    transfers = sum(leg.transfer for leg in found)
    for leg in found:
        actions[_key(run, leg.action)] += run.ended[leg.action] - run.started[leg.action]
    if run.left_out:
        # The path has no gaps: between two moments it lasts as long as they lie apart.
        end = max(run.ended) / 2
        window = min(run.pace * run.shown / 4, end)
        times = run.left_out * run.pace / window
        for leg in found:
            start, stop = run.started[leg.action], run.ended[leg.action]
            actions[_key(run, leg.action)] += times * max(0.0, min(stop, end) - max(start, end - window))
            transfers += times * max(0.0, min(start, end) - max(start - leg.transfer, end - window))
    return Path(dict(actions), transfers)


def _key(run: Run, x: int) -> tuple[int, str, int]:
    kind, place = run.graph.cost[x]
    return run.graph.rank[x], kind, place
