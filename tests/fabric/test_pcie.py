"""PCIe links of nodes: which way, what is shared, what it costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fabric.test_clos import named
from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, ClusterConfig, Fabric, build, ways, without
from tokenwire.fabric.pcie_tree import read_tree
from tokenwire.flows.maxmin import simulate

GEN5, GEN4 = 'link_speed="32.0 GT/s PCIe" link_width="16"', 'link_speed="16.0 GT/s PCIe" link_width="16"'
WIDE = 16 * 32e9 / 8 * 128 / 130


def node(switches: str, cpus: str = "", nvlink: bool = True) -> str:
    """Return a node's file; a switch is e.g. ``G0 N0``: GPU 0 and NIC 0 below it. ``|`` parts CPUs, ``;`` switches."""
    out = ['<system version="1">']
    for c, cpu in enumerate(switches.split("|")):
        out.append(f'<cpu numaid="{c}" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143" {cpus}>')
        for switch in cpu.split(";"):
            out.append(f"<pci {GEN5}>")
            for device in switch.split():
                kind, number = device[0], device[1:]
                links = '<nvlink target="x" count="18" tclass="0x068000"/>' if nvlink else ""
                inner = f'<gpu dev="{number}" sm="90">{links}</gpu>' if kind == "G" else f'<nic><net name="m{number}" dev="{number}" speed="400000"/></nic>'
                out.append(f"<pci {GEN5}>{inner}</pci>")
            out.append("</pci>")
        out.append("</cpu>")
    return "".join([*out, "</system>"])


def made(folder: Path, text: str, **fields: object) -> Fabric:
    path = folder / "topo.xml"
    path.write_text(text)
    return build(ClusterConfig.model_validate({"file": str(path), "nodes": 2, **fields}))


def seconds(fabric: Fabric, src: list[int], dst: list[int], size: int) -> float:
    found = ways(fabric, src, dst, np.full(len(src), size))
    return simulate((found.offsets, found.entries), found.size, found.rate, use=found.use).makespan


def test_under_one_switch_nothing_is_shared(tmp_path: Path) -> None:
    # A GPU and its NIC below one switch: the uplink to the CPU carries nothing. Two GPUs at once: 50 GB/s each, the NICs' rate.
    fabric = made(tmp_path, node("G0 N0;G1 N1"))
    assert named(fabric, 0, 2)[:2] == ["gpu0>pcie0", "pcie0>nic0"]
    assert read_tree(str(tmp_path / "topo.xml")).nic_path == "PIX"
    assert seconds(fabric, [0, 1], [2, 3], 50_000_000) == pytest.approx(1e-3)
    load = ways(fabric, [0, 1], [2, 3], [100, 100]).link_bytes
    cpu = [i for i in np.flatnonzero(load) if "cpu" in fabric.device_name(int(fabric.dst[i]))]
    assert cpu == []


def test_gpus_share_the_way_to_far_nics(tmp_path: Path) -> None:
    # GPUs below one switch, NICs below the other: both go over the first's uplink, 63 GB/s for two flows; 50 GB/s for one.
    fabric = made(tmp_path, node("G0 G1;N0 N1"))
    assert read_tree(str(tmp_path / "topo.xml")).nic_path == "PHB"
    assert named(fabric, 0, 2)[:4] == ["gpu0>pcie0", "pcie0>cpu0", "cpu0>pcie1", "pcie1>nic0"]
    assert seconds(fabric, [0], [2], 63_000_000) == pytest.approx(63e6 / 50e9)
    assert seconds(fabric, [0, 1], [2, 3], 63_000_000) == pytest.approx(2 * 63e6 / WIDE)


def test_between_cpus(tmp_path: Path) -> None:
    # NCCL gives two Sapphire Rapids 22 GB/s: slower than the NIC.
    fabric = made(tmp_path, node("G0|N0"))
    assert read_tree(str(tmp_path / "topo.xml")).nic_path == "SYS"
    assert seconds(fabric, [0], [1], 22_000_000) == pytest.approx(1e-3)


