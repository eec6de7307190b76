"""A calibration made: hosts stand up, ranks measure, the slowest counts."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

from tokenwire.measure.calibrate.calibration import Calibration
from tokenwire.measure.calibrate.probing import Probe
from tokenwire.measure.dryrun.record import require_torch
from tokenwire.measure.hosts import NetworkConfig, network, own_folder
from tokenwire.measure.training.running import run
from tokenwire.measure.training.task import meeting


def calibrate(config: NetworkConfig, timeout: float = 600.0, note: Callable[[str], None] | None = None) -> Calibration:
    """Measure this machine as so many hosts. Raises ``InputError`` as ``measure`` does, ``MissingExtra`` without torch."""
    require_torch("a calibration")
    groups = tuple(n for n in range(2, config.ranks + 1) if config.ranks % n == 0)
    with own_folder() as folder, network(config) as net:
        probe = Probe(**meeting(net), groups=groups, timeout=min(timeout, 300.0))
        runs = run(probe, net, folder, timeout, note)
        said = net.said
    calls: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for op, n, size, seconds in runs[0]["calls"]:
        calls.setdefault((op, n), []).append((size, seconds / (2 if op == "send" else 1)))
    products, attentions = (
        tuple((*rows[0][:-1], min(row[-1] for row in rows)) for rows in zip(*(run[kind] for run in runs), strict=True))
        for kind in ("matmul", "attention")
    )
    return Calibration(_machine(), _with_shape(said, config), config.ranks, {key: tuple(points) for key, points in calls.items()},
                       products, attentions)  # fmt: skip


def _with_shape(said: str, config: NetworkConfig) -> str:
    rate = f", {config.rate * 8 / 1e6:,.6g} Mb/s a host" if config.rate is not None else ""
    delay = f", {config.delay * 1e3:g} ms" if config.delay else ""
    return said + rate + delay


def _machine() -> str:
    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next((line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {len(os.sched_getaffinity(0))} cores"
