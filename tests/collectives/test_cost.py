"""Times on small topologies: by hand, against another simulator's figures, and what can never be."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.collectives import OPERATIONS, algorithms, busbw, cost
from tokenwire.collectives.topology import TOPOLOGIES, ports
from tokenwire.errors import InputError

KINDS = [(op, name) for op in OPERATIONS for name in algorithms(op) if op not in ("barrier", "recv")]


@pytest.mark.parametrize(("n", "milliseconds"), [(64, 9.84), (256, 9.96), (1024, 9.99)])
def test_ring_agrees_with_astra_sim(n: int, milliseconds: float) -> None:
    # ASTRA-sim, analytical, congestion aware: ring of 50 GiB/s links, 500 ns a hop, 256 MiB in 4 chunks.
    found = cost("all_reduce", "ring", n, 256 << 20, rate=50 * 2**30, latency=500e-9, chunks=4, topology="ring")
    assert found.seconds == pytest.approx(milliseconds / 1000, rel=0.01)


def test_by_hand() -> None:
    # 4 ranks, 400 B, 100 B/s: 6 steps of 1 s, and 6 latencies of 0.5 s.
    assert cost("all_reduce", "ring", 4, 400, rate=100, latency=0.5, topology="ring").seconds == 6 * 1.5
    # In 2 pieces of 0.5 s: a step begins every max(2·0.5, 0.5 + 0.5) = 1 s; 5·1 + 2·0.5 + 0.5.
    assert cost("all_reduce", "ring", 4, 400, rate=100, latency=0.5, chunks=2, topology="ring").seconds == 6.5
    # Pairwise over a ring of 4: distances 1, 2, 3 load a link with 1, 2 and 1 pieces of 100 B.
    assert cost("all_to_all", "pairwise", 4, 400, rate=100, topology="ring").seconds == 4
    # Over a switch each step takes one piece.
    assert cost("all_to_all", "pairwise", 4, 400, rate=100, topology="switch").seconds == 3
    # All at once over a ring of 4: distance 1 and, the same way, 2 (two pieces): 3 pieces the one way, 1 the other.
    assert cost("all_to_all", "linear", 4, 400, rate=100, topology="ring").seconds == 3
    # Halving and doubling of 4: 200 B, 100 B, 100 B, 200 B; over a switch nothing is in the way.
    assert cost("all_reduce", "halving_doubling", 4, 400, rate=100, topology="switch").seconds == 6
    # NVLS: 400 + 100 B.
    assert cost("all_reduce", "nvls", 4, 400, rate=100).seconds == 5


def test_group_of_one_sends_nothing() -> None:
    found = cost("all_reduce", "ring", 1, 1 << 30, rate=1e9, latency=1e-6)
    assert (found.seconds, found.sent_bytes, found.busbw) == (0, 0, 0)


def test_nvls_beats_its_links_and_no_other_does() -> None:
    # 8 GPUs on 450 GB/s: 2·7/9 = 1.56 times the rate at best (measured with NVLS: 480 GB/s, above the links' 450).
    found = cost("all_reduce", "nvls", 8, 1 << 30, rate=450e9)
    assert found.busbw == pytest.approx(450e9 * 2 * 7 / 9)
    assert found.in_network


@pytest.mark.parametrize(("op", "name"), KINDS)
@given(
    n=st.integers(1, 40), S=st.integers(0, 10**9), rate=st.floats(1e6, 1e12), latency=st.floats(0, 1e-3),
    chunks=st.integers(1, 9), topology=st.sampled_from(TOPOLOGIES),
)  # fmt: skip
@settings(max_examples=10)
def test_never_faster_than_the_links(
    op: str, name: str, n: int, S: int, rate: float, latency: float, chunks: int, topology: str
) -> None:
    n = 2 if op == "send" else n
    found = cost(op, name, n, S, rate=rate, latency=latency, chunks=chunks, topology=topology)
    assert found.seconds >= found.bound_seconds * (1 - 1e-9)
    # Where switches add, a rank still sends S once, of which busbw counts 2(n-1)/n.
    beyond = 2.0 if found.in_network else 1.0
    assert found.busbw <= beyond * rate * ports(topology, n) * (1 + 1e-9)
    # Twice the rate, half the latency, half the bytes: never slower.
    for change in ({"rate": 2 * rate}, {"latency": latency / 2}):
        other = cost(op, name, n, S, **{"rate": rate, "latency": latency, "chunks": chunks, "topology": topology, **change})  # type: ignore[arg-type]
        assert other.seconds <= found.seconds * (1 + 1e-9)
    # All bytes and the rate scaled alike: the same time.
    scaled = cost(op, name, n, 4 * S, rate=4 * rate, latency=latency, chunks=chunks, topology=topology)
    assert scaled.seconds == pytest.approx(found.seconds, rel=1e-9)


def test_ring_busbw_reaches_the_link() -> None:
    # Long messages: latency vanishes, and busbw is the rate of the one link that a ring uses.
    found = cost("all_reduce", "ring", 8, 1 << 40, rate=50e9, latency=1e-6, topology="switch")
    assert found.busbw == pytest.approx(50e9, rel=1e-5)


def test_busbw_of_nccl_tests() -> None:
    # nccl-tests, doc/PERFORMANCE.md: all_reduce 2(n-1)/n, all_gather and the like (n-1)/n, broadcast 1.
    assert busbw("all_reduce", 4, 100, 1) == 150
    assert busbw("all_to_all", 4, 100, 1) == 75
    assert busbw("broadcast", 4, 100, 1) == 100


@pytest.mark.parametrize(
    "change",
    [{"n": 0}, {"n": -3}, {"size_bytes": -1}, {"rate": 0.0}, {"rate": -1.0}, {"rate": float("nan")}, {"latency": -1.0},
     {"chunks": 0}, {"chunks": 10**9}, {"topology": "tree"}, {"op": "allreduce"}, {"algorithm_name": "rign"}, {"n": 1 << 30}],
)  # fmt: skip
def test_what_cannot_be(change: dict[str, object]) -> None:
    call: dict[str, object] = {"op": "all_reduce", "algorithm_name": "ring", "n": 4, "size_bytes": 100, "rate": 1e9, **change}
    with pytest.raises(InputError) as caught:
        cost(**call)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tokenwire", *arguments], capture_output=True, text=True, check=False)


def test_the_verb() -> None:
    ended = command(
        "collective", "all_reduce", "--ranks", "1024", "--bytes", "256MiB", "--topology", "ring", "--link", "50 GiB/s",
        "--latency", "500 ns", "--chunks", "4", "--json",
    )  # fmt: skip
    facts = json.loads(ended.stdout)
    assert facts["seconds"] == pytest.approx(9.99e-3, rel=0.01)
    assert facts["sent_bytes_per_rank"] == 2 * 1023 * (256 << 20) // 1024
    assert facts["algorithm"] == "ring"
    assert facts["busbw_bytes_per_s"] <= 50 * 2**30


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["allreduce"], "all_reduce"), (["all_reduce", "--bytes", "256"], "--bytes"), (["all_reduce", "--link", "50"], "--link"),
        (["all_reduce", "--ranks", "0"], "ranks"), (["all_reduce", "--latency=-3 us"], "latency"),
        (["send", "--ranks", "3"], "2 ranks"), (["all_to_all", "--ranks", "2000", "--transfers"], "--csv"),
        (["all_reduce", "--csv", "no/such/folder.csv"], "folder.csv"), (["all_reduce", "--ranks", "99999999999"], "ranks"),
        (["all_gather", "--algorithm", "tree"], "ring"), (["all_reduce", "--link", "0 Gb/s"], "zero"),
    ],
)  # fmt: skip
def test_the_verb_on_wrong_input(arguments: list[str], word: str) -> None:
    ended = command("collective", *arguments)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert word in ended.stderr
    assert ended.stdout == ""
