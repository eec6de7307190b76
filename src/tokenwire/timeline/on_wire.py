"""What a step puts on the wire, and when: bursts of each kind of call on the NIC of one GPU of a stage, and bytes in each interval.

Symbols: S bytes of the full tensor of one call, n ranks of the group, r of them on a node. What leaves a node in one call, for each of the
r NICs that its ranks have: rings cross from node to node once, so that all_gather and reduce_scatter send S(n-1)/(n·r), all_reduce twice
that, broadcast and reduce S/r; an exchange sends S(n-r)/n from each rank (all but the parts for its own node); a send sends S.
Calls of a micro-batch come evenly spaced over its action; a send when the action ends; gradients from the last backward on (or spread over
it, where the framework's flag lets them), gathered weights after the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenwire.fabric import ClusterFacts
from tokenwire.plan import Plan
from tokenwire.step.operation import Operation
from tokenwire.timeline.accelerator import Accelerator
from tokenwire.timeline.communication import Place, call_seconds, place_of
from tokenwire.timeline.overlap import flags
from tokenwire.timeline.step_time import StepTime

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
BINS = 66


@dataclass(frozen=True)
class Burst:
    """One kind of call as one NIC sees it: ``calls`` a step, each of ``bytes`` over ``seconds``, as ``messages`` to ``peers``.

    ``incast`` is how many NICs of other nodes send to it at once.
    """

    op: str
    group: str
    phase: str
    parallelism: str
    what: str
    calls: int
    bytes: float
    seconds: float
    messages: int
    peers: int
    incast: int

    @property
    def rate(self) -> float:
        """Return the mean rate in a burst, in bytes/s."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def message(self) -> float:
        """Return the bytes of one message, at least one: a tensor of fewer bytes than ranks is not cut below a byte."""
        return max(self.bytes / self.messages, 1.0) if self.messages and self.bytes else 0.0


@dataclass(frozen=True)
class Signature:
    """What the NIC of a GPU of a stage does in a step of ``step`` seconds: bursts, and bytes sent in each of equal intervals."""

    stage: int
    step: float
    bursts: tuple[Burst, ...]
    series: Floats

    @property
    def bytes(self) -> float:
        """Return the bytes that it sends in a step."""
        return sum(one.calls * one.bytes for one in self.bursts)

    @property
    def busy(self) -> float:
        """Return the seconds of its bursts, at most the step."""
        return min(sum(one.calls * one.seconds for one in self.bursts), self.step)

    @property
    def interval(self) -> float:
        """Return the seconds of an interval of the series."""
        return self.step / len(self.series)

    def facts(self) -> dict[str, Any]:
        """Return the signature for JSON; rates in bytes/s."""
        messages = sum(one.calls * one.messages for one in self.bursts)
        return {
            "stage": self.stage, "bytes": self.bytes, "mean_rate": self.bytes / self.step, "busy_seconds": self.busy,
            "duty_cycle": self.busy / self.step, "peak_rate": float(self.series.max(initial=0.0)) / self.interval,
            "peak_over_mean": float(self.series.max(initial=0.0)) / max(self.bytes / len(self.series), 1e-30) if self.bytes else 0.0,
            "messages_per_second": messages / self.step, "longest_burst_seconds": max((one.seconds for one in self.bursts), default=0.0),
            "largest_burst_bytes": max((one.bytes for one in self.bursts), default=0.0),
            "incast_degree": max((one.incast for one in self.bursts), default=0),
            "queue_pairs": sum(one.peers for one in _by_peers(self.bursts).values()), "interval_seconds": self.interval,
            "bytes_by_interval": self.series.tolist(),
        }  # fmt: skip

    def table(self) -> pl.DataFrame:
        """Return a row a kind of call, with the fields of ``Burst``."""
        import polars as pl

        return pl.DataFrame([{"stage": self.stage, **vars(one), "rate": one.rate, "message": one.message} for one in self.bursts])


def _by_peers(bursts: Iterable[Burst]) -> dict[str, Burst]:
    """Return of each group the kind with the most peers: a group has its connections once."""
    out: dict[str, Burst] = {}
    for one in bursts:
        if one.group not in out or one.peers > out[one.group].peers:
            out[one.group] = one
    return out


def leaving(op: str, size: float, place: Place) -> tuple[float, int, int]:
    """Return what one call sends from a NIC to other nodes: bytes, messages, and to how many NICs.

    >>> leaving("all_gather", 1024, Place(16, 2, 8)), leaving("all_to_all", 1024, Place(16, 2, 8)), leaving("send", 8, Place(2, 2, 1))
    ((120.0, 15, 1), (512.0, 8, 8), (8, 1, 1))
    """
    n, r = place.ranks, place.per_node
    if op == "send":
        return size, 1, 1
    if op == "all_to_all":
        return size * (n - r) / n, n - r, n - r
    if op in ("broadcast", "reduce"):
        return size / r, 1, 1
    times = 2 if op in ("all_reduce", "barrier") else 1
    return times * size * (n - 1) / (n * r), times * (n - 1), 1


