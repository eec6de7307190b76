"""Two ways to the same answer: the closed form of ``collectives.cost`` and transfers simulated over a fabric's links."""

from __future__ import annotations

import numpy as np
import pytest

from tokenwire.collectives import cost
from tokenwire.fabric import ClusterConfig, Fabric, build
from tokenwire.flows.stepwise import run_call

RATE, LATENCY = 50e9, 5e-7


def small(topology: str, n: int) -> Fabric:
    """Return the fabric of a small topology: a torus of that shape, or one switch."""
    if topology == "switch":
        return build(ClusterConfig(nodes=n, gpus_per_node=1, nics_per_node=1, link_latency="500 ns"))  # type: ignore[arg-type]
    shape = {"ring": (n,), "torus2d": (4, n // 4)}[topology]
    return build(ClusterConfig.model_validate({"preset": "tpu-v4-torus", "gpus": n, "gpus_per_node": 1, "shape": shape, "nic_rate": "50 GB/s",
                                               "link_latency": "500 ns", "routing": "static"}))  # fmt: skip


@pytest.mark.parametrize("topology", ["ring", "switch"])
@pytest.mark.parametrize(("op", "algorithm"), [("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "ring"), ("broadcast", "ring"),
                                               ("reduce", "ring"), ("all_reduce", "bidirectional"), ("all_gather", "bidirectional")])  # fmt: skip
@pytest.mark.parametrize("n", [3, 8, 16])
def test_rings_take_as_long_as_their_formula(topology: str, op: str, algorithm: str, n: int) -> None:
    size = n * 2 * 500_000
    ended = run_call(small(topology, n), op, algorithm, np.arange(n)[None], size)[1].max()
    assert ended == pytest.approx(cost(op, algorithm, n, size, rate=RATE, latency=LATENCY, topology=topology).seconds, rel=1e-6)


def test_exchanges_over_one_switch() -> None:
    # Pairwise: each step every rank sends to one and takes from one, n-1 times. Linear: all at once, n-1 at each port.
    for algorithm in ("pairwise", "linear"):
        ended = run_call(small("switch", 8), "all_to_all", algorithm, np.arange(8)[None], 8_000_000)[1].max()
        wanted = cost("all_to_all", algorithm, 8, 8_000_000, rate=RATE, latency=LATENCY, topology="switch").seconds
        assert ended == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("op", "algorithm"),
    [("all_reduce", "halving_doubling"), ("reduce_scatter", "halving_doubling"), ("all_gather", "halving_doubling"),
     ("all_gather", "pat"), ("reduce_scatter", "pat"), ("all_reduce", "hierarchical")],
)  # fmt: skip
def test_steps_that_differ_over_one_switch(op: str, algorithm: str) -> None:
    # Nobody sends to two or takes from two in a step, so that each step takes its bytes over the rate, and two latencies.
    ended = run_call(small("switch", 16), op, algorithm, np.arange(16)[None], 16_000_000)[1].max()
    wanted = cost(op, algorithm, 16, 16_000_000, rate=RATE, latency=LATENCY, topology="switch").seconds
    assert ended == pytest.approx(wanted, rel=1e-6)
