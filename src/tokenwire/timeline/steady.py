"""The steady state of a pipeline: how few micro-batches have to be run, so that the time of all the others is known exactly.

Between its filling and its draining a schedule repeats itself: what a rank does at place i of its list it does again at i + L, with
micro-batches P later. Take all actions from window k on (a window: L places of each rank). If those of the D windows from k on start the
same time λ later than one window before, and no action waits for one more than D windows back, then so do all that follow: an action
starts at the latest end of those that it waits for, and all of these moved by λ (induction along the graph; the time is a max-plus
linear function: Baccelli et al. 1992, Synchronization and Linearity, chapter 3). The draining moves by λ too, so that P more
micro-batches make the step exactly λ longer.

It is checked on the run itself, never assumed: a pipeline that needs longer to settle is run longer, at last whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenwire.timeline.order import Order

PERIODS = {"1f1b": False, "interleaved-1f1b": True, "zb-h1": True, "zbv": False, "dualpipev": False}
"""Schedules that repeat themselves, and whether a period is as many micro-batches as there are ranks (else it is one)."""
SAME = 1e-11
"""Share of a run's length by which times that are the same may differ, for rounding."""


def period(name: str, ranks: int, group: int | None) -> int:
    """Return the micro-batches P of a period."""
    return (group or ranks) if PERIODS[name] else 1


def enough(name: str, ranks: int, micro_batches: int, group: int | None) -> Iterator[int]:
    """Yield numbers of micro-batches to try, each half as much again as the one before, that end as the whole step does.

    >>> list(enough("1f1b", 4, 1000, None))[:3], list(enough("gpipe", 4, 1000, None))
    ([20, 30, 45], [])
    """
    if name not in PERIODS:
        return
    P = period(name, ranks, group)
    if P > 1 and micro_batches % P:
        return
    fewer = 5 * max(ranks, P)
    while 4 * fewer <= 3 * micro_batches:
        yield fewer - (fewer - micro_batches) % P
        fewer += fewer // 2


def growth(graph: Order, started: Sequence[float], name: str, ranks: int, group: int | None) -> float | None:
    """Return the seconds a micro-batch by which the step grows, None where the run is not seen to be steady."""
    P = period(name, ranks, group)
    spans = [_repeats(graph, r, P) for r in range(graph.ranks)]
    places = min(end - begin for begin, end, _ in spans)
    windows = min((end - begin) // L for begin, end, L in spans)
    if places <= 0 or windows < 2:
        return None
    D = _farthest(graph, spans)
    if D is None or windows < D + 1:
        return None
    # The last windows are looked at: they have had longest to settle.
    close = SAME * max(started)
    step: float | None = None
    for begin, _, L in spans:
        for x in range(begin + (windows - 1 - D) * L, begin + (windows - 1) * L):
            later = started[x + L] - started[x]
            step = later if step is None else step
            if abs(later - step) > close:
                return None
    return None if step is None else step / P


def _repeats(graph: Order, rank: int, P: int) -> tuple[int, int, int]:
    """Return where a rank's actions repeat themselves P micro-batches later: begin, end (of the repetition), and L."""
    first, last = graph.first[rank], graph.first[rank + 1]
    kinds = {(a.kind, a.stage) for a in graph.actions[first:last]}
    L = len(kinds) * P
    best = (first, first)
    begin = None
    for x in range(first, last - L + 1):
        same = x + L < last and _later(graph, x, x + L, P)
        if same and begin is None:
            begin = x
        elif not same and begin is not None:
            if x + L - begin > best[1] - best[0]:
                best = (begin, x + L)
            begin = None
    return (*best, L)


def _later(graph: Order, x: int, y: int, P: int) -> bool:
    a, b = graph.actions[x], graph.actions[y]
    return (a.kind, a.stage, a.micro_batch + P, a.direction) == (b.kind, b.stage, b.micro_batch, b.direction)


def _farthest(graph: Order, spans: Sequence[tuple[int, int, int]]) -> int | None:
    """Return how many windows back an action of the second last window waits for one, at least 1; None where a rank has none there."""
    far = 1
    windows = min((end - begin) // L for begin, end, L in spans)
    for begin, _, L in spans:
        for x in range(begin + (windows - 1) * L, begin + windows * L):
            for y in (graph.one[x], graph.two[x]):
                if y < 0:
                    continue
                start, _, length = spans[graph.rank[y]]
                if y < start:
                    return None
                far = max(far, windows - 1 - (y - start) // length)
    return far
