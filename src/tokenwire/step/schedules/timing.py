"""What a schedule is worth: its bubble and the micro-batches in flight, by running it on equal stages.

Each rank does its actions in order, each as soon as what it waits for is there: a forward needs that of the stage before,
a backward its own forward and the backward of the stage after, a weight gradient its input gradient. Sending takes no time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire.errors import InputError
from tokenwire.step.schedules.actions import Action, Schedule

COST = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
"""Time of an action of a whole rank's layers, in forwards: a backward is two products where a forward is one."""


@dataclass(frozen=True)
class Timing:
    """``makespan`` in forwards of a rank's layers; ``bubble`` the idle share of all ranks; ``in_flight`` by rank.

    In flight are forwards whose backward is not done, in micro-batches through all layers of the rank.
    """

    makespan: float
    bubble: float
    in_flight: tuple[float, ...]
    ends: tuple[tuple[float, ...], ...]


def timing(schedule: Schedule, cost: dict[str, float] = COST) -> Timing:
    """Return the timing of a schedule. Raises ``InputError`` if its ranks wait for each other for ever."""
    share = len(schedule.ranks) / schedule.stages
    ended: dict[Action, float] = {}
    at, free = [0] * len(schedule.ranks), [0.0] * len(schedule.ranks)
    ends: list[list[float]] = [[] for _ in schedule.ranks]
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(schedule.ranks):
            while at[rank] < len(actions):
                ready = _ready(actions[at[rank]], schedule.stages, ended)
                if ready is None:
                    break
                action = actions[at[rank]]
                free[rank] = max(free[rank], ready) + cost[action.kind] * share
                ended[action] = free[rank]
                ends[rank].append(free[rank])
                at[rank] += 1
                moved = True
    if any(done < len(actions) for done, actions in zip(at, schedule.ranks, strict=True)):
        raise InputError(f"schedule {schedule.name}", rule="its ranks wait for each other for ever")
    makespan = max(free)
    busy = sum(cost[action.kind] * share for actions in schedule.ranks for action in actions)
    held = tuple(_held(actions) * share for actions in schedule.ranks)
    return Timing(makespan, 1 - busy / (makespan * len(schedule.ranks)), held, tuple(map(tuple, ends)))


def _ready(action: Action, stages: int, ended: dict[Action, float]) -> float | None:
    needs = _needs(action, stages)
    times = []
    for alternatives in needs:
        found = [ended[a] for a in alternatives if a in ended]
        if not found:
            return None
        times.append(found[0])
    return max(times, default=0.0)


def _needs(action: Action, stages: int) -> list[tuple[Action, ...]]:
    # Each tuple: any one of these must be done (a whole backward or one for the input).
    kind, stage, i, way = action
    if kind == "F":
        return [(Action("F", stage - 1, i, way),)] if stage > 0 else []
    if kind == "W":
        return [(Action("I", stage, i, way),)]
    own: list[tuple[Action, ...]] = [(Action("F", stage, i, way),)]
    if stage + 1 < stages:
        own.append((Action("B", stage + 1, i, way), Action("I", stage + 1, i, way)))
    return own


def _held(actions: tuple[Action, ...]) -> int:
    now = most = 0
    for action in actions:
        now += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        most = max(most, now)
    return most
