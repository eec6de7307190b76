"""The process of one rank that is measured: calls of gloo by size, then products and attention, all ranks at once.

Ranks compute at the same time, as they do in training: where there are fewer cores than ranks, a rank gets its share of them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenwire.measure.training.task import Task, join

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
SIZES = (64, 4096, 32_768, 262_144, 1_048_576, 4_194_304)
"""Bytes of the full tensor."""
PRODUCTS = ((64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (128, 1024, 1024), (1024, 64, 256), (1024, 256, 64))
"""m, k, n of matrix products."""
ATTENTIONS = ((64, 8, 8, 8), (256, 8, 8, 32), (512, 8, 8, 64))
"""s, heads, KV heads, d of causal attention, batch 1."""
_ROUND, _MOST, _REPEATS = 0.1, 50, 5
"""Seconds of a round of equal calls, how many they are at most, and rounds."""
_LONG = 1.0
"""Seconds of a call beyond which larger ones are not tried."""


@dataclass(frozen=True, kw_only=True)
class Probe(Task):
    """``groups``: numbers of ranks that call each other; all groups of one size at once."""

    module = "tokenwire.measure.calibrate.probing"
    groups: tuple[int, ...]


def run(folder: Path, rank: int, task: Probe) -> None:
    """Measure as ``rank`` and write ``calls`` (op, n, bytes, s), ``matmul`` (m, k, n, FLOP/s), ``attention`` (s, ..., d, FLOP/s)."""
    import torch.distributed as dist

    store = join(task, rank)
    calls = [row for n in task.groups for row in _of_group(n, rank, task.world)]
    found = {"calls": calls, "matmul": _products(), "attention": _attentions()}
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    store.add("gone", 1)
    while rank == 0 and int(store.add("gone", 0)) < task.world:
        time.sleep(0.01)


def _of_group(n: int, rank: int, world: int) -> list[tuple[str, int, int, float]]:
    import torch.distributed as dist

    groups = [dist.new_group(list(range(first, first + n))) for first in range(0, world, n)]
    own, out = groups[rank // n], []
    for op in CALLS:
        for size in SIZES:
            seconds = _seconds(_call(op, n, size, rank, own), own)
            out.append((op, n, size, seconds))
            if seconds > _LONG:
                break
    return out


def _seconds(call: Callable[[], Any], group: Any) -> float:
    # The median over rounds of the mean of a round; the slowest rank's, so that all ranks decide alike.
    call()
    times = max(1, min(_MOST, int(_ROUND / max(_slowest(_of_round(call, 1, group)), 1e-6))))
    return _slowest(statistics.median(_of_round(call, times, group) for _ in range(_REPEATS)))


def _of_round(call: Callable[[], Any], times: int, group: Any) -> float:
    import torch.distributed as dist

    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times


def _slowest(seconds: float) -> float:
    import torch
    import torch.distributed as dist

    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


def _call(op: str, n: int, size: int, rank: int, group: Any) -> Callable[[], Any]:
    import torch
    import torch.distributed as dist

    first, place = rank - rank % n, rank % n
    part = max(1, size // 4 // n)
    whole, piece = torch.zeros(part * n), torch.zeros(part)
    other = torch.empty_like(whole)

    def send() -> None:
        # There and back between neighbours, so half of it is one send; of an odd number the last one watches.
        peer = first + (place ^ 1)
        if peer >= first + n:
            return
        for mine in (place % 2 == 0, place % 2 == 1):
            if mine:
                dist.send(whole, peer, group)
            else:
                dist.recv(other, peer, group)

    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, piece, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, first, group=group),
        "send": send,
    }[op]


def _rate(flops: float, work: Callable[[], Any]) -> float:
    work()
    began, times = time.perf_counter(), 0
    while times < 2 or time.perf_counter() - began < _ROUND:
        work()
        times += 1
    return flops * times / (time.perf_counter() - began)


def _products() -> list[tuple[int, int, int, float]]:
    import torch

    out = []
    for m, k, n in PRODUCTS:
        a, b, c = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
        out.append((m, k, n, _rate(2.0 * m * k * n, lambda a=a, b=b, c=c: torch.mm(a, b, out=c))))  # type: ignore[misc]
    return out


def _attentions() -> list[tuple[int, int, int, int, float]]:
    import torch
    import torch.nn.functional as F

    out = []
    for s, heads, kv, d in ATTENTIONS:
        q, k = torch.rand(1, heads, s, d), torch.rand(1, kv, s, d)
        # Two products of s x s x d a head; half of the scores are masked.
        work = lambda q=q, k=k: F.scaled_dot_product_attention(q, k, k, is_causal=True)  # noqa: E731
        out.append((s, heads, kv, d, _rate(2.0 * heads * s * s * d, work)))
    return out
