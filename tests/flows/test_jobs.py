"""Several jobs on one fabric, the heat of links, and links over time."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flows.test_contention import command as flows_command
from tests.flows.test_traffic import call, plan, said
from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, ClusterConfig, build
from tokenwire.flows import traffic
from tokenwire.flows.contention import kinds, spread
from tokenwire.flows.heat import heat
from tokenwire.flows.jobs import jobs, placed
from tokenwire.flows.over_time import spans, utilisation


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.sampled_from([1, 4, 8]), st.sampled_from(["packed", "interleaved"]))
def test_no_gpu_twice_and_whole_nodes(worlds: list[int], g: int, placement: str) -> None:
    places = placed(worlds, g, placement)
    every = np.concatenate(places)
    assert np.unique(every).size == sum(worlds)
    nodes = [set((place // g).tolist()) for place in places]
    assert sum(map(len, nodes)) == len(set.union(*nodes))
    for place in places:
        assert np.array_equal(place % g, np.arange(place.size) % g)


def two(placement: str) -> list[object]:
    rows = said(*[call(stage, "all_reduce", "dp", 3, 30_000) for stage in (0, 1)])
    fabric = build(ClusterConfig(preset="fat-tree", nodes=8))
    return [traffic(rows, plan(), fabric, place=place) for place in placed([24, 24], 8, placement)]


def test_jobs_add_up_and_packed_ones_share_less() -> None:
    shared = {}
    for placement in ("packed", "interleaved"):
        found = jobs(["a", "b"], two(placement))  # type: ignore[arg-type]
        assert found.links["bytes"].sum() == sum(one.totals["link_bytes"] for one in found.traffics)
        assert found.link_bytes.shape == (2, found.fabric.links)
        shared[placement] = found
    # 4 nodes a leaf. Packed: job a has nodes 0 to 2, all at leaf 0; job b 3 to 5: only its own flows cross the spine.
    assert shared["packed"].tiers()[2]["bytes"][0] == 0
    assert all(many > 0 for many in shared["interleaved"].tiers()[2]["bytes"])


def test_two_jobs_on_one_gpu() -> None:
    one, _ = two("packed")
    with pytest.raises(InputError, match="one GPU"):
        jobs(["a", "b"], [one, one])  # type: ignore[list-item]


def test_heat_by_hand() -> None:
    fabric = build(ClusterConfig(nodes=2))
    load = np.zeros(fabric.links, dtype=np.int64)
    leaf = np.flatnonzero((fabric.tier == TIERS.index("leaf")) & (fabric.src < fabric.dst))
    load[leaf[:2]] = [50_000, 150_000]
    row = next(row for row in heat(fabric, load) if (row["tier"], row["direction"]) == ("leaf", "up"))
    # 50 GB/s: 1 and 3 us; mean 2: the busiest has 1.5 times that. 14 of 16 links are idle.
    assert (row["links"], row["idle"], row["busiest"]) == (16, 14, "nic1-leaf1")
    assert (row["most_seconds"], row["mean_seconds"], row["imbalance"]) == pytest.approx((3e-6, 2e-6, 1.5))
    assert row["curve"] == sorted(row["curve"])


def test_bytes_over_time_are_all_the_bytes() -> None:
    rows = said(*[call(stage, "all_to_all", "world", 24, 10**7) for stage in (0, 1)])
    for fields in ({}, {"routing": "spray"}, {"queue_pairs": 3}):
        fabric = build(ClusterConfig(nodes=8, preset="fat-tree", oversubscription=2.0, **fields))  # type: ignore[arg-type]
        chosen = plan()
        (kind,) = kinds(traffic(rows, chosen, fabric), fabric, record=True)
        table = utilisation(kind.ways, kind.shared, 10)
        for tier in table["tier"].unique():
            own = table.filter(table["tier"] == tier)
            assert own["bytes"].sum() == pytest.approx(kind.link_bytes[fabric.tier == TIERS.index(tier)].sum(), rel=1e-6)
            assert own["utilisation"].max() <= 1 + 1e-6
        flow, start, until, rate = spans(kind.shared)
        sent = np.bincount(flow, weights=rate * (until - start), minlength=kind.ways.size.size)
        np.testing.assert_allclose(sent, kind.ways.size, rtol=1e-6)


def test_imbalance_over_seeds_falls_with_queue_pairs() -> None:
    rows = said(*[call(stage, "all_reduce", "dp", 3, 10**8) for stage in (0, 1)])
    found = {}
    for pairs in (1, 16):
        fabric = build(ClusterConfig(preset="fat-tree", nodes=24, queue_pairs=pairs, nodes_per_unit=1))
        (found[pairs],) = spread(traffic(rows, plan(), fabric), 20)
    assert found[1]["median_imbalance"] > found[16]["median_imbalance"] >= 1
    assert found[1]["median_seconds"] > found[16]["median_seconds"]
    assert found[1]["least_seconds"] <= found[1]["p95_seconds"] <= found[1]["most_seconds"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tokenwire", "traffic", *arguments], capture_output=True, text=True, check=False)


def test_the_verb_with_jobs_and_plots(tmp_path: Path) -> None:
    other, plot = tmp_path / "b.toml", tmp_path / "heat.svg"
    other.write_text("[cluster]\nnodes = 2\ngpus_per_node = 4\n")
    facts = json.loads(command("--job", str(other), "--placement", "interleaved", "--json", "--plot", str(plot)).stdout)
    assert [job["nodes"] for job in facts["jobs"]] == [[0, 2], [1, 3]]
    root = ET.fromstring(plot.read_text())
    cells = [one for one in root.iter() if one.tag.endswith("rect") and len(one)]
    assert len(cells) == sum(row["links"] for row in facts["per_tier"])  # every link is one cell
    assert "gpu0 to nvswitch0" in {(cell[0].text or "").split(":")[0] for cell in cells}
    page = tmp_path / "heat.html"
    assert command("--plot", str(page)).returncode == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    heat_rows = json.loads(command("--heat", "--json").stdout)["heat"]
    assert {row["tier"] for row in heat_rows} >= {"nvlink", "leaf"}
    lines = command("--job", str(other), "--csv", "-").stdout.splitlines()
    assert lines[0] == "link,src,dst,tier,bytes,rate,seconds,jobs,bytes_0,bytes_1"
    assert max(map(len, command("--heat").stdout.splitlines())) <= 80


def test_the_verb_flows_over_time() -> None:
    facts = json.loads(flows_command("--over-time", "--only", "pp", "--json").stdout)
    assert {"seconds", "rate_changes", "utilisation"} <= set(facts["kinds"][0])
    lines = flows_command("--over-time", "--csv", "-").stdout.splitlines()
    assert lines[0] == "tier,start,seconds,bytes,utilisation,op,group,phase"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--plot", "heat.gif"], ".svg"), (["--job", "none.toml"], "no such file"), (["--job", "-", "--placement", "paked"], "packed"),
     (["--plot", "/nowhere/heat.svg"], "written")],
)  # fmt: skip
def test_the_verb_on_wrong_input(arguments: list[str], word: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "tokenwire", "traffic", *arguments], input="", capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert word in ended.stderr
