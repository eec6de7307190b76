"""Flows against packets: ns-3's TCP over the same small networks (extra ``packets``, or TOKENWIRE_NS3 = a Python that has it)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tokenwire.flows.maxmin import simulate

pytestmark = pytest.mark.slow

RATE = 125e6
GOODPUT = RATE * 1448 / (1448 + 32 + 20 + 2)
"""A segment of 1,448 B has a TCP header with timestamps of 32 B, IPv4 of 20 B, and a PPP field of 2 B around it."""
S = 10_000_000

# Cables (both ways), flows, and the cables (of which each direction is a link) that each flow takes.
CASES = {
    "one flow over two links": ([(0, 2), (1, 2)], [(0, 1, S)], [[(0, 2), (2, 1)]]),
    "two flows into one link": ([(0, 2), (1, 2), (2, 3)], [(0, 3, S), (1, 3, S)], [[(0, 2), (2, 3)], [(1, 2), (2, 3)]]),
    "one of them three times as long": ([(0, 2), (1, 2), (2, 3)], [(0, 3, S), (1, 3, 3 * S)], [[(0, 2), (2, 3)], [(1, 2), (2, 3)]]),
    "four flows into one link": (
        [(i, 4) for i in range(4)] + [(4, 5)], [(i, 5, S) for i in range(4)], [[(i, 4), (4, 5)] for i in range(4)],
    ),
    "both ways over one link": ([(0, 1)], [(0, 1, S), (1, 0, S)], [[(0, 1)], [(1, 0)]]),
    "a ring of four": ([(0, 1), (1, 2), (2, 3), (3, 0)], [(i, (i + 1) % 4, S) for i in range(4)], [[(i, (i + 1) % 4)] for i in range(4)]),
    "a long flow across two short ones": ([(0, 1), (1, 2)], [(0, 2, S), (0, 1, S), (1, 2, S)], [[(0, 1), (1, 2)], [(0, 1)], [(1, 2)]]),
}  # fmt: skip


@cache
def packets() -> dict[str, list[float]]:
    """Return ns-3's finish times of all cases: one process, since its import takes longest."""
    python = os.environ.get("TOKENWIRE_NS3") or (sys.executable if find_spec("ns") else "")
    if not python:
        pytest.skip("needs ns-3: the extra `packets`, or TOKENWIRE_NS3")
    import tempfile

    script = Path(__file__).resolve().parents[2] / "benchmarks" / "ns3_flows.py"
    with tempfile.TemporaryDirectory() as folder:
        given, ended = Path(folder) / "given.json", Path(folder) / "ended.json"
        asked = [{"nodes": 1 + max(max(ends) for ends in cables), "links": [[*ends, RATE, 1e-6] for ends in cables],
                  "flows": [[*flow, 0] for flow in flows]} for cables, flows, _ in CASES.values()]  # fmt: skip
        given.write_text(json.dumps(asked))
        subprocess.run([python, str(script), str(given), str(ended)], check=True, capture_output=True, timeout=600)
        return dict(zip(CASES, json.loads(ended.read_text()), strict=True))


def shared(name: str) -> np.ndarray:
    cables, flows, taken = CASES[name]
    number = {ends: i for i, ends in enumerate([*cables, *[(b, a) for a, b in cables]])}
    offsets = np.cumsum([0, *[len(way) for way in taken]])
    links = np.array([number[ends] for way in taken for ends in way])
    return simulate((offsets, links), [size for _, _, size in flows], np.full(len(number), GOODPUT)).ended


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("a long")])
def test_finish_times(name: str) -> None:
    # Equals share a link evenly in TCP too. What both ways share are acknowledgements: 1 of 54 B for 2 segments.
    share = 0.03 if name in ("both ways over one link", "a ring of four") else 0.005
    assert np.array(packets()[name]) == pytest.approx(shared(name), rel=share)


def test_tcp_is_not_fair_to_the_long_way() -> None:
    # Max-min gives each half: all end at 2S. TCP gives the flow over two links less, the short ones end sooner: the links
    # are full all the same, so the last ends when max-min's does.
    name = "a long flow across two short ones"
    long, *short = packets()[name]
    assert shared(name).tolist() == pytest.approx([2 * S / GOODPUT] * 3)
    assert long == pytest.approx(2 * S / GOODPUT, rel=0.005)
    assert max(short) < long
