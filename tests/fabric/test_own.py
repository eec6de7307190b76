"""Users' own topologies: edge lists, GraphML, NCCL's XML; and every way in which they can be wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fabric.test_clos import named
from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, ClusterConfig, Fabric, build, routes, ways, without

NODE = "gpu{g},nvswitch{n},450 GB/s\ngpu{g},nic{g},64 GB/s\nnic{g},leaf{l},400 Gb/s\n"
HEAD = "src,dst,rate\n"


def two_nodes() -> str:
    """Return an edge list: 2 nodes of 2 GPUs, 2 rails, 1 spine."""
    rows = [NODE.format(g=2 * n + i, n=n, l=i) for n in (0, 1) for i in (0, 1)]
    return HEAD + "".join(rows) + "leaf0,spine0,400 Gb/s\nleaf1,spine0,400 Gb/s\n"


def written(folder: Path, text: str, name: str = "net.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def read(folder: Path, text: str, name: str = "net.csv", **fields: object) -> Fabric:
    return build(ClusterConfig(file=written(folder, text, name), **fields))  # type: ignore[arg-type]


def test_an_edge_list_by_hand(tmp_path: Path) -> None:
    fabric = read(tmp_path, two_nodes())
    assert (fabric.world, fabric.gpus_per_node, fabric.nodes) == (4, 2, 2)
    assert (fabric.nic_rate, fabric.facts.domain_rate) == (50e9, 450e9)
    assert named(fabric, 0, 1) == ["gpu0>nvswitch0", "nvswitch0>gpu1"]
    assert named(fabric, 0, 2) == ["gpu0>nic0", "nic0>leaf0", "leaf0>nic2", "nic2>gpu2"]
    # Across rails: over the spine, 6 links, or by NVLink first, 6 as well.
    assert len(named(fabric, 0, 3)) == 6
    assert {TIERS[t] for t in fabric.tier} == {"nvlink", "pcie", "leaf", "spine"}


def test_no_way_leads_through_a_nic(tmp_path: Path) -> None:
    # Two GPUs at one NIC, joined by a longer way only: PCIe switch, CPU, PCIe switch.
    text = HEAD + "".join(f"{a},{b},10 GB/s\n" for a, b in [
        ("gpu0", "nic0"), ("gpu1", "nic0"), ("gpu0", "pcie0"), ("gpu1", "pcie1"), ("pcie0", "cpu0"), ("pcie1", "cpu0"),
    ])  # fmt: skip
    assert named(read(tmp_path, text), 0, 1) == ["gpu0>pcie0", "pcie0>cpu0", "cpu0>pcie1", "pcie1>gpu1"]


def test_gpus_at_a_switch_and_parallel_and_one_way_links(tmp_path: Path) -> None:
    text = "src,dst,rate,latency,count,one_way\na-gpu,tor,100 Gb/s,1 us,4,\nb-gpu,tor,100 Gb/s,1 us,1,true\ntor,b-gpu,10 Gb/s,2 us,1,true\n"
    fabric = read(tmp_path, text, routing="spray")
    assert (fabric.world, fabric.gpus_per_node, fabric.links) == (2, 1, 10)
    load = ways(fabric, [0], [1], [400])
    assert sorted(load.link_bytes[load.link_bytes > 0].tolist()) == [100, 100, 100, 100, 400]
    assert load.latency.tolist() == pytest.approx([3e-6])
    assert fabric.rate[routes(fabric, [1], [0])[1]][0] == 12.5e9


def test_graphml(tmp_path: Path) -> None:
    text = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
    <key id="d0" for="edge" attr.name="bandwidth" attr.type="string"/><key id="d1" for="node" attr.name="kind" attr.type="string"/>
    <graph edgedefault="undirected"><node id="x"><data key="d1">gpu</data></node><node id="y"><data key="d1">gpu</data></node>
    <node id="s"/><edge source="x" target="s"><data key="d0">400 Gb/s</data></edge>
    <edge source="y" target="s"><data key="d0">200 Gb/s</data></edge></graph></graphml>"""
    fabric = read(tmp_path, text, "net.graphml")
    assert (fabric.world, fabric.kinds[-1]) == (2, ("switch", 1))
    assert named(fabric, 0, 1) == ["x>s", "s>y"]
    assert sorted(set(fabric.rate.tolist())) == [25e9, 50e9]


XML = """<system version="1"><cpu numaid="0"><pci busid="0000:00:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
<pci busid="a"><gpu dev="0" sm="90"><nvlink target="x" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="b"><gpu dev="1" sm="90"><nvlink target="x" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="c"><nic><net name="mlx5_0" dev="0" speed="400000" port="1"/><net name="mlx5_1" dev="1" speed="400000" port="1"/></nic></pci>
</pci></cpu></system>"""


