"""DualPipe, which runs both ways at once, and DualPipeV, its half with stages that turn round; with what they send and receive.

DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, section 3.2.1. Orders of actions, sends and receives are those of
github.com/deepseek-ai/DualPipe (dualpipe/dualpipe.py and dualpipev.py, step); that of DualPipeV's actions is also that of
torch.distributed.pipelining (ScheduleDualPipeV).
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from tokenwire.errors import InputError
from tokenwire.step.schedules.actions import Action, Message, Schedule
from tokenwire.step.schedules.v_shaped import Row, two_stages

Moved = Literal["F", "B"]


class _Row(Row):
    """A rank's actions with the messages that are carried out together before them; 0 is the near stage, 1 the far one."""

    def __init__(self, near: int, far: int, silent: frozenset[tuple[str, Moved, int]]) -> None:
        super().__init__(near, far)
        # What has no other end: the model begins or ends here, or the next stage is on the same rank.
        self.silent = silent
        self.messages: list[Message] = []
        self._posted: list[tuple[Literal["send", "recv"], Moved, int, int]] = []
        self._moved: Counter[tuple[str, str, int]] = Counter()

    def post(self, op: Literal["send", "recv"], kind: Moved, which: int) -> None:
        """Put a message in the next batch."""
        if (op, kind, which) not in self.silent:
            number = self._moved[op, kind, which]
            self._moved[op, kind, which] += 1
            self._posted.append((op, kind, which, number))

    def commit(self) -> None:
        """Carry out what was posted, and wait for it."""
        done = len(self.actions)
        self.messages += [Message(op, kind, self.stage[which], number, 0, done) for op, kind, which, number in self._posted]
        self._posted.clear()

    def forward(self, which: int, *, recv: bool = True, send: bool = True) -> None:
        if recv:
            self.post("recv", "F", which)
        self.commit()
        self.add("F", which)
        if send:
            self.post("send", "F", which)

    def backward(self, which: int, *, split: bool = False, send: bool = True) -> None:
        self.post("recv", "B", which)
        self.commit()
        self.add("I" if split else "B", which)
        if send:
            self.post("send", "B", which)

    def both(self, forward: int, backward: int, *, recv: bool = True) -> None:
        """A forward overlapped with a backward: one batch of messages before, one after."""
        if recv:
            self.post("recv", "F", forward)
        self.post("recv", "B", backward)
        self.commit()
        self.add("F", forward)
        self.add("B", backward)
        self.post("send", "F", forward)
        self.post("send", "B", backward)

    def weights(self) -> None:
        self.commit()
        super().weights()


def dual_pipe_v(ranks: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """Return DualPipeV: DualPipe cut in half, two stages a rank in a V. Needs at least 2p micro-batches."""
    two_stages(chunks)
    if micro_batches < 2 * ranks:
        raise InputError(f"micro-batches = {micro_batches}", rule=f"DualPipeV needs at least its {2 * ranks} stages",
                         nearest=str(2 * ranks))  # fmt: skip
    rows = [_row(rank, ranks, micro_batches, turns=True) for rank in range(ranks)]
    return Schedule("dualpipev", tuple(tuple(row.actions) for row in rows), 2 * ranks, micro_batches,
                    messages=tuple(tuple(row.messages) for row in rows))  # fmt: skip


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
    half, rows, messages = micro_batches // 2, [], []
    for rank in range(ranks):
        near = min(rank, ranks - 1 - rank)
        row = _row(near, ranks // 2, half, turns=False)

        def placed(stage: int, number: int, rank: int = rank, near: int = near) -> tuple[int, int, int]:
            # The near stage runs from the nearer end inwards, the far one comes from the other end.
            far = stage != near
            direction = int(far != (rank >= ranks // 2))
            return ranks - 1 - near if far else near, number + direction * half, direction

        rows.append(tuple(Action(x.kind, *placed(x.stage, x.micro_batch)) for x in row.actions))
        messages.append(tuple(Message(x.op, x.kind, *placed(x.stage, x.micro_batch), x.before) for x in row.messages))
    return Schedule("dualpipe", tuple(rows), ranks, micro_batches, copies=2, messages=tuple(messages))


def _row(rank: int, ranks: int, micro_batches: int, *, turns: bool) -> _Row:
    row = _Row(rank, 2 * ranks - 1 - rank, _silent(rank, ranks, turns=turns))
    after, middle = ranks - rank - 1, rank == ranks - 1
    for _ in range(2 * after):
        row.forward(0)
    row.post("recv", "F", 0)
    for i in range(rank + 1):
        row.forward(0, recv=False, send=middle)
        row.post("recv", "F", 0)
        row.forward(1, send=not middle or i < rank)
        if not middle:
            row.post("send", "F", 0)
    for _ in range(after):
        row.backward(1, split=True)
        row.post("recv", "F", 1)
        row.weights()
        row.forward(1, recv=False)
    for i in range(micro_batches - 2 * ranks + rank + 1):
        if i or not middle:
            row.both(0, 1, recv=i > 0)
        else:
            # The middle ranks wait for each other here, so these two are not overlapped.
            row.forward(0, recv=False, send=False)
            row.post("send", "F", 1)
            row.backward(1, send=False)
            row.post("send", "F", 0)
            row.post("send", "B", 1)
        row.both(1, 0)
    for _ in range(after):
        row.backward(1)
        row.both(1, 0)
    _drain(row, rank, after)
    return row


def _drain(row: _Row, rank: int, after: int) -> None:
    # The second half of the last backwards leaves its weights for the end.
    split = False
    for i in range(rank + 1):
        split = split or (i == (rank + 1) // 2 and rank % 2 == 1)
        row.backward(1, split=split)
        split = split or (i == (rank + 1) // 2 and rank % 2 == 0)
        row.backward(0, split=split)
    for _ in range(after):
        row.weights()
        row.backward(0, split=True)
    for _ in range(rank + 1):
        row.weights()
    row.commit()


def _silent(rank: int, ranks: int, *, turns: bool) -> frozenset[tuple[str, Moved, int]]:
    out: set[tuple[str, Moved, int]] = set()
    if rank == 0:
        out |= {("recv", "F", 0), ("send", "B", 0), ("send", "F", 1), ("recv", "B", 1)}
    if turns and rank == ranks - 1:
        out |= {("send", "F", 0), ("recv", "B", 0), ("recv", "F", 1), ("send", "B", 1)}
    return frozenset(out)
