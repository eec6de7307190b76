"""How long a rank communicates: torch's profiler says when each call of gloo began and ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

_OF_GLOO = "gloo:"


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of what intervals cover together.

    >>> union([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


Event = tuple[str, float, float]
"""A call: its name, when it began and when it ended, in s."""


def least_waiting(ranks: Sequence[Sequence[Event]]) -> float:
    """Return the seconds in which calls were under way in a step, without waiting for ranks that came late.

    ``ranks`` has the events of each rank. A call takes as long as on the rank that came last to it; calls that overlap count as
    often as their ranks saw them do. Where ranks did not make the same calls, it is what the least busy rank saw.

    >>> least_waiting([[("a", 0.0, 5.0), ("b", 6.0, 7.0)], [("a", 4.0, 5.0), ("b", 5.0, 7.0)]])
    2.0
    """
    ordered = [sorted(events, key=lambda event: event[1]) for events in ranks]
    covered = [union((begin, end) for _, begin, end in events) for events in ordered]
    if len({tuple(name for name, _, _ in events) for events in ordered}) != 1 or not ordered[0]:
        return min(covered)
    spent = [sum(end - begin for _, begin, end in events) for events in ordered]
    together = sum(one / whole for one, whole in zip(covered, spent, strict=True)) / len(ordered)
    return float(together * sum(min(end - begin for _, begin, end in same) for same in zip(*ordered, strict=True)))


@contextmanager
def timed(into: list[list[Event]]) -> Iterator[None]:
    """Append to ``into`` the calls of gloo that were made inside the block."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        yield
    into.append([(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in found.events()
                 if event.name.startswith(_OF_GLOO)])  # fmt: skip