def test_nccl_topology(tmp_path: Path) -> None:
    # 18 NVLinks of 25 GB/s: 450 GB/s; ports of 400,000 Mb/s: 50 GB/s.
    fabric = read(tmp_path, XML, "topo.xml", nodes=4)
    assert (fabric.world, fabric.gpus_per_node, fabric.nic_rate, fabric.facts.domain_rate) == (8, 2, 50e9, 450e9)
    assert fabric.facts.gpu == "H100"
    # Both ports are of one card below the GPUs' switch.
    out, back = ["gpu0>pcie0", "pcie0>pcie1", "pcie1>nic0"], ["nic2>pcie3", "pcie3>pcie2", "pcie2>gpu2"]
    assert named(fabric, 0, 2) == [*out, "nic0>leaf0", "leaf0>nic2", *back]
    plain = XML.replace("nvlink", "other")
    assert read(tmp_path, plain, "topo.xml", nodes=4).facts.domain == "pcie"


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "xx"><!ENTITY y "&x;&x;">]><a>&y;</a>'


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        ("", "net.csv", "src"), (HEAD, "net.csv", "no links"), ("src,dst\na,b\n", "net.csv", "column rate"),
        ("src,dst,rte\n", "net.csv", "rate"), ("src,dst,rate,rate\n", "net.csv", "twice"),
        (HEAD + "gpu0,leaf0,0 Gb/s\n", "net.csv", "above zero"), (HEAD + "gpu0,leaf0,-4 Gb/s\n", "net.csv", "above zero"),
        (HEAD + "gpu0,leaf0,400\n", "net.csv", "unit"), (HEAD + "gpu0,leaf0,nan Gb/s\n", "net.csv", "rate"),
        (HEAD + "gpu0,gpu0,4 Gb/s\n", "net.csv", "itself"), (HEAD + "gpu0,,4 Gb/s\n", "net.csv", "both ends"),
        (HEAD + "gpu0,leaf0,4 Gb/s\nleaf0,gpu0,4 Gb/s\n", "net.csv", "count = 2"), (HEAD + "gpu0,leaf0\n", "net.csv", "fields"),
        (HEAD + "leaf0,leaf1,4 Gb/s\n", "net.csv", "no GPU"),
        (HEAD + "gpu0,leaf0,4 Gb/s\ngpu1,leaf1,4 Gb/s\n", "net.csv", "not connected"),
        (two_nodes().replace("gpu3,nic3,64 GB/s\nnic3,leaf1,400 Gb/s\n", "").replace("gpu2,nic2,64 GB/s\nnic2,leaf0,400 Gb/s\n", ""),
         "net.csv", "no NIC"),
        (HEAD + "gpu0,nvswitch0,4 GB/s\ngpu1,nvswitch0,4 GB/s\ngpu2,leaf0,4 Gb/s\ngpu0,leaf0,4 Gb/s\n", "net.csv", "one size"),
        ("src,dst,rate,count\ngpu0,leaf0,4 Gb/s,-1\n", "net.csv", "count"), ("src,dst,rate,count\ngpu0,leaf0,4 Gb/s,99999999999\n", "net.csv", "count"),
        ("src,dst,rate,latency\ngpu0,leaf0,4 Gb/s,-1 us\n", "net.csv", "negative"),
        ("src,dst,rate,src_kind\na,gpu0,4 Gb/s,leav\n", "net.csv", "leaf"),
        ("src,dst,rate,src_kind\na,gpu0,4 Gb/s,leaf\na,gpu1,4 Gb/s,spine\n", "net.csv", "two devices"),
        ("x,\0,y\n", "net.csv", "column|CSV"), (BOMB, "net.graphml", "entities"), (BOMB, "topo.xml", "entities"), ("<a>", "net.graphml", "not XML"),
        ("<a/>", "net.graphml", "not GraphML"), ("<a/>", "topo.xml", "NCCL"), ("<system/>", "topo.xml", "no <gpu>"),
        ("<a>" * 100 + "</a>" * 100, "net.graphml", "deeper"),
        ('<graphml><graph><node id="gpu0"/><node id="gpu0"/></graph></graphml>', "net.graphml", "twice"),
        ('<graphml><graph><node id="gpu0"/><edge source="gpu0" target="gpu9"/></graph></graphml>', "net.graphml", "no node"),
        ('<graphml><graph><node id="gpu0"/><node id="gpu1"/><edge source="gpu0" target="gpu1"/></graph></graphml>', "net.graphml", "rate"),
        (XML.replace("speed=\"400000\"", "speed=\"0\""), "topo.xml", "speed"), (XML.replace('gpu dev="1"', 'gpu dev="0"'), "topo.xml", "twice"),
        (XML.replace("net ", "nut "), "topo.xml", "without a NIC"), (XML.replace('count="18"', 'count="-3"'), "topo.xml", "count"),
    ],
)  # fmt: skip
def test_files_that_are_wrong(tmp_path: Path, text: str, name: str, word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        read(tmp_path, text, name)
    assert len(str(caught.value).splitlines()) == 1


def test_what_does_not_go_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="4 GPUs"):
        read(tmp_path, two_nodes(), gpus=8)
    with pytest.raises(InputError, match="comes from"):
        read(tmp_path, two_nodes(), nic_rate="400 Gb/s")
    assert read(tmp_path, two_nodes(), gpus=2).world == 2
    with pytest.raises(InputError, match="no such file"):
        build(ClusterConfig(file=str(tmp_path / "none.csv")))


