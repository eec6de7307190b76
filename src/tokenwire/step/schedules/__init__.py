"""Schedules: the ordered actions of each pipeline rank.

In: the number of ranks, of micro-batches a step, and of virtual stages a rank. Out of ``schedule``: a ``Schedule``; of
``timing``: its bubble and the micro-batches in flight. Schedules differ in order, bubble and memory, not in what stages send
(DualPipe holds every parameter twice).
"""

from __future__ import annotations

from collections.abc import Callable

from tokenwire.errors import InputError, unknown
from tokenwire.plan.torchtitan import SCHEDULES as TORCH_NAMES
from tokenwire.step.schedules.actions import Action, Message, Schedule, looped_rank, v_rank
from tokenwire.step.schedules.dual_pipe import dual_pipe, dual_pipe_v
from tokenwire.step.schedules.one_forward_one_backward import (
    gpipe,
    interleaved,
    looped_bfs,
    one_forward_one_backward,
    zero_bubble_h1,
)
from tokenwire.step.schedules.timing import Timing, timing
from tokenwire.step.schedules.v_shaped import zbv

__all__ = ["SCHEDULES", "Action", "Message", "Schedule", "Timing", "looped_rank", "schedule", "timing", "v_rank"]

SCHEDULES: dict[str, tuple[Callable[[int, int, int], Schedule], int]] = {
    "gpipe": (gpipe, 1),
    "1f1b": (one_forward_one_backward, 1),
    "interleaved-1f1b": (interleaved, 2),
    "looped-bfs": (looped_bfs, 2),
    "zb-h1": (zero_bubble_h1, 1),
    "zbv": (zbv, 2),
    "dualpipe": (dual_pipe, 1),
    "dualpipev": (dual_pipe_v, 2),
}
"""Name: function of (ranks, micro-batches, virtual stages a rank), and its usual number of virtual stages."""

ALIASES = {
    **{name.lower(): own for name, own in TORCH_NAMES.items()}, "zb1p": "zb-h1", "interleaved": "interleaved-1f1b", "zbh1": "zb-h1",
}  # fmt: skip


def schedule(name: str, ranks: int, micro_batches: int, chunks: int | None = None, group: int | None = None) -> Schedule:
    """Return a schedule by name (torch's names are known too); ``group``: micro-batches that interleaving takes at a time [ranks].

    Raises ``InputError`` for what it cannot be.

    >>> len(schedule("1f1b", 4, 8).ranks[0])
    16
    """
    plain = name.lower()
    known = ALIASES.get(plain.replace("-", ""), plain)
    if known not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    if ranks < 1 or micro_batches < 1 or (chunks is not None and chunks < 1):
        raise InputError(f"{ranks} ranks, {micro_batches} micro-batches", rule="a schedule needs at least one of each")
    if known == "interleaved-1f1b":
        return interleaved(ranks, micro_batches, chunks or 2, group)
    function, usual = SCHEDULES[known]
    return function(ranks, micro_batches, chunks or usual)