def signatures(
    step: StepTime, plan: Plan, rows: Iterable[Operation], facts: ClusterFacts, gpu: Accelerator, bins: int = BINS
) -> tuple[Signature, ...]:  # fmt: skip
    """Return the signature of each stage (its first rank's NIC). Micro-batches that were not run are spread over their time."""
    by_stage: dict[int, list[Operation]] = {stage.index: [] for stage in plan.stages}
    for row in rows:
        by_stage[row.stage].append(row)
    out = []
    for stage in plan.stages:
        found = tuple(_bursts(by_stage[stage.index], plan, stage.index, facts, gpu))
        series = np.zeros(bins)
        for one in found:
            _spread(series, step, plan, stage.index, one)
        out.append(Signature(stage.index, step.step_seconds, found, series))
    return tuple(out)


def _bursts(rows: Iterable[Operation], plan: Plan, stage: int, facts: ClusterFacts, gpu: Accelerator) -> Iterable[Burst]:
    for row in rows:
        if row.op == "recv" or row.phase == "setup":
            continue
        place = place_of(plan, row.group, stage, facts.gpus_per_node, row.peer)
        if place.nodes < 2:
            continue
        size, messages, peers = leaving(row.op, max(row.bytes, 4), place)
        seconds = call_seconds(row.op, row.bytes, place, facts, gpu)
        yield Burst(
            row.op, row.group, row.phase, row.parallelism, row.what, row.count, size, seconds, messages, peers, peers
        )  # fmt: skip


def _spread(series: Floats, step: StepTime, plan: Plan, stage: int, burst: Burst) -> None:
    """Add the bytes of all calls of a kind to the intervals in which they are sent."""
    starts, lasts = _when(step, plan, stage, burst)
    if not starts.size:
        return
    run, whole = step.run, burst.calls * burst.bytes
    edges = np.linspace(0, step.step_seconds, len(series) + 1)
    # Bytes sent until a moment are a broken line: those of an interval are its difference at the edges.
    sent = np.zeros(len(edges))
    left_out = run.left_out * run.pace
    if left_out and burst.phase in ("forward", "backward", "data"):
        middle = max(run.ended) / 2
        sent += whole * run.left_out / step.micro_batches * np.clip((edges - middle) / left_out, 0, 1)
        starts = np.where(starts > middle, starts + left_out, starts)
    each = (whole - sent[-1]) / starts.size
    for start, last in zip(starts, lasts, strict=True):
        sent += each * np.clip((edges - start) / max(last, 1e-12), 0, 1)
    sent[-1] = whole
    series += np.diff(sent)


def _when(step: StepTime, plan: Plan, stage: int, burst: Burst) -> tuple[Floats, Floats]:
    """Return when the calls of a kind begin and how long each lasts; of very many calls some stand for all."""
    run, flag = step.run, flags(plan.config)
    numbers = [x for x in run.of_rank(stage) if (run.graph.actions[x].kind == "F") == (burst.phase in ("forward", "data"))]
    began, ended = np.array([run.started[x] for x in numbers]), np.array([run.ended[x] for x in numbers])
    if burst.phase in ("forward", "backward", "data"):
        if burst.op == "send":
            return ended, np.full(ended.size, burst.seconds)
        k = max(1, min(8, round(burst.calls / max(len(numbers), 1))))
        places = (np.arange(k) + 0.5) / k
        starts = (began[:, None] + (ended - began)[:, None] * places).ravel()
        return starts, np.full(starts.size, min(burst.seconds, float((ended - began).mean()) / k))
    end = run.ends[stage]
    if burst.phase == "gradients" and flag.gradients and ended.size:
        began_last, spent = float(began[-1]), float(ended[-1] - began[-1])
        starts = began_last + spent * (np.arange(burst.calls) + 0.5) / burst.calls
        return starts, np.full(burst.calls, burst.seconds)
    at = end if burst.phase == "gradients" else step.pipeline_seconds + step.gradients_seconds
    if burst.phase == "optimizer" and burst.op in ("all_gather", "broadcast"):
        at += step.loads[stage].optimizer
    calls = min(burst.calls, 64)
    return at + np.arange(calls) * burst.seconds * burst.calls / calls, np.full(calls, burst.seconds * burst.calls / calls)
