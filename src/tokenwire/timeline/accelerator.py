"""What a GPU can do: peaks, memory, the best that its kernels reach, and what was measured on it. Facts from ``catalog/``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterFacts
from tokenwire.fabric.gpus import UNNAMED, kind_of, known, named_facts, peak_of, sources
from tokenwire.units import parse_flops, parse_rate, parse_seconds

KERNEL_SECONDS = 5e-6
"""Start and end of one memory-bound kernel where nothing was measured (assumed)."""
MEMORY_SHARE = 0.8
"""Share of the memory's rate that such a kernel reaches where nothing was measured (assumed)."""


@dataclass(frozen=True)
class CallCost:
    """A measured kind of call inside a node: share of the rate, seconds a hop, seconds fixed (by ranks where that differs)."""

    share: float
    latency: float
    fixed: float
    fixed_by_ranks: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Tables:
    """Measured shares of the peak by shape: see ``catalog/b200.toml`` for the columns."""

    source: str
    peak: float
    matmul: dict[str, dict[tuple[int, int, int], float]]
    grouped: dict[str, dict[tuple[int, int, int, int], float]]
    attention: dict[tuple[int, int, int, int, int], tuple[float, float]]


@dataclass(frozen=True)
class Accelerator:
    """One kind of GPU. Rates in FLOP/s and bytes/s; ``matmul`` and ``attention`` are shares of the peak reached at best.

    ``kind`` is its name in the catalog. ``sustained`` are the speeds of products, attention and memory in a long run over those alone,
    ``beside`` the share of a call's time that products running beside it lose to it: ``calibration`` sets them.
    """

    name: str
    peaks: dict[str, float] = field(hash=False)
    memory_rate: float
    processors: int
    matmul: float
    attention: tuple[float, float]
    kernel_seconds: float = KERNEL_SECONDS
    memory_shares: dict[str, float] = field(default_factory=lambda: {"default": MEMORY_SHARE}, hash=False)
    tables: Tables | None = field(default=None, hash=False)
    network_rate: float = 0.0
    network: dict[str, CallCost] = field(default_factory=dict, hash=False)
    sustained: float = 1.0
    sustained_attention: float = 1.0
    sustained_memory: float = 1.0
    beside: float = 0.0
    kind: str = ""
    source: str = ""
    assumed: tuple[str, ...] = ()

    def in_four_bits(self) -> Accelerator:
        """Return the accelerator with its products of 8 bits at the peak of 4, for plans that cannot say the latter."""
        return replace(self, peaks={**self.peaks, "fp8": self.peaks.get("fp4", self.peak("fp8"))})

    def peak(self, precision: str) -> float:
        """Return the dense peak in FLOP/s of matrix products of a precision (fp16 as bf16; fp8 as bf16 where there is none)."""
        if precision == "fp8":
            return self.peaks.get("fp8", self.peaks["bf16"])
        return self.peaks["fp32" if precision == "fp32" else "bf16"]

    def memory_seconds(self, size_bytes: float, kind: str = "default", kernels: int = 1) -> float:
        """Return the seconds of ``kernels`` memory-bound kernels that move ``size_bytes`` in all."""
        share = self.memory_shares.get(kind, self.memory_shares["default"])
        return size_bytes / (self.memory_rate * share * self.sustained_memory) + kernels * self.kernel_seconds


@cache
def accelerator(gpu: str, peak_flops: float | None = None, *, measured: bool = True) -> Accelerator:
    """Return the accelerator of a GPU named as clusters name it; ``peak_flops`` replaces its bf16 peak.

    ``measured`` False leaves measured tables out: the generic curve alone. Raises ``InputError`` for an unknown GPU.

    >>> accelerator("H100 SXM").memory_rate, accelerator("B200").tables is not None
    (3350000000000.0, True)
    """
    facts = named_facts(gpu)
    peaks: dict[str, float] = {key: parse_flops(facts[key]) for key in ("bf16", "fp8", "fp4", "fp32") if key in facts}
    if peak_flops is not None and peak_flops != peaks["bf16"]:
        peaks = {key: value * peak_flops / peaks["bf16"] for key, value in peaks.items()}
    out = Accelerator(
        gpu, peaks, parse_rate(facts["memory_rate"]), facts["processors"], facts["matmul"],
        (facts["attention"][0], facts["attention"][1]), kind=kind_of(gpu),
        source="; ".join(sources()),
    )  # fmt: skip
    if measured and "measured" in facts:
        out = _with_tables(out, facts["measured"])
    elif measured and "same_chip" in facts:
        out = _with_kernels(out, facts["same_chip"])
    return replace(out, assumed=tuple(_assumed(gpu)))


