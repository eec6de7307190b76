"""Time and memory of a step's table and traffic, Llama 3.1 405B at 1k, 10k and 100k GPUs, against limits.

    python benchmarks/step.py

tp 8, pp 16, cp 2, the batch growing with the cluster. Each size runs in a process of its own; what imports take is in its
memory and not in its times. Limits: 1 s and 300 MB for table and per-rank traffic together. The last line of a size shows
what the link loads of the whole fabric cost on top; no limit is set for them here (benchmarks/flows.py has it).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

NODES = (128, 1280, 12544)
"""Nodes of 8 GPUs: 1,024, 10,240 and 100,352 GPUs."""
SECONDS, MEGABYTES = 1.0, 300.0


def _peak() -> float:
    # ru_maxrss also counts the parent before exec: read the process's own high-water mark where there is one.
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(nodes: int) -> None:
    """Print one size as JSON: seconds and peak megabytes, part by part."""
    from tokenwire.journey import scale

    parts: dict[str, tuple[float, float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        out = work()
        parts[name] = (time.perf_counter() - start, _peak())
        return out

    dp = nodes * 8 // (8 * 16 * 2)
    overrides = [f"cluster.nodes={nodes}", "plan.tp=8", "plan.pp=16", "plan.cp=2", f"training.global_batch={16 * dp}",
                 "training.micro_batch=1"]  # fmt: skip
    journey = scale("405b", overrides)
    timed("imports and model", lambda: __import__("polars") and journey.model())
    plan = journey.plan()
    assert (plan.world, plan.tp, plan.pp, plan.cp) == (nodes * 8, 8, 16, 2)
    rows = timed("table", journey.step)
    timed("fabric", journey.fabric)
    traffic = timed("traffic", journey.traffic)
    timed("per rank", lambda: traffic.per_rank)
    timed("link loads", lambda: traffic.link_bytes)
    print(json.dumps({"gpus": plan.world, "rows": len(rows), "parts": parts}))


def main() -> None:
    print(f"{'GPUs':>8}  {'what':26} {'seconds':>9} {'limit/s':>9} {'peak MB':>9} {'limit/MB':>9}")
    for nodes in NODES:
        ran = subprocess.run([sys.executable, __file__, str(nodes)], capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(ran.stderr)
        facts = json.loads(ran.stdout)
        parts = facts["parts"]
        needed = ("table", "fabric", "traffic", "per rank")
        table, whole = parts["table"], (sum(parts[name][0] for name in needed), parts["per rank"][1])
        for what, (seconds, peak) in ((f"table ({facts['rows']} rows)", table), ("table and traffic by rank", whole)):
            print(f"{facts['gpus']:8,}  {what:26} {seconds:9.3f} {SECONDS / seconds:8.1f}x {peak:9.1f} {MEGABYTES / peak:8.1f}x")
        seconds, peak = parts["link loads"]
        print(f"{facts['gpus']:8,}  {'loads of every link':26} {seconds:9.3f} {'':9} {peak:9.1f}")


if __name__ == "__main__":
    measure(int(sys.argv[1])) if len(sys.argv) > 1 else main()
