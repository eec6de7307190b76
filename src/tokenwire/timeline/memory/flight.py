"""Micro-batches in flight: how many forwards of each virtual stage a rank holds while their backward is not done.

Read off the rank's own order of actions (``step.schedules``). The order repeats once the pipeline is full, so only its
first rounds are walked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tokenwire.plan import Plan
from tokenwire.step.schedules import schedule

FORWARDS_FIRST = ("gpipe", "looped-bfs")
"""Schedules that run every forward of a step before the first backward."""


@dataclass(frozen=True)
class InFlight:
    """Micro-batches that a pipeline rank holds of each of its chunks: ``most`` of all times, ``at_head`` as its last chunk went forward."""

    most: tuple[int, ...]
    at_head: tuple[int, ...]


def in_flight(plan: Plan, rank: int, weights: Sequence[float]) -> InFlight:
    """Return how many micro-batches a pipeline rank holds when it holds the most bytes.

    ``weights`` is what one micro-batch of each chunk weighs (bytes). With one rank, one micro-batch is in flight.

    >>> from tokenwire.plan import read_plan, TrainingConfig, resolve
    >>> from tokenwire.model import preset
    >>> arch = preset("gpt2", 50257)
    >>> plan = resolve(read_plan({"pp": 4}), TrainingConfig(global_batch=16, micro_batch=1), arch, 4)
    >>> [in_flight(plan, rank, [1.0]).most for rank in range(4)]
    [(4,), (3,), (2,), (1,)]
    """
    if plan.pp == 1:
        once = tuple(1 for _ in weights)
        return InFlight(once, once)
    if plan.schedule.name in FORWARDS_FIRST:
        every = tuple(plan.micro_batches for _ in weights)
        return InFlight(every, every)
    group = plan.schedule.group or plan.pp
    states = _held(plan.schedule.name, plan.pp, _enough(plan.micro_batches, plan.pp, group), plan.vpp, group, rank)

    def heaviest(chunks: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
        return max((held for _, held in chunks), key=lambda held: sum(n * w for n, w in zip(held, weights, strict=False)))

    last = len(weights) - 1
    return InFlight(heaviest(states), heaviest([state for state in states if state[0] == last] or states))


def _enough(micro_batches: int, ranks: int, group: int) -> int:
    # Once 3 groups are through, the order of a rank only repeats.
    most = 3 * max(ranks, group)
    return micro_batches if micro_batches <= most else most + micro_batches % group


@lru_cache(maxsize=512)
def _held(name: str, ranks: int, micro_batches: int, chunks: int, group: int, rank: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    # Each forward's chunk, and what is held of each chunk after it.
    order = schedule(name, ranks, micro_batches, chunks if chunks > 1 else None, group).ranks[rank]
    places: dict[tuple[int, int], int] = {}
    for action in order:
        places.setdefault((action.stage, action.direction), len(places))
    now: Counter[int] = Counter()
    seen = set()
    for action in order:
        chunk = places[action.stage, action.direction]
        now[chunk] += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        if action.kind == "F":
            seen.add((chunk, tuple(now[i] for i in range(len(places)))))
    return tuple(seen)
