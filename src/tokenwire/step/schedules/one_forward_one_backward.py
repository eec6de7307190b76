"""GPipe, breadth-first (looped BFS), 1F1B and interleaved 1F1B, and the zero-bubble schedule ZB-H1 that splits its backward.

Huang et al., GPipe, 2019; Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM, 2021, figures 3 and 4; Lamy-Poirier, Breadth-First Pipeline Parallelism, 2022; Qi et al., Zero Bubble Pipeline Parallelism, 2024, section 2. The orders are those of
torch.distributed.pipelining (schedules.py: ScheduleGPipe, Schedule1F1B, ScheduleLoopedBFS,
ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble), and of megatron-core's get_schedule_table for its interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenwire.errors import InputError
from tokenwire.step.schedules.actions import Action, Schedule


def gpipe(ranks: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Return GPipe: all forwards, then all backwards.

    >>> [str(action) for action in gpipe(2, 2).ranks[0]]
    ['0F0', '0F1', '0B0', '0B1']
    """
    rows = [
        [Action(kind, rank, i) for kind in ("F", "B") for i in range(micro_batches)] for rank in range(ranks)
    ]  # fmt: skip
    return Schedule("gpipe", tuple(map(tuple, rows)), ranks, micro_batches)


def looped_bfs(ranks: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """Return breadth-first: all micro-batches through each virtual stage in turn, then back, the last micro-batch first.

    >>> [str(action) for action in looped_bfs(2, 2).ranks[1]]
    ['1F0', '1F1', '3F0', '3F1', '3B1', '3B0', '1B1', '1B0']
    """
    rows = []
    for rank in range(ranks):
        stages = range(rank, ranks * chunks, ranks)
        forward = [Action("F", stage, i) for stage in stages for i in range(micro_batches)]
        backward = [Action("B", stage, i) for stage in reversed(stages) for i in reversed(range(micro_batches))]
        rows.append((*forward, *backward))
    return Schedule("looped-bfs", tuple(rows), ranks * chunks, micro_batches)


def one_forward_one_backward(ranks: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Return 1F1B: rank r runs p - 1 - r forwards ahead, then one forward and one backward in turn.

    >>> [str(action) for action in one_forward_one_backward(2, 3).ranks[0]]
    ['0F0', '0F1', '0B0', '0F2', '0B1', '0B2']
    """
    rows = []
    for rank in range(ranks):
        ahead = min(ranks - 1 - rank, micro_batches)
        forward = [Action("F", rank, i) for i in range(micro_batches)]
        backward = [Action("B", rank, i) for i in range(micro_batches)]
        rows.append(_in_turn(forward, backward, ahead))
    return Schedule("1f1b", tuple(rows), ranks, micro_batches)


def _in_turn(forward: Sequence[Action], backward: Sequence[Action], ahead: int) -> tuple[Action, ...]:
    out = list(forward[:ahead])
    steady = len(forward) - ahead
    for f, b in zip(forward[ahead:], backward[:steady], strict=True):
        out += [f, b]
    return (*out, *backward[steady:])


def interleaved(ranks: int, micro_batches: int, chunks: int = 2, group: int | None = None) -> Schedule:
    """Return interleaved 1F1B with ``chunks`` virtual stages a rank, ``group`` micro-batches at a time (default: p).

    The number of forwards ahead is (v-1)·group + 2·(p-1-r): Megatron-Core's schedules.py, get_pp_rank_microbatches.
    Raises ``InputError`` where the micro-batches do not fill whole groups.
    """
    size = group or ranks
    left = micro_batches % size
    if left and left < ranks and micro_batches > size:
        raise InputError(f"micro-batches = {micro_batches}", rule=f"interleaving needs a multiple of {size}",
                         nearest=str(micro_batches - left))  # fmt: skip
    rows = []
    for rank in range(ranks):
        order = list(_table(micro_batches, chunks, size))
        forward = [Action("F", chunk * ranks + rank, i) for i, chunk in order]
        backward = [Action("B", (chunks - 1 - chunk) * ranks + rank, i) for i, chunk in order]
        ahead = min((chunks - 1) * size + 2 * (ranks - 1 - rank), len(order))
        rows.append(_in_turn(forward, backward, ahead))
    return Schedule("interleaved-1f1b", tuple(rows), ranks * chunks, micro_batches)


def _table(micro_batches: int, chunks: int, group: int) -> Iterator[tuple[int, int]]:
    # (micro-batch, chunk): a group of micro-batches passes every chunk before the next group starts.
    for start in range(0, micro_batches, group):
        for chunk in range(chunks):
            for i in range(start, min(start + group, micro_batches)):
                yield i, chunk


def zero_bubble_h1(ranks: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Return ZB-H1 (ZB1P): as 1F1B, but backward for inputs first and for weights where a bubble would be.

    Rank r puts off the first r weight gradients. Holds no more activations than 1F1B.
    """
    rounds = max(1, micro_batches // ranks)
    if micro_batches % rounds:
        raise InputError(f"micro-batches = {micro_batches}", rule=f"zero bubble needs a multiple of its {rounds} rounds",
                         nearest=str(micro_batches - micro_batches % rounds))  # fmt: skip
    group = micro_batches // rounds
    rows = []
    for rank in range(ranks):
        order = list(_table(micro_batches, chunks, group))
        forward = [Action("F", chunk * ranks + rank, i) for i, chunk in order]
        inputs = [Action("I", (chunks - 1 - chunk) * ranks + rank, i) for i, chunk in order]
        ahead = min((chunks - 1) * group + ranks - 1 - rank, len(order))
        out = list(forward[:ahead])
        for at, action in enumerate(inputs):
            out += forward[ahead + at : ahead + at + 1]
            out.append(action)
            if at >= rank:
                done = inputs[at - rank]
                out.append(Action("W", done.stage, done.micro_batch))
        out += [Action("W", done.stage, done.micro_batch) for done in inputs[max(len(inputs) - rank, 0) :]]
        rows.append(tuple(out))
    return Schedule("zb-h1", tuple(rows), ranks * chunks, micro_batches)
