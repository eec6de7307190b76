"""Jitter: what it costs that no two kernels take the same time.

Every action of every rank lasts d·(1 + σ·z), z standard normal (at least -1/σ). Ranks that talk in every layer wait for each other: a
stage lasts as long as the slowest of its n ranks (tensor, context, expert parallel). Replicas meet at the end of the step: it lasts as
long as the slowest of them. n draws at a time are not made one by one: the largest of n has the distribution Φ(z)^n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.timeline.simulation import Durations, Run, play

MOST = 2_000_000
"""Actions that are simulated at most, all replicas and steps together."""
STEPS = 24
"""Steps that are drawn, where that is not too many."""


@dataclass(frozen=True)
class Jitter:
    """The pipeline under jitter: its mean, median and 99th percentile over ``steps`` drawn, and without jitter, in seconds."""

    share: float
    mean: float
    median: float
    worst: float
    without: float
    steps: int
    replicas: int


def jitter(
    run: Run, durations: Durations, send: float, share: float, *, together: int, replicas: int, blocking: bool = False, seed: int = 0
) -> Jitter:  # fmt: skip
    """Return what jitter of ``share`` (σ) does to a run's micro-batches; ``together`` ranks of a stage wait for each other.

    Of many replicas some are drawn, and the slowest of all is estimated from them (the (1 - 1/n) quantile of a normal).
    """
    size = len(run.graph.actions)
    drawn = max(1, min(replicas, 16, MOST // (STEPS * size)))
    steps = max(4, min(STEPS, MOST // (drawn * size)))
    dice = np.random.default_rng(seed)
    spans = np.empty((steps, drawn))
    for index in np.ndindex(spans.shape):
        noise = np.maximum(1 + share * slowest(dice.random(size), together), 0.0)
        spans[index] = play(run.graph, durations, send, run.shown, blocking=blocking, noise=noise.tolist()).makespan
    without = play(run.graph, durations, send, run.shown, blocking=blocking).makespan
    last = spans.max(axis=1)
    if replicas > drawn:
        mid, wide = float(spans.mean()), float(spans.std())
        last = mid + wide * slowest(dice.random(steps), replicas)
    # The micro-batches that were not run are as much later, each.
    scale = run.makespan / without if run.left_out else 1.0
    return Jitter(
        share, float(last.mean()) * scale, float(np.median(last)) * scale, float(np.quantile(last, 0.99)) * scale, run.makespan,
        steps, replicas,
    )  # fmt: skip


def slowest(uniform: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.float64]:
    """Return the largest of n standard normal draws, from one uniform draw each: the quantile u^(1/n).

    >>> round(float(slowest(np.array([0.5]), 1)[0]), 6), round(float(slowest(np.array([0.5]), 8)[0]), 2)
    (0.0, 1.39)
    """
    from statistics import NormalDist

    normal = NormalDist()
    levels = np.linspace(0, 1, 2049)[1:-1] ** (1 / n)
    table = np.array([normal.inv_cdf(float(level)) for level in levels])
    out: npt.NDArray[np.float64] = np.interp(uniform, np.linspace(0, 1, 2049)[1:-1], table)
    return out
