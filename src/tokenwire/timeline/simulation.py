"""The pipeline in time: each rank does its actions in order, each as soon as what it waits for has come.

    start(x) = max(end of the action before on the rank, end(y) + send for each y that x waits for; send = 0 on the same rank)
    end(x) = start(x) + duration(x)

Where a send blocks (Megatron's 1F1B waits for its own sends), the rank is free ``send`` later. Long steps are not run whole: see
``steady``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenwire.timeline.order import Order, order
from tokenwire.timeline.steady import enough, growth

Durations = Sequence[Mapping[tuple[str, int], float]]
"""By rank: seconds of (kind F, B, I or W; position of the virtual stage on the rank)."""


@dataclass(frozen=True)
class Run:
    """A simulated step: when each rank ends and how long it is busy, in seconds; ``ended`` by action of ``graph``.

    Transfers take ``send`` seconds, and hold the sender where ``blocking``. ``graph`` has the ``shown`` micro-batches that were run one by one; ``left_out`` more repeat what is between them, and each takes
    ``pace`` seconds.
    """

    ends: tuple[float, ...]
    busy: tuple[float, ...]
    graph: Order
    started: tuple[float, ...]
    ended: tuple[float, ...]
    shown: int
    left_out: int = 0
    pace: float = 0.0
    send: float = 0.0
    blocking: bool = False

    @property
    def makespan(self) -> float:
        """Return the seconds until the last rank ends."""
        return max(self.ends)

    def of_rank(self, rank: int) -> range:
        """Return the numbers of a rank's actions, in order."""
        return range(self.graph.first[rank], self.graph.first[rank + 1])


def pipeline(
    name: str, ranks: int, micro_batches: int, chunks: int, durations: Durations, send: float = 0.0, group: int | None = None,
    *, blocking: bool = False, whole: bool = False,
) -> Run:  # fmt: skip
    """Return the run of a schedule with these durations; ``whole``: every micro-batch is run. Raises ``InputError`` for what cannot be.

    >>> equal = [{("F", 0): 1.0, ("B", 0): 2.0}] * 4
    >>> pipeline("1f1b", 4, 1000, 1, equal).makespan                  # (m + p - 1)·(F + B)
    3009.0
    """
    for fewer in () if whole else enough(name, ranks, micro_batches, group):
        run = play(order(name, ranks, fewer, chunks, group), durations, send, fewer, blocking=blocking)
        pace = growth(run.graph, run.started, name, ranks, group)
        if pace is not None:
            more = micro_batches - fewer
            ends = tuple(end + more * pace for end in run.ends)
            busy = tuple(spent * micro_batches / fewer for spent in run.busy)
            return Run(ends, busy, run.graph, run.started, run.ended, fewer, more, pace, send, blocking)
    return play(order(name, ranks, micro_batches, chunks, group), durations, send, micro_batches, blocking=blocking)


def play(
    graph: Order, durations: Durations, send: float, micro_batches: int, *, blocking: bool = False,
    noise: Sequence[float] | None = None,
) -> Run:  # fmt: skip
    """Return the run of every action of a graph; ``noise`` is a factor by action on its duration."""
    n = len(graph.actions)
    lasts = [durations[r][cost] for r, cost in graph.costs]
    spent = [lasts[i] for i in graph.which]
    if noise is not None:
        spent = [seconds * factor for seconds, factor in zip(spent, noise, strict=True)]
    held = send if blocking else 0.0
    free, started = [0.0] * graph.ranks, [0.0] * n
    ended = [0.0] * n + [-math.inf]  # number -1: nothing to wait for
    for x, r, y, sends in zip(*graph.steps, strict=True):
        start, come = free[r], ended[y] + send
        if come > start:  # max() takes three times as long
            start = come
        started[x] = start
        ended[x] = end = start + spent[x]
        free[r] = end + held if sends else end
    first = graph.first
    busy = tuple(sum(spent[first[r] : first[r + 1]]) for r in range(graph.ranks))
    return Run(tuple(free), busy, graph, tuple(started), tuple(ended[:-1]), micro_batches, send=send, blocking=blocking)
