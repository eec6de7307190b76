"""Schedules whose stages turn round at the last rank: ZBV and DualPipeV; and DualPipe, which runs both ways at once.

Qi et al., Pipeline Parallelism with Controllable Memory, 2024 (ZB-V); DeepSeek-AI, DeepSeek-V3 Technical Report, 2024,
section 3.2.1, and github.com/deepseek-ai/DualPipe (dualpipe.py, dualpipev.py). Orders of ZBV and DualPipeV are those of
torch.distributed.pipelining (ScheduleZBVZeroBubble, ScheduleDualPipeV).
"""

from __future__ import annotations

from collections import Counter, deque

from tokenwire.errors import InputError
from tokenwire.step.schedules.actions import Action, Kind, Schedule


class _Rank:
    """The growing list of one rank's actions; micro-batches are counted by stage and kind."""

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
    _two(chunks)
    rows = []
    for rank in range(ranks):
        total = max(2 * ranks - 1, micro_batches)
        row = _Rank(rank, 2 * ranks - 1 - rank)
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


def _input_and_weights(row: _Rank, which: int) -> None:
    row.add("I", which)
    row.weights()


def _two(chunks: int) -> None:
    if chunks != 2:
        raise InputError(f"virtual stages = {chunks}", rule="V-shaped schedules have two a rank", nearest="2")


def dual_pipe_v(ranks: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """Return DualPipeV: DualPipe cut in half, two stages a rank in a V. Needs at least 2p micro-batches."""
    _two(chunks)
    if micro_batches < 2 * ranks:
        raise InputError(f"micro-batches = {micro_batches}", rule=f"DualPipeV needs at least its {2 * ranks} stages",
                         nearest=str(2 * ranks))  # fmt: skip
    rows = [_dual_rank(rank, ranks, micro_batches) for rank in range(ranks)]
    return Schedule("dualpipev", tuple(rows), 2 * ranks, micro_batches)


def _dual_rank(rank: int, ranks: int, micro_batches: int) -> tuple[Action, ...]:
    row = _Rank(rank, 2 * ranks - 1 - rank)
    after = ranks - rank - 1
    for _ in range(2 * after):
        row.add("F", 0)
    for _ in range(rank + 1):
        row.add("F", 0)
        row.add("F", 1)
    for _ in range(after):
        row.add("I", 1)
        row.weights()
        row.add("F", 1)
    for _ in range(micro_batches - 2 * ranks + rank + 1):
        row.add("F", 0)
        row.add("B", 1)
        row.add("F", 1)
        row.add("B", 0)
    for _ in range(after):
        row.add("B", 1)
        row.add("F", 1)
        row.add("B", 0)
    # The second half of the last backwards leaves its weights for the end.
    split = False
    for i in range(rank + 1):
        split = split or (i == (rank + 1) // 2 and rank % 2 == 1)
        row.add("I" if split else "B", 1)
        split = split or (i == (rank + 1) // 2 and rank % 2 == 0)
        row.add("I" if split else "B", 0)
    for _ in range(after):
        row.weights()
        row.add("I" if split else "B", 0)
    for _ in range(rank + 1):
        row.weights()
    return tuple(row.actions)


def dual_pipe(ranks: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Return DualPipe: half of the micro-batches enter at each end; every rank holds two stages, each parameter twice.

    Seen from the nearer end it is DualPipeV over half of the ranks, for half of the micro-batches. Micro-batches of the
    reverse direction are the second half, in ``direction`` 1. Needs an even number of both, and 2p micro-batches.
    """
    if ranks % 2:
        raise InputError(f"pp = {ranks}", rule="DualPipe needs an even number of ranks", nearest=f"pp = {ranks + 1}")
    if micro_batches % 2 or micro_batches < 2 * ranks:
        raise InputError(f"micro-batches = {micro_batches}", rule=f"DualPipe needs an even number, at least {2 * ranks}",
                         nearest=str(max(micro_batches + micro_batches % 2, 2 * ranks)))  # fmt: skip
    half, rows = micro_batches // 2, []
    for rank in range(ranks):
        near = min(rank, ranks - 1 - rank)
        row = []
        for kind, stage, number, _ in _dual_rank(near, ranks // 2, half):
            # Phase 0 runs from the nearer end inwards, phase 1 comes from the other end.
            far = stage != near
            direction = int(far != (rank >= ranks // 2))
            row.append(Action(kind, ranks - 1 - near if far else near, number + direction * half, direction))
        rows.append(tuple(row))
    return Schedule("dualpipe", tuple(rows), ranks, micro_batches, copies=2)
