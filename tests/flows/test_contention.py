"""Kinds of communication on their own: bounds, failures, and the verb ``flows``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.flows.test_traffic import call, of, plan, said
from tokenwire.flows.contention import compared, kinds, spread


def test_one_message_by_hand() -> None:
    # 50,000 B over NIC to leaf to NIC of 50 GB/s: 1 us, and 500 ns on each of two links.
    found = next(kinds(of(said(call(0, "send", "pp", 2, 50_000, peer=1)), plan(tp=1, dp=8, pp=2)), of_fabric()))
    assert found.shared.ended.tolist() == pytest.approx([2e-6] * 8)
    assert found.bound == pytest.approx(1e-6)


def of_fabric() -> object:
    from tokenwire.fabric import ClusterConfig, build

    return build(ClusterConfig(nodes=2))


def test_a_failed_leaf_doubles_what_shares_a_nic() -> None:
    traffic = of(said(call(0, "send", "pp", 2, 10**9, peer=1)), plan(tp=1, dp=8, pp=2))
    found, facts = compared(traffic, ["leaf3"])
    # GPU 3 goes by another GPU's NIC: two flows on it, 1 GB each at 25 GB/s.
    assert facts[0]["slowdown"] == pytest.approx(2, rel=1e-3)
    assert facts[0]["worst_link_flows"] == 2
    assert facts[0]["seconds"] == pytest.approx(2e9 / 50e9, rel=1e-3)
    assert found[0].shared.makespan >= found[0].bound


def test_never_below_the_busiest_link() -> None:
    rows = [call(stage, op, "world", 24, 10**7) for stage in (0, 1) for op in ("all_reduce", "all_to_all", "broadcast")]
    traffic = of(said(*rows), plan())
    found = list(kinds(traffic, traffic.fabric))
    assert len(found) == 3
    for kind in found:
        assert kind.shared.makespan >= kind.bound * (1 - 1e-9)
        assert kind.link_bytes.sum() == int((kind.bytes * kind.links).sum())


def test_spread_over_seeds_is_ordered() -> None:
    traffic = of(said(call(0, "all_to_all", "world", 24, 10**7), call(1, "all_to_all", "world", 24, 10**7)), plan())
    (row,) = spread(traffic, 5)
    assert row["least_seconds"] <= row["median_seconds"] <= row["most_seconds"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tokenwire", "flows", *arguments], capture_output=True, text=True, check=False)


def test_the_verb() -> None:
    facts = json.loads(command("--fail", "leaf3", "--json").stdout)
    assert facts["failed"] == ["leaf3"]
    sends = [row for row in facts["kinds"] if row["op"] == "send"]
    assert sends
    assert all(row["slowdown"] > 1.9 for row in sends)
    assert "leaf3" not in {part for row in facts["kinds"] for part in row["worst_link"].split("-")}
    lines = command("--only", "pp", "--csv", "-").stdout.splitlines()
    assert lines[0] == "src,dst,bytes,links,seconds,rate,op,group,phase,parallelism"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--fail", "lef3"], "leaf"), (["--fail", "leaf77"], "leaf77"), (["--only", "dpp"], "dp"), (["--seeds", "-1"], "--seeds"),
     (["--fail", "gpu0"], "GPU"), (["--fail", "leaf0-leaf1"], "not joined"),
     ([f"--fail=leaf{i}" for i in range(4)], "no way is left")],
)  # fmt: skip
def test_the_verb_on_wrong_input(arguments: list[str], word: str) -> None:
    flat = [part for argument in arguments for part in ([argument] if isinstance(argument, str) else argument)]
    ended = command(*flat)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert word in ended.stderr
