"""NCCL's tuner: graphs against logs, estimates by hand, overrides, what crosses each link, and cases 7 and 8."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.collectives import edges, sent_bytes
from tokenwire.collectives.busbw import busbw_factor
from tokenwire.collectives.nccl import (
    Machine,
    choose,
    communicator_channels,
    crossings,
    estimates,
    graphs,
    link_bytes,
    read_overrides,
    times,
)
from tokenwire.collectives.nccl.choice import channels_of
from tokenwire.collectives.nccl.constants import ALGORITHMS, OPERATIONS, PROTOCOLS, generations, of_gpu, tuner
from tokenwire.collectives.nccl.graph import Graph
from tokenwire.collectives.nccl.sweep import read_sizes, sweep
from tokenwire.errors import InputError

GIB = 1 << 30
H100 = Machine("hopper")
H100_2 = Machine("hopper", nodes=2)
A100_4 = Machine("ampere", nodes=4, nvlink_rate=300e9, nic_rate=25e9)
ONE_NIC = Machine("hopper", nodes=2, nics_per_node=1, nic_rate=12.5e9)


@pytest.mark.parametrize(
    ("machine", "algorithm", "channels", "intra", "inter"),
    [
        # The log of NVIDIA/nccl issue 1189: 2 H20 and 2 NICs a node, "nChannels 4, bw 24.000000/24.000000".
        (Machine("hopper", nodes=2, ranks_per_node=2, nics_per_node=2), "Ring", 4, 24, 24),
        # 6 channels of 60 GB/s fit into 370.8 GB/s, are doubled; no slower speed makes more than 360.
        (H100, "Ring", 12, 30, 30),
        # 8 NICs behind PCIe of 48 GB/s; 7 of 8 hops on NVLink: 8 · 7/8 · 48 = 336 <= 370.8.
        (H100_2, "Ring", 8, 48, 48),
        # 8 heads: (8 + 1) · 40 = 360 <= 370.8.
        (H100, "NVLS", 8, 40, 60),
        # H800: 164.8 GB/s. 4 · 40, doubled.
        (Machine("hopper", nvlink_rate=200e9), "Ring", 8, 20, 20),
        # Between nodes 8 · 22 · 7/8 = 154; at 24 only 6 whole channels fit a GPU: 48 / 7 = 6 rings of 24 = 144 < 176.
        (Machine("hopper", nodes=2, nvlink_rate=200e9), "Ring", 8, 22, 22),
        # A100: 6 channels of 40 GB/s fill 240 GB/s, doubled.
        (Machine("ampere", nvlink_rate=300e9), "Ring", 12, 20, 20),
        # A100 with HDR: PCIe of 24 GB/s limits each of 8 NICs; a tree may be faster inside: 30, as 48 would be 336 > 240.
        (A100_4, "Ring", 8, 24, 24),
        (A100_4, "Tree", 8, 30, 24),
        # One NIC of 12.5 GB/s: one channel of 12; the tree goes at up to twice that inside.
        (ONE_NIC, "Ring", 1, 12, 12),
        (ONE_NIC, "Tree", 1, 24, 12),
    ],
)
def test_graphs(machine: Machine, algorithm: str, channels: int, intra: float, inter: float) -> None:
    found = graphs(machine)[algorithm]
    assert (found.channels, found.intra, found.inter) == (channels, intra, inter)


def test_no_nvls_without_a_switch_that_adds() -> None:
    assert graphs(A100_4)["NVLS"] == Graph("nvls")
    assert graphs(Machine("hopper", nvswitch=False))["NVLS"] == Graph("nvls")


def test_estimates_by_hand_in_one_node() -> None:
    e = estimates(H100, "all_reduce")
    # Ring, Simple: 8.4 + 14 · 3.4 us; 12 · 30 · 8/14 GB/s. LL: 6.6 + 14 · 0.6; min(141, 360/2) · 8/14.
    assert e["Ring", "Simple"] == pytest.approx((8.4 + 14 * 3.4, 360 * 8 / 14))
    assert e["Ring", "LL"] == pytest.approx((6.6 + 14 * 0.6, 141 * 8 / 14))
    # LL128: min(360 · 0.92, 12 · 36.7) · 8/14.
    assert e["Ring", "LL128"] == pytest.approx((14 + 14 * 1.9, 331.2 * 8 / 14))
    # Tree, Simple: 8.4 + 2 · 7 · 4.0; min(360 · 0.92, 12 · 38.7)/2.
    assert e["Tree", "Simple"] == pytest.approx((8.4 + 56, 331.2 / 2))
    # NVLS: 25 us; 8 · min(40 · 0.85 · 7/8 · 2, 60) · 8/14 = 8 · 59.5 · 8/14.
    assert e["NVLS", "Simple"] == pytest.approx((25, 272))
    assert "NVLSTree" not in {a for a, _ in e}


def test_estimates_by_hand_over_nodes() -> None:
    e = estimates(H100_2, "all_reduce")
    # 16 ranks, 30 steps of which 2 cross nodes. Ring, LL128: 14 + 28 · 1.9 + 2 · 4.0; min(384 · 0.92, 8 · 36.7) · 16/30.
    assert e["Ring", "LL128"] == pytest.approx((14 + 28 * 1.9 + 8, 293.6 * 16 / 30))
    # Simple posts to the network: max(3.4, 3 · 1.0) us a step inside.
    assert e["Ring", "Simple"] == pytest.approx((8.4 + 28 * 3.4 + 2 * 14, 384 * 16 / 30))
    # Tree: 6.8 + 2 (7 · 0.6 + 1 · 5.0); LL: min(min(384 · 0.92, 8 · 41.4)/3.8, 22.5 or so) / 2: Intel, 2 nodes: 39.
    assert e["Tree", "LL"] == pytest.approx((6.8 + 18.4, min(331.2 / 3.8, 39) / 2))
    # NVLS tree: 25 + 2 · 20.9; 8 · min(59.5, 2 · 48, 57.7) · 16/30.
    assert e["NVLSTree", "Simple"] == pytest.approx((25 + 41.8, 8 * 57.7 * 16 / 30))
    # AMD posts in 2 us: 6 a step of Simple.
    amd = estimates(Machine("hopper", nodes=2, cpu="amd"), "all_reduce")
    assert amd["Ring", "Simple"].latency == pytest.approx(8.4 + 28 * 6 + 2 * 14)


def test_time_by_hand() -> None:
    # Tree, LL, 64 KiB: log2(65536/64) = 10, so bandwidth · 0.6; 2 nodes as above: 25.2 us + 65536 / (1000 · 19.5 · 0.6).
    assert times(H100_2, "all_reduce", 65536)["Tree", "LL"] == pytest.approx((25.2 + 65.536 / (19.5 * 0.6)) * 1e-6)
    # Ring, Simple over nodes: latency · 1.4 once each channel and rank has 64 B: 16 channels · 16 ranks · 64 B = 16 KiB.
    few, many = (times(H100_2, "all_reduce", S)["Ring", "Simple"] for S in (16383, 16384))
    assert many - few == pytest.approx(0.4 * 131.6e-6, rel=1e-3)


def test_what_each_operation_can() -> None:
    assert {a for a, _ in estimates(H100_2, "all_gather")} == {"Ring"}
    assert {a for a, _ in estimates(H100, "all_gather")} == {"Ring", "NVLS"}
    assert {a for a, _ in estimates(Machine("hopper", nodes=8, ranks_per_node=1, nics_per_node=1), "all_gather")} == {"Ring", "PAT"}
    assert {a for a, _ in estimates(H100, "broadcast")} == {"Ring"}
    sharp = {a for a, _ in estimates(Machine("hopper", nodes=8, sharp=True), "all_reduce")}
    assert sharp == {"Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain"}


def test_the_usual_picks() -> None:
    # Small: LL by tree. Large in one node: NVLS. Large gathers: ring, Simple.
    assert (choose(H100_2, "all_reduce", 8).algorithm, choose(H100_2, "all_reduce", 8).protocol) == ("Tree", "LL")
    assert choose(H100, "all_reduce", GIB).algorithm == "NVLS"
    gather = choose(A100_4, "all_gather", GIB)
    assert (gather.algorithm, gather.protocol) == ("Ring", "Simple")
    # Two nodes: the tree of NVLS sends S through the NICs, the ring 1.875 S. Many nodes and much data: the ring.
    assert choose(H100_2, "all_reduce", GIB).algorithm == "NVLSTree"
    assert choose(Machine("hopper", nodes=8), "all_reduce", 16 * GIB).algorithm == "Ring"


def test_the_least_is_picked() -> None:
    for S in read_sizes("8B-8GiB"):
        found = times(A100_4, "all_reduce", S)
        c = choose(A100_4, "all_reduce", S)
        assert found[c.algorithm, c.protocol] == min(found.values())


def test_channels() -> None:
    # 8 graph channels twice; a small ring call takes one, as each thread wants 8 B a rank under LL: 512 · 8 · 16 = 64 KiB.
    assert communicator_channels(H100_2) == 16
    assert [channels_of(H100_2, "Ring", "LL", S) for S in (8, 1 << 17, GIB)] == [1, 2, 16]
    assert channels_of(H100, "NVLS", "Simple", 8) == 16
    assert channels_of(H100_2, "Ring", "Simple", GIB, read_overrides(["NCCL_MAX_NCHANNELS=4"])) == 4
    assert communicator_channels(H100_2, least=32) == 32
    # 4 of the 8 channels: half the links.
    half = choose(H100_2, "all_gather", 8 * GIB, read_overrides(["NCCL_MAX_NCHANNELS=4"]))
    assert half.busbw == pytest.approx(192e9, rel=0.01)


def test_overrides() -> None:
    ring = read_overrides(["NCCL_ALGO=ring", "NCCL_PROTO=^LL,LL128"])
    assert set(times(H100, "all_reduce", 8, ring)) == {("Ring", "Simple")}
    by_op = read_overrides(["NCCL_ALGO=Ring;allreduce:tree,NVLS"])
    assert {a for a, _ in times(H100, "all_reduce", 8, by_op)} == {"Tree", "NVLS"}
    assert {a for a, _ in times(H100, "all_gather", 8, by_op)} == {"Ring"}
    # LL128 is off by default over PCIe, and may be forced.
    pcie = Machine("ampere", nvlink_rate=0, nvswitch=False)
    assert "LL128" not in {p for _, p in times(pcie, "all_reduce", 8)}
    assert {p for _, p in times(pcie, "all_reduce", 8, read_overrides(["NCCL_PROTO=LL128"]))} == {"LL128"}


@pytest.mark.parametrize(
    ("setting", "word"),
    [("NCCL_ALGO=Rng", "Ring"), ("NCCL_PROTO=LL64", "LL128"), ("NCCL_ALGO", "value"), ("NCCL_ALG=Ring", "NCCL_ALGO"),
     ("NCCL_ALGO=Ring;Tree", "first"), ("NCCL_ALGO=allredce:Ring", "AllReduce"), ("NCCL_MAX_NCHANNELS=-1", "whole"),
     ("NCCL_MIN_NCHANNELS=many", "whole"), ("NCCL_ALGO=", "value")],
)  # fmt: skip
def test_wrong_overrides(setting: str, word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        read_overrides([setting])
    assert len(str(caught.value).splitlines()) == 1


def test_overrides_that_leave_nothing() -> None:
    with pytest.raises(InputError, match="leaves no algorithm"):
        choose(H100, "all_gather", 8, read_overrides(["NCCL_ALGO=Tree"]))
    with pytest.raises(InputError, match="leaves no algorithm"):
        choose(H100, "all_reduce", 8, read_overrides(["NCCL_ALGO=NVLS", "NCCL_PROTO=LL"]))


def test_protocols() -> None:
    # 8 B carry 4; 128 carry 120; a line is never sent in part.
    assert [link_bytes("LL", S) for S in (0, 1, 4, 5)] == [0, 8, 8, 16]
    assert [link_bytes("LL128", S) for S in (1, 120, 121)] == [128, 128, 256]
    assert link_bytes("Simple", 121) == 121


def test_one_rank_sends_nothing() -> None:
    alone = choose(Machine("hopper", ranks_per_node=1), "all_reduce", GIB)
    assert (alone.algorithm, alone.seconds, alone.busbw) == ("none", 0, 0)


@pytest.mark.parametrize("change", [{"gpu": "pascal"}, {"nodes": 0}, {"ranks_per_node": 0}, {"ranks_per_node": 10**6},
                                    {"nodes": 10**9}, {"nodes": 2, "nics_per_node": 0}, {"nodes": 2, "nic_rate": 0.0},
                                    {"nvlink_rate": -1.0}, {"nvlink_rate": float("nan")}, {"cpu": "z80"}])  # fmt: skip
def test_machines_that_cannot_be(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Machine(**{"gpu": "hopper", **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["all_to_all", "send", "recv", "barrier", "allreduce"])
def test_operations_without_a_choice(op: str) -> None:
    with pytest.raises(InputError):
        choose(H100, op, GIB)


def test_tables_are_whole() -> None:
    t = tuner()
    for name in ("base_latency_us", *(("hop_latency_us", hw) for hw in ("nvlink", "pci", "net"))):
        rows = t[name] if isinstance(name, str) else t[name[0]][name[1]]
        assert set(rows) == set(ALGORITHMS)
        assert all(len(row) == len(PROTOCOLS) for row in rows.values())
    assert all(len(row) == 24 and max(row) <= 1 for row in t["tree_correction"].values())
    for facts in generations().values():
        assert list(facts.intra) == sorted(facts.intra, reverse=True)
        assert list(facts.inter) == sorted(facts.inter, reverse=True)
    assert of_gpu("H20-3e".replace("-3e", ""))[0] == "hopper"


# What truly crosses each link, against the transfers themselves.


def _across(op: str, name: str, nodes: int, g: int, S: int) -> float:
    e = edges(op, name, nodes * g, S)
    return float(e.bytes[(e.src // g) != (e.dst // g)].sum()) / nodes


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("nodes", "g"), [(2, 8), (4, 8), (3, 2), (8, 1)])
def test_ring_crosses_what_its_transfers_cross(op: str, nodes: int, g: int) -> None:
    S = 7 * 5040 * nodes * g
    machine = Machine("hopper", nodes=nodes, ranks_per_node=g, nics_per_node=g)
    found = {one.link: one.data_bytes for one in crossings(machine, op, "Ring", "Simple", S)}
    assert found["NIC"] * g == pytest.approx(_across(op, "ring", nodes, g, S))
    if g > 1:
        sent = float(sent_bytes(op, "ring", nodes * g, S).sum()) / nodes
        # In a ring with g - 1 of g hops inside a node, a GPU sends (g-1)/g of its bytes there, over all channels.
        assert found["NVLink of a GPU"] * g == pytest.approx(sent - _across(op, "ring", nodes, g, S))


@pytest.mark.parametrize("nodes", [2, 3, 4, 8, 13])
def test_tree_crosses_what_its_transfers_cross(nodes: int) -> None:
    S = 1 << 20
    for name in ("Tree", "NVLSTree"):
        found = crossings(Machine("hopper", nodes=nodes), "all_reduce", name, "Simple", S)[0]
        assert found.data_bytes * 8 == pytest.approx(float(edges("all_reduce", "tree", nodes, S).bytes.sum()) / nodes)


def test_nvls_crosses_what_its_transfers_cross() -> None:
    S = 8 << 20
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        found = crossings(H100, op, "NVLS", "Simple", S)[0].data_bytes
        assert found == pytest.approx(float(np.mean(sent_bytes(op, "nvls", 8, S))))


# Case 7: busbw above the wire's rate.


def test_two_nodes_with_one_nic_each() -> None:
    c = choose(ONE_NIC, "all_reduce", GIB)
    nic, nvlink = crossings(ONE_NIC, "all_reduce", c.algorithm, c.protocol, GIB)
    # A tree: S through the NIC, not 2 · 15/16 · S. 24 · 0.92 / 2 = 11.04 GB/s of the tensor, · 1.875 = 20.7 GB/s of the "bus".
    assert c.algorithm == "Tree"
    assert nic.data_bytes == GIB
    assert nvlink.data_bytes == 2 * 7 / 8 * GIB
    assert c.busbw == pytest.approx(20.7e9, rel=0.01)
    assert c.busbw > 12.5e9 > nic.link_bytes / c.seconds
    # A ring's busbw is what the NIC carries.
    ring = choose(ONE_NIC, "all_reduce", GIB, read_overrides(["NCCL_ALGO=Ring"]))
    assert ring.busbw == pytest.approx(crossings(ONE_NIC, "all_reduce", "Ring", ring.protocol, GIB)[0].data_bytes / ring.seconds)
    assert ring.busbw <= 12.5e9


def test_nvlink_sharp() -> None:
    # Posted: 476 and 480 GB/s (NVIDIA/nccl-tests issue 290, NVIDIA/nccl issue 1374) on links of 450 GB/s.
    c = choose(H100, "all_reduce", 8 * GIB)
    (link,) = crossings(H100, "all_reduce", c.algorithm, c.protocol, 8 * GIB)
    assert c.busbw == pytest.approx(478e9, rel=0.02)
    assert link.data_bytes == pytest.approx(9 / 8 * 8 * GIB)
    assert link.link_bytes / c.seconds < 450e9 < c.busbw


# Case 8: never above the links.

MACHINES = st.builds(
    Machine,
    st.sampled_from(["volta", "ampere", "hopper", "blackwell"]), nodes=st.integers(1, 40), ranks_per_node=st.integers(1, 16),
    nvlink_rate=st.one_of(st.just(0.0), st.floats(5e10, 1e12)), nics_per_node=st.integers(1, 16), nic_rate=st.floats(1e9, 2e11),
    nvswitch=st.booleans(), sharp=st.booleans(), cpu=st.sampled_from(["", "intel", "amd", "arm"]),
)  # fmt: skip


@given(machine=MACHINES, op=st.sampled_from(list(OPERATIONS)), size=st.integers(0, 1 << 36), force=st.sampled_from(["", *ALGORITHMS]))
@settings(max_examples=300, deadline=None)
def test_never_above_the_links(machine: Machine, op: str, size: int, force: str) -> None:
    overrides = read_overrides([f"NCCL_ALGO={force}"] if force else [])
    if machine.ranks > 1 and not times(machine, op, size, overrides):
        with pytest.raises(InputError, match="leaves no algorithm"):
            choose(machine, op, size, overrides)
        return
    c = choose(machine, op, size, overrides)
    assert c.seconds >= c.bound_seconds >= 0
    if c.seconds == 0:
        assert machine.ranks == 1
        return
    for one in crossings(machine, op, c.algorithm, c.protocol, size):
        assert one.link_bytes / c.seconds <= one.rate * (1 + 1e-9)
    if c.algorithm == "Ring" and machine.nodes > 1:
        assert c.busbw <= machine.nics_per_node * machine.nic_rate * (1 + 1e-9)
    if c.algorithm == "Ring" and machine.nodes == 1 and machine.nvlink:
        assert c.busbw <= machine.nvlink_rate * (1 + 1e-9)
    if c.algorithm == "Tree" and machine.nodes > 1:
        most = busbw_factor(op, machine.ranks) * machine.nodes / (2 * (machine.nodes - 1))
        assert c.busbw <= machine.nics_per_node * machine.nic_rate * most * (1 + 1e-9)


@given(machine=MACHINES)
@settings(max_examples=200, deadline=None)
def test_channels_fit_the_links(machine: Machine) -> None:
    found = graphs(machine)
    for name in ("Ring", "Tree"):
        graph = found[name]
        if graph.channels and machine.nodes > 1:
            assert graph.channels * graph.inter <= machine.nics_per_node * machine.inter * (1 + 1e-6)
    nvls = found["NVLS"]
    if nvls.channels:
        assert (nvls.channels + 1) * nvls.intra <= machine.nvlink * (1 + 1e-6)
        assert nvls.channels <= machine.ranks_per_node


def test_sweep_has_the_columns_of_nccl_tests() -> None:
    row = sweep(H100, "all_gather", [GIB])[0]
    # all_gather counts what one rank gives: 1 GiB / 8 / 4 B.
    assert (row.size, row.elements, row.type) == (GIB, GIB // 32, "float")
    assert row.algbw == pytest.approx(GIB / row.time / 1e3)
    assert row.busbw == pytest.approx(row.algbw * 7 / 8)


@pytest.mark.parametrize("text", ["8B-4B", "0B-8B", "8-16", "x", "8B-", "-8B", ""])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(InputError):
        read_sizes(text)


@pytest.mark.parametrize(
    ("gpu", "nodes", "path", "on"),
    [("hopper", 2, "PXN", True), ("hopper", 2, "PHB", False), ("hopper", 1, "PHB", True), ("ampere", 2, "PXB", True),
     ("ampere", 2, "PXN", False), ("blackwell", 2, "P2C", True), ("blackwell", 2, "SYS", False)],
)  # fmt: skip
def test_ll128_needs_a_near_nic(gpu: str, nodes: int, path: str, on: bool) -> None:
    # tuning.cc: up to PXN from Hopper on, up to PXB before; inside a node no NIC is used.
    found = {p for _, p in times(Machine(gpu, nodes=nodes, nic_path=path), "all_reduce", 1 << 20)}
    assert ("LL128" in found) == on


def test_unknown_path_to_the_nic() -> None:
    with pytest.raises(InputError, match="PHB"):
        Machine("hopper", nic_path="BUS")


def test_a_tree_between_two_ranks_moves_what_a_ring_moves() -> None:
    # nccl-tests #232: 2 nodes of one H100 and 4 NICs of 400 Gb/s, NCCL_ALGO=Tree: 113, 154, 231, 420 and 812 us for 2 to 32 MiB, 50 GB/s in the end.
    alone = Machine("hopper", nodes=2, ranks_per_node=1, nics_per_node=4)
    tree = read_overrides(["NCCL_ALGO=Tree"])
    for size, measured in zip((2, 4, 8, 16, 32), (113.2, 154.4, 231.4, 420.5, 812.3), strict=True):
        assert choose(alone, "all_reduce", size << 20, tree).seconds * 1e6 == pytest.approx(measured, rel=0.1)
    assert choose(alone, "all_reduce", 16 << 30, tree).busbw == pytest.approx(50e9, rel=0.05)
    # NCCL itself expects 35 GB/s of the tree, and so picks the ring.
    assert (16 << 30) / times(alone, "all_reduce", 16 << 30)["Tree", "Simple"] == pytest.approx(35.2e9, rel=0.01)
    assert choose(alone, "all_reduce", 16 << 30).algorithm == "Ring"
    pairs = [{(int(s), int(d)): int(b) for s, d, b in zip(*edges("all_reduce", a, 2, 1 << 20), strict=True)} for a in ("tree", "ring")]
    assert pairs[0] == pairs[1] == {(0, 1): 1 << 20, (1, 0): 1 << 20}
    # Three ranks are no two: the tree keeps NCCL's estimate.
    three = Machine("hopper", nodes=3, ranks_per_node=1, nics_per_node=1)
    assert choose(three, "all_reduce", 16 << 30, tree).seconds == times(three, "all_reduce", 16 << 30, tree)["Tree", "Simple"]


@pytest.mark.parametrize(
    ("ranks", "nics", "rate", "driven"),
    # PCIe carries 48 GB/s of a Hopper: one NIC of 400 Gb/s, two of 200 Gb/s, four of 100 Gb/s per GPU, and never more than there are.
    [(1, 4, 50e9, 1), (1, 4, 25e9, 2), (1, 8, 12.5e9, 4), (4, 8, 50e9, 4), (8, 8, 50e9, 8), (8, 4, 50e9, 4), (8, 1, 12.5e9, 1)],
)
def test_nics_beyond_the_pcie_links_of_the_ranks_carry_nothing(ranks: int, nics: int, rate: float, driven: int) -> None:
    machine = Machine("hopper", nodes=2, ranks_per_node=ranks, nics_per_node=nics, nic_rate=rate)
    assert machine.nics_driven == driven
    by_nic = crossings(machine, "all_reduce", "Tree", "Simple", 1 << 30)[0]
    assert by_nic.data_bytes == (1 << 30) / driven
    for op in ("all_reduce", "all_gather"):
        picked = choose(machine, op, 1 << 30)
        assert picked.seconds >= picked.bound_seconds
