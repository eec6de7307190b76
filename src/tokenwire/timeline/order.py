"""A schedule as a graph: which action waits for which, in an order in which every action comes after those that it waits for.

A forward waits for the forward of the stage before, a backward for its own forward and the backward of the stage after (one for
inputs is enough), a weight gradient for its input gradient; and each for the action before it on its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tokenwire.errors import InputError
from tokenwire.step.schedules import Action, Schedule, schedule


@dataclass(frozen=True)
class Order:
    """The actions of all ranks, numbered rank by rank; ``first[r]`` is the number of rank r's first action.

    For action x: ``before`` (on its rank), ``one`` and ``two`` (what it waits for beyond) are numbers, or -1; ``cost`` is (kind,
    position of its virtual stage on the rank). ``sorted`` are all numbers, each after those that it waits for.
    """

    actions: tuple[Action, ...]
    rank: tuple[int, ...]
    first: tuple[int, ...]
    one: tuple[int, ...]
    two: tuple[int, ...]
    cost: tuple[tuple[str, int], ...]
    sorted: tuple[int, ...]
    stages: int

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.first) - 1

    @cached_property
    def sends(self) -> tuple[bool, ...]:
        """Return by action whether its result goes to another stage."""
        last = self.stages - 1
        return tuple((kind == "F" and stage < last) or (kind in "BI" and stage > 0) for kind, stage, _, _ in self.actions)

    @cached_property
    def steps(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[bool, ...]]:
        """Return in the order of ``sorted``: actions, their ranks, the actions of other ranks that they wait for or -1, whether each ``sends``.

        What an action waits for on its own rank stands before it there, and has ended. It waits for one of another rank at most.
        """
        rank = self.rank
        far = [max(a if rank[a] != r else -1, b if rank[b] != r else -1) for a, b, r in zip(self.one, self.two, rank, strict=True)]
        order, sends = self.sorted, self.sends
        return order, tuple(rank[x] for x in order), tuple(far[x] for x in order), tuple(sends[x] for x in order)

    @cached_property
    def costs(self) -> tuple[tuple[int, tuple[str, int]], ...]:
        """Return the different (rank, cost) of all actions."""
        return tuple(dict.fromkeys(zip(self.rank, self.cost, strict=True)))

    @cached_property
    def which(self) -> tuple[int, ...]:
        """Return by action the place of its (rank, cost) in ``costs``."""
        place = {cost: i for i, cost in enumerate(self.costs)}
        return tuple(place[cost] for cost in zip(self.rank, self.cost, strict=True))


@lru_cache(maxsize=64)
def order(name: str, ranks: int, micro_batches: int, chunks: int, group: int | None = None) -> Order:
    """Return the graph of a named schedule; ``group`` is the number of micro-batches that interleaving takes at a time."""
    return order_of(schedule(name, ranks, micro_batches, chunks, group))


def order_of(plan: Schedule) -> Order:
    """Return the graph of a schedule. Raises ``InputError`` if its ranks wait for each other for ever."""
    actions = [action for row in plan.ranks for action in row]
    rank = [r for r, row in enumerate(plan.ranks) for _ in row]
    first = [0]
    for row in plan.ranks:
        first.append(first[-1] + len(row))
    # A backward for inputs stands for the whole one: what the stage before needs.
    number = {("B" if a.kind == "I" else a.kind, a.stage, a.micro_batch, a.direction): x for x, a in enumerate(actions)}
    last = plan.stages - 1
    one, two = [-1] * len(actions), [-1] * len(actions)
    for x, (kind, stage, i, way) in enumerate(actions):
        if kind == "F":
            one[x] = number["F", stage - 1, i, way] if stage else -1
        elif kind == "W":
            one[x] = number["B", stage, i, way]
        else:
            one[x] = number["F", stage, i, way]
            two[x] = number["B", stage + 1, i, way] if stage < last else -1
    places = [{stage: at for at, stage in enumerate(sorted({a.stage for a in row}))} for row in plan.ranks]
    cost = tuple((a.kind, places[r][a.stage]) for a, r in zip(actions, rank, strict=True))
    return Order(
        tuple(actions), tuple(rank), tuple(first), tuple(one), tuple(two), cost, _sorted(plan.name, first, one, two), plan.stages
    )  # fmt: skip


def _sorted(name: str, first: Sequence[int], one: Sequence[int], two: Sequence[int]) -> tuple[int, ...]:
    done, out = bytearray(first[-1] + 1), []
    done[-1] = 1  # number -1: nothing to wait for
    at, moved = list(first[:-1]), True
    while moved:
        moved = False
        for r, end in enumerate(first[1:]):
            x = at[r]
            while x < end and done[one[x]] and done[two[x]]:
                done[x] = 1
                out.append(x)
                x += 1
            moved, at[r] = moved or x > at[r], x
    if len(out) < first[-1]:
        raise InputError(f"schedule {name}", rule="its ranks wait for each other for ever")
    return tuple(out)