@cache
def accelerator_of(facts: ClusterFacts) -> Accelerator:
    """Return the accelerator of a cluster's GPU: by its name, or by what the cluster says of it.

    One that is not known has the generic curve: the processors of the known one with the nearest peak, and its best share of the peak.
    Raises ``InputError`` for one that is not known and of which too little is said.

    >>> own = ClusterFacts(gpu="X9", peak_flops="1000 TFLOP/s", memory_rate="4 TB/s", gpu_memory="96 GiB", matmul_efficiency=0.6)
    >>> accelerator_of(own).memory_rate, accelerator_of(own).matmul, accelerator_of(own).processors
    (4000000000000.0, 0.6, 132)
    """
    try:
        found = accelerator(facts.gpu, facts.peak_flops)
    except InputError:
        if facts.memory_rate is None:
            raise
        found = _said(facts)
    return replace(
        found, memory_rate=facts.memory_rate or found.memory_rate, processors=facts.processors or found.processors,
        matmul=facts.matmul_efficiency or found.matmul, tables=found.tables if facts.matmul_efficiency is None else None,
    )  # fmt: skip


def _said(facts: ClusterFacts) -> Accelerator:
    near = accelerator(min(known(), key=lambda name: abs(math.log(peak_of(name) / facts.peak_flops))), measured=False)
    taken = [name for name in ("processors", "matmul_efficiency") if getattr(facts, name) is None]
    peaks = {key: value * facts.peak_flops / near.peaks["bf16"] for key, value in near.peaks.items()}
    likeness = f"{', '.join([*taken, 'attention and the peaks of other precisions'])} as on {near.name}, whose peak is nearest"
    return replace(near, name=facts.gpu, kind="", peaks=peaks, source="the cluster", assumed=(f"{facts.gpu} is not known: {likeness}",))


def _assumed(gpu: str) -> Iterator[str]:
    if not gpu:
        yield f"the cluster names no GPU: taken as an {UNNAMED.upper()} with its peak"


def _with_tables(out: Accelerator, name: str) -> Accelerator:
    facts = _read(name)
    memory, network, tables = facts["memory"], facts["network"], facts["tables"]
    matmul: dict[str, dict[tuple[int, int, int], float]] = {}
    for m, k, n, layout, share in tables["matmul"]:
        matmul.setdefault(layout, {})[m, k, n] = share
    grouped: dict[str, dict[tuple[int, int, int, int], float]] = {}
    for groups, rows, n, k, phase, share in tables["grouped"]:
        grouped.setdefault(phase, {})[groups, rows, k, n] = share
    attention = {(row[0], row[1], row[2], row[3], row[4]): (row[5], row[6]) for row in tables["attention"]}
    calls = {
        op: CallCost(
            c["share"], parse_seconds(c["latency"]), parse_seconds(c["fixed"]),
            tuple((int(n), parse_seconds(t)) for n, t in c.get("fixed_by_ranks", {}).items()),
        )
        for op, c in network.items() if isinstance(c, dict)
    }  # fmt: skip
    return replace(
        out, memory_rate=parse_rate(memory["rate"]), kernel_seconds=parse_seconds(memory["latency"]),
        memory_shares=memory["shares"], network_rate=parse_rate(network["rate"]), network=calls,
        tables=Tables(facts["source"], parse_flops(facts["peak"]), matmul, grouped, attention),
        source=facts["source"],
    )  # fmt: skip


def _with_kernels(out: Accelerator, name: str) -> Accelerator:
    """Return an accelerator with what was measured of attention and experts' kernels on another with the same chip.

    Shares of the peak are of the chip; rates of its memory and network, and plain products, which power decides, stay its own.
    """
    other = _with_tables(out, name)
    if other.tables is None:
        return out
    shares = {"default": MEMORY_SHARE, **{kind: share for kind, share in other.memory_shares.items() if kind != "default"}}
    return replace(out, tables=replace(other.tables, matmul={}), memory_shares=shares, source=f"{out.source}; {other.source}")


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("tokenwire.timeline") / "catalog" / f"{name}.toml").read_text("utf-8"))
