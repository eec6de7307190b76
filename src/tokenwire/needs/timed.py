"""A plan timed on clusters that differ in one thing: how much of its step the network costs, and how fast it has to be.

Symbols: T(R) the step with NICs of rate R, T(∞) with NICs that are never in the way, the
efficiency T(∞)/T(R); the network costs 1 - T₀/T(R), T₀ where what leaves a node takes no time, its latency neither. What rates and latencies a step bears is found by halving: T never grows with R, and never falls with latency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenwire.fabric import ClusterFacts
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.step import Operation
from tokenwire.timeline import StepTime, step_time
from tokenwire.timeline.communication import place_of

ENDLESS = 1e13
"""Bytes/s of a NIC or NVLink that is never in the way."""
SLOWEST, LONGEST = 1e6, 1.0
"""Bytes/s of the slowest network and seconds of the longest link that are tried."""
CLOSE = 1.005
"""Ratio to which rates and latencies are found."""


@dataclass
class Timed:
    """A plan on a cluster, and on others like it; each is timed once."""

    arch: Architecture
    plan: Plan
    rows: Sequence[Operation]
    facts: ClusterFacts
    known: dict[tuple[tuple[str, float], ...], StepTime] = field(default_factory=dict, repr=False)

    def step(self, **changes: float) -> StepTime:
        """Return the step on the cluster with other facts (``nic_rate``, ``link_latency``, ``domain_rate`` ...)."""
        key = tuple(sorted(changes.items()))
        if key not in self.known:
            self.known[key] = step_time(self.arch, self.plan, self.rows, self.facts.model_copy(update=changes))
        return self.known[key]

    def alone(self) -> StepTime:
        """Return the step in which what leaves a node takes no time at all, neither for its bytes nor for its way."""
        free: dict[tuple[str, str, str], float] = {}
        for row in self.rows:
            place = place_of(self.plan, row.group, row.stage, self.facts.gpus_per_node, row.peer)
            if place.nodes > 1:
                free[row.op, row.group, row.phase] = 0.0
        return step_time(self.arch, self.plan, self.rows, self.facts, shared=free)

    def costs(self) -> float:
        """Return the share of the step that the network costs, by bytes and latency: against ``alone``."""
        return max(0.0, 1 - self.alone().step_seconds / self.step().step_seconds)

    def share(self, name: str, value: float, best: float) -> float:
        """Return the share of the step that a fact costs, against its ``best`` value."""
        return max(0.0, 1 - self.step(**{name: best}).step_seconds / self.step(**{name: value}).step_seconds)

    def efficiency(self, rate: float) -> float:
        """Return T(∞)/T(R) for NICs of a rate."""
        return 1 - self.share("nic_rate", rate, ENDLESS)

    def least_rate(self, x: float, name: str = "nic_rate") -> float | None:
        """Return the least rate (bytes/s) at which it costs at most a share ``x`` of the step; None where even the slowest does."""
        return least(lambda rate: self.share(name, rate, ENDLESS) <= x, SLOWEST, ENDLESS)

    def most_latency(self, x: float) -> float | None:
        """Return the most seconds of a link at which its latency costs at most ``x`` of the step; None where even the longest does."""
        found = least(lambda shorter: self.share("link_latency", 1 / shorter, 0.0) <= x, 1 / LONGEST, 1e12)
        return None if found is None else 1 / found

    def demands(self, rate: float) -> str:
        """Return whose waiting grows most where NICs of that rate are half as fast, "" where nobody's does."""
        now, half = (self.step(nic_rate=rate * k).busiest.exposed for k in (1.0, 0.5))
        more = {who: half[who] - now.get(who, 0.0) for who in half}
        who = max(more, key=more.__getitem__, default="")
        return who if who and more[who] > 1e-9 else ""


def least(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the least value that is enough, to a ratio of ``CLOSE``; None where ``low`` is. ``high`` is enough.

    >>> round(least(lambda x: x >= 1000, 1, 1e6) / 1000, 1), least(lambda x: True, 1, 2)
    (1.0, None)
    """
    if enough(low):
        return None
    while high / low > CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
