"""The pipeline in time: each rank does its actions in order, each as soon as what it waits for has come.

A forward waits for the stage before, a backward for its own forward and the stage after, a weight gradient for its input gradient;
what crosses ranks arrives ``send`` seconds later. Long steps are not run whole: once a pipeline is full it repeats itself, so that a
makespan grows by the same time for every p micro-batches (a max-plus linear system is periodic: Baccelli et al. 1992, Synchronization
and Linearity, chapter 3). Two periods that agree are proof enough here; else every micro-batch is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tokenwire.errors import InputError
from tokenwire.step.schedules import Action, Schedule, schedule

Durations = Sequence[Mapping[tuple[str, int], float]]
"""By rank: seconds of (kind F, B, I or W; position of the virtual stage on the rank)."""

REPEATS = ("1f1b", "interleaved-1f1b", "gpipe")
FILL = 3
"""Rounds of p micro-batches after which a period is looked for."""


@dataclass(frozen=True)
class Run:
    """A simulated step: ``makespan``, and by rank when it ends and how long it is busy, all in seconds.

    ``actions`` are (action, start, end) by rank, of the ``shown`` micro-batches that were run one by one.
    """

    makespan: float
    ends: tuple[float, ...]
    busy: tuple[float, ...]
    actions: tuple[tuple[tuple[Action, float, float], ...], ...]
    shown: int


def pipeline(
    name: str, ranks: int, micro_batches: int, chunks: int, durations: Durations, send: float = 0.0, group: int | None = None,
    *, whole: bool = False,
) -> Run:  # fmt: skip
    """Return the run of a schedule with these durations; ``whole``: every micro-batch is run. Raises ``InputError`` for what cannot be.

    >>> equal = [{("F", 0): 1.0, ("B", 0): 2.0}] * 4
    >>> pipeline("1f1b", 4, 1000, 1, equal).makespan                  # (m + p - 1)·(F + B)
    3009.0
    """
    period = group or ranks
    if not whole and name in REPEATS and micro_batches > (FILL + 3) * period and micro_batches % period == 0:
        first = FILL * period
        runs = [play(_schedule(name, ranks, first + i * period, chunks, group), durations, send) for i in range(3)]
        steps = [[b - a for a, b in zip(x.ends, y.ends, strict=True)] for x, y in pairwise(runs)]
        if all(abs(a - b) <= 1e-9 * max(abs(a), 1e-12) for a, b in zip(*steps, strict=True)):
            more = (micro_batches - first - 2 * period) / period
            ends = tuple(end + more * step for end, step in zip(runs[2].ends, steps[1], strict=True))
            busy = tuple(x * micro_batches / (first + 2 * period) for x in runs[2].busy)
            return Run(max(ends), ends, busy, runs[2].actions, first + 2 * period)
    return play(_schedule(name, ranks, micro_batches, chunks, group), durations, send)


@lru_cache(maxsize=32)
def _schedule(name: str, ranks: int, micro_batches: int, chunks: int, group: int | None) -> Schedule:
    if name == "interleaved-1f1b" and group:
        from tokenwire.step.schedules.one_forward_one_backward import interleaved

        return interleaved(ranks, micro_batches, chunks, group)
    return schedule(name, ranks, micro_batches, chunks)


def play(plan: Schedule, durations: Durations, send: float = 0.0) -> Run:
    """Return the run of every action of a schedule. Raises ``InputError`` if its ranks wait for each other for ever."""
    order = plan.ranks
    last, count = plan.stages - 1, len(order)
    chunk_of = [{stage: i for i, stage in enumerate(sorted({a.stage for a in actions}))} for actions in order]
    done: dict[tuple[str, int, int, int], tuple[float, int]] = {}
    at, free, busy = [0] * count, [0.0] * count, [0.0] * count
    out: list[list[tuple[Action, float, float]]] = [[] for _ in order]
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(order):
            position, now, costs, chunks = at[rank], free[rank], durations[rank], chunk_of[rank]
            while position < len(actions):
                action = actions[position]
                kind, stage, i, way = action
                ready = now
                if kind == "F":
                    if stage > 0:
                        before = done.get(("F", stage - 1, i, way))
                        if before is None:
                            break
                        ready = before[0] if before[1] == rank else before[0] + send
                elif kind != "W":
                    own = done.get(("F", stage, i, way))
                    if own is None:
                        break
                    ready = own[0]
                    if stage < last:
                        after = done.get(("B", stage + 1, i, way))
                        if after is None:
                            break
                        ready = max(ready, after[0] if after[1] == rank else after[0] + send)
                start = max(now, ready)
                spent = costs[kind, chunks[stage]]
                now = start + spent
                busy[rank] += spent
                # A backward for inputs alone is enough for the stage before.
                done["F" if kind == "F" else "B" if kind != "W" else "W", stage, i, way] = (now, rank)
                out[rank].append((action, start, now))
                position += 1
                moved = True
            at[rank], free[rank] = position, now
    if any(position < len(actions) for position, actions in zip(at, order, strict=True)):
        raise InputError(f"schedule {plan.name}", rule="its ranks wait for each other for ever")
    return Run(max(free), tuple(free), tuple(busy), tuple(map(tuple, out)), plan.micro_batches)


def critical_path(run: Run, send: float = 0.0) -> tuple[tuple[int, Action, float], ...]:
    """Return the actions that decide the end, first to last: (rank, action, seconds that it waited for a transfer before it).

    Walks back from the last action: what ended just when it began, on its rank or on another one (then ``send`` seconds earlier).

    >>> two = pipeline("1f1b", 2, 1, 1, [{("F", 0): 1.0, ("B", 0): 2.0}] * 2, send=0.5)
    >>> [(rank, str(action), sent) for rank, action, sent in critical_path(two, 0.5)]
    [(0, '0F0', 0.0), (1, '1F0', 0.5), (1, '1B0', 0.0), (0, '0B0', 0.5)]
    """
    ended: dict[float, list[tuple[int, int]]] = {}
    for rank, actions in enumerate(run.actions):
        for at, (_, _, end) in enumerate(actions):
            ended.setdefault(round(end, 12), []).append((rank, at))
    rank = max(range(len(run.actions)), key=lambda r: run.actions[r][-1][2])
    at, out = len(run.actions[rank]) - 1, []
    while True:
        action, start, _ = run.actions[rank][at]
        if at and abs(run.actions[rank][at - 1][2] - start) < 1e-12:
            out.append((rank, action, 0.0))
            at -= 1
            continue
        came = [place for place in ended.get(round(start - send, 12), []) if place[0] != rank]
        came = [p for p in came if abs(run.actions[p[0]][p[1]][0].stage - action.stage) == 1] or came
        out.append((rank, action, send if came else 0.0))
        if not came or start <= 0:
            return tuple(reversed(out))
        rank, at = came[0]