def test_the_nearest_nic_is_a_gpus_own(tmp_path: Path) -> None:
    # The file has NIC 0 at GPU 1 and NIC 1 at GPU 0: they are renumbered.
    fabric = made(tmp_path, node("G0 N1;G1 N0"))
    assert named(fabric, 0, 2)[:2] == ["gpu0>pcie0", "pcie0>nic0"]
    assert named(fabric, 1, 3)[:2] == ["gpu1>pcie1", "pcie1>nic1"]


def test_without_nvlink_gpus_meet_over_the_tree(tmp_path: Path) -> None:
    fabric = made(tmp_path, node("G0 G1 N0;G2 N1|G3 N2 N3", nvlink=False))
    assert fabric.facts.domain == "pcie"
    assert named(fabric, 0, 1) == ["gpu0>pcie0", "pcie0>gpu1"]
    assert named(fabric, 0, 2) == ["gpu0>pcie0", "pcie0>cpu0", "cpu0>pcie1", "pcie1>gpu2"]
    assert named(fabric, 3, 0) == ["gpu3>pcie2", "pcie2>cpu1", "cpu1>cpu0", "cpu0>pcie0", "pcie0>gpu0"]
    assert named(fabric, 4, 5) == ["gpu4>pcie3", "pcie3>gpu5"]  # the second node has its own
    # Both ways at once between two pairs over one uplink: half each.
    assert seconds(fabric, [0, 1], [2, 2], 10**9) == pytest.approx(2e9 / WIDE)


def test_pxn_goes_over_the_other_gpus_nic(tmp_path: Path) -> None:
    fabric = made(tmp_path, node("G0 N0;G1 N1"), rails=2)
    assert named(fabric, 0, 3) == ["gpu0>nvswitch0", "nvswitch0>gpu1", "gpu1>pcie1", "pcie1>nic1", "nic1>leaf1", "leaf1>nic3",
                                   "nic3>pcie3", "pcie3>gpu3"]  # fmt: skip


@pytest.mark.parametrize("routing", ["ecmp", "spray", "adaptive", "static", "dmod"])
@pytest.mark.parametrize("fields", [{}, {"preset": "alibaba-hpn"}, {"preset": "leonardo"}, {"queue_pairs": 3}])
@pytest.mark.parametrize("nvlink", [True, False])
def test_what_comes_in_goes_out(tmp_path: Path, routing: str, fields: dict[str, object], nvlink: bool) -> None:
    fabric = made(tmp_path, node("G0 G1 N0 N1;G2 N2|G3 N3", nvlink=nvlink), nodes=8, routing=routing, **fields)
    random = np.random.default_rng(1)
    src, dst = random.integers(0, fabric.world, (2, 100))
    size = random.integers(0, 10**6, 100)
    load = ways(fabric, src, dst, size).link_bytes
    net = np.zeros(fabric.devices)
    np.subtract.at(net, fabric.src, load)
    np.add.at(net, fabric.dst, load)
    wanted = np.zeros(fabric.devices)
    np.subtract.at(wanted, src, np.where(src == dst, 0, size))
    np.add.at(wanted, dst, np.where(src == dst, 0, size))
    np.testing.assert_allclose(net, wanted, atol=0 if routing != "spray" else 400)
    assert load[fabric.tier == TIERS.index("pcie")].sum() > 0


def test_fewer_gpus_than_the_file_has(tmp_path: Path) -> None:
    fabric = made(tmp_path, node("G0 N0;G1 N1;G2 N2;G3 N3"), gpus_per_node=2)
    assert (fabric.world, dict(fabric.kinds)["nic"]) == (4, 4)
    assert named(fabric, 0, 2) == ["gpu0>pcie0", "pcie0>nic0", "nic0>leaf0", "leaf0>nic2", "nic2>pcie4", "pcie4>gpu2"]


def test_a_failed_nic_is_gone_round(tmp_path: Path) -> None:
    fabric = without(made(tmp_path, node("G0 N0;G1 N1")), ["nic0"])
    way = named(fabric, 0, 2)
    assert "nic0" not in " ".join(way)
    assert way[:4] == ["gpu0>nvswitch0", "nvswitch0>gpu1", "gpu1>pcie1", "pcie1>nic1"]
    with pytest.raises(InputError, match="nic"):
        without(fabric, ["nic9"])


def test_a_torus_has_no_nics(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="NIC"):
        made(tmp_path, node("G0 N0"), preset="tpu-v4-torus", nodes=8)
