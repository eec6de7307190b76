"""How fast links are shared and loads are found: against other simulators and against limits.

    python benchmarks/flows.py [--large]

Where /usr/bin/python3 has SimGrid (Debian: apt-get install python3-simgrid) it simulates the same flows over the same links
in this run, and the finish times are compared; else its time is the noted one (SIMGRID), as ASTRA-sim's always is, and the ratio
compares two machines. A first run compiles; it is timed apart. ``--large`` adds 114,681 flows on 16,384
hosts, 32,764 flows that come and go on 8,192, and the step of 100,352 GPUs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tokenwire.collectives import cost
from tokenwire.fabric import routes
from tokenwire.fabric.clos import build_clos
from tokenwire.fabric.fabric import Fabric
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.flows.maxmin import simulate
from tokenwire.journey import scale

SIMGRID = {1023: 1.6, 4092: 23.7}
"""SimGrid 3.32's seconds by flows: 1,024 hosts, three-level fat tree, 64 MiB each, random permutations at once."""
ASTRA = {
    ("all_reduce", "ring", 64): (0.06, 9.84), ("all_reduce", "ring", 256): (0.94, 9.96), ("all_reduce", "ring", 1024): (23.5, 9.99),
    ("all_reduce", "switch", 64): (0.11, None), ("all_reduce", "switch", 256): (1.2, None), ("all_reduce", "switch", 1024): (31.6, None),
    ("all_to_all", "ring", 64): (0.96, None), ("all_to_all", "switch", 64): (0.90, None), ("all_to_all", "ring", 256): (48.5, None),
    ("all_to_all", "ring", 1024): (60.0, None),
}  # fmt: skip
"""ASTRA-sim's own seconds and, where it was noted, the milliseconds that it simulates (analytical, congestion aware; 256 MiB, links of
50 GiB/s and 500 ns); of the last it had no answer in 60 s."""


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds and the result."""
    start = time.perf_counter()
    out = work()
    return time.perf_counter() - start, out


def fat_tree(h: int, pods: int) -> Fabric:
    """Return a three-level fat tree: h hosts a leaf, h leaves a pod, switches of 2h ports, cores of as many as pods; 50 GB/s links."""
    facts = ClusterFacts().model_copy(
        update={
            "nodes": h * h * pods, "gpus_per_node": 1, "nics_per_node": 1, "rails": 1, "nodes_per_unit": h, "units_per_pod": h,
            "deep_units_per_pod": h, "spine_radix": 2 * h, "core_radix": pods, "domain": "none",
        }
    )  # fmt: skip
    return build_clos(f"fat tree of {pods} pods", facts)


def permutations(hosts: int, how_many: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return senders and receivers of random permutations, without those who send to themselves."""
    random = np.random.default_rng(seed)
    src = np.tile(np.arange(hosts), how_many)
    dst = np.concatenate([random.permutation(hosts) for _ in range(how_many)])
    return src[src != dst], dst[src != dst]


def line(what: str, seconds: float, against: float | None, where: str) -> None:
    """Print one line: what, seconds, what it is set against, the ratio."""
    other, ratio = (f"{against:10.3g}", f"{against / seconds:9,.0f}x") if against else (f"{'':10}", f"{'':10}")
    print(f"{what:58} {seconds:10.4f} {other} {ratio}  {where}")


def simgrid(ways: tuple[np.ndarray, np.ndarray], size: np.ndarray, rate: np.ndarray) -> tuple[float, np.ndarray] | None:
    """Return SimGrid's seconds (of the run alone, without setting up) and finish times, or None where it is not installed."""
    script = Path(__file__).with_name("simgrid_flows.py")
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "flows.json", Path(folder) / "ended.json"
        columns = {"first": ways[0], "links": ways[1], "rate": rate, "size": size}
        given.write_text(json.dumps({name: column.tolist() for name, column in columns.items()}))
        try:
            ended = subprocess.run(["/usr/bin/python3", script, given, found], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return float(ended.stdout.splitlines()[-1]), np.array(json.loads(found.read_text()))


def shared(h: int, pods: int, how_many: int, spread: bool) -> None:
    """Time flows over a fat tree; with ``spread`` they differ in size and start."""
    fabric = fat_tree(h, pods)
    src, dst = permutations(fabric.world, how_many)
    ways = routes(fabric, src, dst)
    random = np.random.default_rng(2)
    size = random.integers(1 << 20, 1 << 27, src.size) if spread else np.full(src.size, 1 << 26)
    start = random.random(src.size) * 0.01 if spread else 0.0
    seconds, found = timed(lambda: simulate(ways, size, fabric.rate, start=start))
    kind = "sizes and starts differ" if spread else "64 MiB each"
    against = None if spread or fabric.world != 1024 else SIMGRID.get(src.size)
    where = "SimGrid 3.32, noted" if against else ""
    peer = simgrid(ways, np.broadcast_to(size, src.shape), fabric.rate) if fabric.world == 1024 and not spread else None
    if peer is not None:
        against, where = peer[0], "SimGrid, this run"
    line(f"{src.size:,} flows on {fabric.world:,} hosts, {kind}", seconds, against, where)
    if peer is not None:
        apart = float(np.abs(found.ended / peer[1] - 1).max())
        print(f"{'':4}finish times differ by at most {apart:.1e} of themselves (limit 1e-3)")
    print(f"{'':4}{found.events:,} events, {found.settings:,} rates set, makespan {found.makespan:.6f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    large = parser.parse_args().large
    print(f"{'':58} {'seconds':>10} {'other':>10} {'faster':>10}  where")
    one = (np.array([0, 1]), np.array([0]))
    line("compiling, or loading what was compiled", timed(lambda: simulate(one, 1, [1.0]))[0], None, "")
    for how_many in (1, 4):
        shared(8, 16, how_many, spread=False)
    shared(8, 16, 4, spread=True)
    if large:
        shared(16, 64, 7, spread=False)
        shared(16, 32, 4, spread=True)
    for (op, topology, n), (other, makespan) in ASTRA.items():
        algorithm, chunks = ("ring", 4) if op == "all_reduce" else ("pairwise", 1)
        call = lambda: cost(op, algorithm, n, 256 << 20, rate=50 * 2**30, latency=5e-7, chunks=chunks, topology=topology)  # noqa: B023, E731
        call()  # the first call loads modules
        seconds, found = timed(call)
        line(f"{op}, {topology} of {n:,}: {found.seconds * 1e3:.2f} ms", seconds, other, "ASTRA-sim, noted")
        if makespan:
            print(f"{'':4}makespan {found.seconds * 1e3 / makespan - 1:+.2%} of ASTRA-sim's {makespan} ms (limit 1 %)")
    for nodes, limit in ((2048, 5.0), *(((12544, 60.0),) if large else ())):
        journey = scale("405b", [f"cluster.nodes={nodes}", f"training.global_batch={nodes}"])
        journey.step()
        seconds, _ = timed(lambda journey=journey: journey.traffic().link_bytes)
        line(f"link loads of a step, Llama 3.1 405B, {8 * nodes:,} GPUs", seconds, limit, "limit")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
