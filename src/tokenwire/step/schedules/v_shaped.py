"""ZBV: stages turn round at the last rank, and weight gradients fill what would be a bubble.

Qi et al., Pipeline Parallelism with Controllable Memory, 2024 (ZB-V). The order is that of torch.distributed.pipelining
(ScheduleZBVZeroBubble).
"""

from __future__ import annotations

from collections import Counter, deque

from tokenwire.errors import InputError
from tokenwire.step.schedules.actions import Action, Kind, Schedule


class Row:
    """The growing list of the actions of a rank with two stages; micro-batches are counted by stage and kind."""

    def __init__(self, near: int, far: int) -> None:
        self.stage = (near, far)
        self.actions: list[Action] = []
        self.done: Counter[tuple[int, str]] = Counter()
        self.waiting: deque[Action] = deque()

    def add(self, kind: Kind, which: int) -> None:
        """Append the next action of a kind for the near (0) or far (1) stage; I leaves a W waiting."""
        counted = "I" if kind == "B" else kind
        number = self.done[which, counted]
        self.done[which, counted] += 1
        self.actions.append(Action(kind, self.stage[which], number))
        if kind == "I":
            self.waiting.append(Action("W", self.stage[which], number))

    def weights(self) -> None:
        """Append the oldest weight gradient that waits."""
        if self.waiting:
            self.actions.append(self.waiting.popleft())


def zbv(ranks: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """Return ZBV: two stages a rank in a V, no bubble for equal F, I and W, activations of 1F1B."""
    two_stages(chunks)
    rows = []
    for rank in range(ranks):
        total = max(2 * ranks - 1, micro_batches)
        row = Row(rank, 2 * ranks - 1 - rank)
        for _ in range(2 * (ranks - rank) - 1):
            row.add("F", 0)
        for _ in range(rank):
            row.add("F", 1)
            row.add("F", 0)
        for _ in range(ranks - rank):
            row.add("F", 1)
            _input_and_weights(row, 1)
        while row.done[1, "F"] < row.done[0, "F"] or row.done[0, "F"] < total:
            if row.done[0, "F"] < total:
                row.add("F", 0)
            _input_and_weights(row, 0)
            row.add("F", 1)
            _input_and_weights(row, 1)
        for _ in range(rank):
            row.add("I", 0)
            row.add("I", 1)
        near = deque(action for action in row.waiting if action.stage == rank)
        far = deque(action for action in row.waiting if action.stage != rank)
        row.waiting.clear()
        for _ in range(ranks - rank):
            row.add("I", 0)
            near.append(row.waiting.pop())
            row.actions.append(near.popleft())
        # A pipeline shorter than it takes to fill is that of a full one without the micro-batches that are not there.
        rows.append(tuple(a for a in (*row.actions, *far, *near) if a.micro_batch < micro_batches))
    return Schedule("zbv", tuple(rows), 2 * ranks, micro_batches)


def _input_and_weights(row: Row, which: int) -> None:
    row.add("I", which)
    row.weights()


def two_stages(chunks: int) -> None:
    """Raise ``InputError`` for another number of virtual stages a rank than two."""
    if chunks != 2:
        raise InputError(f"virtual stages = {chunks}", rule="V-shaped schedules have two a rank", nearest="2")
