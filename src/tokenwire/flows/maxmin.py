"""Max-min fair sharing: flows over links, from event to event, until the last byte has arrived.

At any time each flow has as much as it can have without taking from one that has no more (per weight); the sharing is work
conserving: every flow has a full link. A flow may begin at a time, after others, and no faster than a cap. It ends when its
bytes have left and its latency has passed.

Source: Bertsekas and Gallager 1992, "Data networks", section 6.5.2 (max-min fairness and progressive filling).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.fabric.fabric import Floats, Ints, Routes

TOGETHER = 1e-11
"""Events closer together than this share of the clock count as one: rounding parts what symmetry joins."""


@dataclass(frozen=True)
class Sharing:
    """What became of the flows: seconds at which each ``began`` and ``ended`` (inf: never).

    ``events`` is how often rates were shared out, ``settings`` how many rates were set. ``times``, ``whom``, ``rates``
    (bytes/s) are every change of a rate, in order, where they were asked for.
    """

    began: Floats
    ended: Floats
    events: int
    settings: int
    times: Floats
    whom: Ints
    rates: Floats

    @property
    def makespan(self) -> float:
        """Return when the last flow ends, in seconds (0 where there is none)."""
        return float(self.ended.max(initial=0.0))


def simulate(
    routes: Routes, size: npt.ArrayLike, rate: npt.ArrayLike, *, start: npt.ArrayLike = 0.0, latency: npt.ArrayLike = 0.0,
    weight: npt.ArrayLike = 1.0, cap: npt.ArrayLike = np.inf, after: npt.ArrayLike | None = None, record: bool = False,
    use: npt.ArrayLike | None = None,
) -> Sharing:  # fmt: skip
    """Return how flows of ``size`` bytes share links of ``rate`` bytes/s; flow f takes the links of its route.

    ``start`` (s), ``latency`` (s), ``weight`` and ``cap`` (bytes/s) are of each flow, or one for all. ``after`` has pairs
    (before, then), shape (m, 2): flow ``then`` begins when ``before`` has ended. ``use`` is the part of its flow's rate that
    each entry of the routes carries (0 to 1; all of it, where not given): sprayed flows. Raises ``InputError`` for numbers that
    cannot be, and for flows that wait for each other in a circle.

    >>> import numpy as np
    >>> two = (np.array([0, 1, 2]), np.array([0, 0]))                  # two flows over one link of 100 B/s
    >>> simulate(two, [100, 300], [100.0]).ended.tolist()
    [2.0, 4.0]
    """
    from tokenwire.flows.filling import share

    first, links = (np.array(column, dtype=np.int64, order="C") for column in routes)
    n = first.size - 1
    capacity = np.array(rate, dtype=np.float64, ndmin=1)
    columns = {"size": size, "start": start, "latency": latency, "weight": weight, "cap": cap}
    given = {name: _column(name, value, n) for name, value in columns.items()}
    if capacity.size and not (capacity > 0).all():
        raise InputError(f"link {int(np.flatnonzero(~(capacity > 0))[0])}", rule="must have a rate above zero")
    if links.size and (links.min() < 0 or links.max() >= capacity.size):
        raise InputError("a route", rule=f"names a link that is not among the {capacity.size:,}")
    part = np.ones(links.size) if use is None else np.array(use, dtype=np.float64, order="C")
    if part.size != links.size or not ((part > 0) & (part <= 1 + 1e-9)).all():
        raise InputError("the parts of flows on their links", rule=f"must be {links.size:,} numbers above 0 and at most 1")
    capped = np.flatnonzero(np.isfinite(given["cap"]))
    if capped.size:
        # A cap is a link of the flow's own.
        part = np.insert(part, first[capped + 1], 1.0)
        links = np.insert(links, first[capped + 1], capacity.size + np.arange(capped.size))
        first = first + np.concatenate([[0], np.cumsum(np.isfinite(given["cap"]))])
        capacity = np.concatenate([capacity, given["cap"][capped]])
    begin, then, waits = _waiting(after, n)
    out = share(first, links, part, capacity, given["size"], given["weight"], given["start"], given["latency"], begin, then, waits,
                record, TOGETHER)  # fmt: skip
    if not np.isfinite(out[1]).all():
        stuck = int(np.flatnonzero(~np.isfinite(out[1]))[0])
        raise InputError(f"flow {stuck:,}", rule="never ends: it waits for flows that wait for it")
    return Sharing(*out)


def _column(name: str, value: npt.ArrayLike, n: int) -> Floats:
    try:
        # A copy: what numba compiles is for arrays that may be written to.
        out = np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (n,)), order="C")
    except ValueError:
        raise InputError(f"{name} of {np.size(value):,} flows", rule=f"there are {n:,} routes") from None
    low_ok = out > 0 if name in ("weight", "cap") else out >= 0
    high_ok = np.ones(n, dtype=np.bool_) if name == "cap" else np.isfinite(out)
    if not (low_ok & high_ok).all():
        wrong = int(np.flatnonzero(~(low_ok & high_ok))[0])
        rule = "must be above zero" if name in ("weight", "cap") else "must be zero or more, and finite"
        raise InputError(f"{name} = {out[wrong]:g} of flow {wrong:,}", rule=rule)
    return out


def _waiting(after: npt.ArrayLike | None, n: int) -> tuple[Ints, Ints, Ints]:
    pairs = np.zeros((0, 2), dtype=np.int64) if after is None else np.asarray(after, dtype=np.int64).reshape(-1, 2)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        raise InputError("a flow to wait for", rule=f"must be one of the {n:,} flows")
    order = np.argsort(pairs[:, 0], kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))]).astype(np.int64)
    return begin, np.ascontiguousarray(pairs[order, 1]), np.bincount(pairs[:, 1], minlength=n).astype(np.int64)


def link_seconds(routes: Routes, size: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """Return for each link the seconds that its bytes take at its full rate: the most is a bound for the makespan."""
    capacity = np.asarray(rate, dtype=np.float64)
    carried = np.repeat(np.broadcast_to(np.asarray(size, dtype=np.float64), (routes[0].size - 1,)), np.diff(routes[0]))
    return np.bincount(routes[1], weights=carried, minlength=capacity.size) / capacity