@pytest.mark.parametrize("name", ["big.csv", "big.graphml", "big.xml"])
def test_of_a_file_of_100_mb_no_more_is_read_than_the_limit(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(100 * 10**6)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="larger than the limit"):
            build(ClusterConfig(file=str(path)))
        assert tracemalloc.get_traced_memory()[1] < 90 * 10**6
    finally:
        tracemalloc.stop()


def test_failures_by_own_names(tmp_path: Path) -> None:
    fabric = read(tmp_path, two_nodes().replace("leaf0", "row-1-leaf"))
    way = named(without(fabric, ["row-1-leaf"]), 0, 2)
    assert way[0] == "gpu0>nvswitch0"
    assert not any("row-1" in hop for hop in way)
    assert "row-1-leaf>spine0" not in named(without(fabric, ["row-1-leaf-spine0"]), 0, 3)
    with pytest.raises(InputError, match="outlive"):
        without(fabric, ["gpu1"])
    with pytest.raises(InputError, match="row-1-leaf"):
        without(fabric, ["row-1-leav"])


@given(st.text(max_size=200), st.sampled_from(["csv", "graphml", "xml"]))
@settings(max_examples=60, deadline=None)
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str, ending: str) -> None:
    path = tmp_path_factory.mktemp("any") / f"net.{ending}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError) as caught:
        build(ClusterConfig(file=str(path)))
    assert len(str(caught.value).splitlines()) == 1


def test_the_same_fabric_as_a_file(tmp_path: Path) -> None:
    # A preset written out as links carries the same as the preset, where there is one way only or all are taken.
    fabric = build(ClusterConfig(preset="fat-tree", nodes=8, gpus_per_node=4, routing="spray"))
    table = fabric.table()
    rows = [f"{a},{b},{rate * 8 / 1e9:.0f} Gb/s" for a, b, rate in table.select("src", "dst", "rate").iter_rows()]
    count: dict[str, int] = {}
    for row in rows:
        count[row] = count.get(row, 0) + 1
    gpu = [f"gpu{i},nic{i},10000 Gb/s,1,false" for i in range(32)]
    text = "\n".join(["src,dst,rate,count,one_way", *[f"{row},{many},true" for row, many in count.items()], *gpu]) + "\n"
    own = read(tmp_path, text, routing="spray")
    src = np.arange(32)
    for shift in (1, 5, 16):
        one, two = (ways(f, src, (src + shift) % 32, np.full(32, 1 << 20)) for f in (fabric, own))
        for tier in ("nvlink", "leaf", "spine"):
            sums = [f.link_bytes[f.fabric.tier == TIERS.index(tier)].sum() for f in (one, two)]
            assert sums[0] == pytest.approx(sums[1], abs=64)


def test_the_verb_on_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, two_nodes())
    sets = [f'cluster.file="{path}"', "cluster.nodes=2", "plan.tp=2", "plan.pp=1"]
    ended = subprocess.run(
        [sys.executable, "-m", "tokenwire", "traffic", "--json", *[part for one in sets for part in ("--set", one)]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "gpus_per_node" in ended.stderr:
        # The built-in journey tells the GPUs of a node itself; a journey file of the user does not.
        journey = tmp_path / "j.toml"
        journey.write_text(f'[cluster]\nfile = "{path}"\n[plan]\ntp = 2\n')
        ended = subprocess.run([sys.executable, "-m", "tokenwire", "traffic", str(journey), "--json"],
                               capture_output=True, text=True, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["totals"]["gpus"] == 4


def test_links_take_the_place_of_the_cluster_of_the_walk(tmp_path: Path) -> None:
    # The built-in walk names GPUs a node, which a file of links says itself: nothing of it stays behind.
    from tokenwire.journey import Journey

    file = tmp_path / "links.csv"
    file.write_text("src,dst,rate\ngpu0,nic0,400 Gb/s\ngpu1,nic1,400 Gb/s\nnic0,leaf0,400 Gb/s\nnic1,leaf0,400 Gb/s\n")
    journey = Journey.read(None, overrides=[f"cluster.file={file}", "plan.tp=1", "cluster.routing=spray"])
    assert (journey.fabric().world, journey.config.cluster.routing) == (2, "spray")
