"""The folded Clos: counts of the reference architecture, routes worked by hand, properties of every route."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, ClusterConfig, Fabric, build, presets, routes


def named(fabric: Fabric, src: int, dst: int, **options: object) -> list[str]:
    """Return the devices on the way, a GPU and its NIC as two."""
    _offsets, links = routes(fabric, [src], [dst], **options)  # type: ignore[arg-type]
    return [f"{fabric.device_name(fabric.src[i])}>{fabric.device_name(fabric.dst[i])}" for i in links]


@pytest.mark.parametrize(
    ("units", "leaf", "spine", "core"),
    # NVIDIA, DGX SuperPOD reference architecture, table of larger component counts (units of 32 nodes).
    [(1, 8, 4, 0), (2, 16, 8, 0), (4, 32, 16, 0), (8, 64, 32, 0), (16, 128, 128, 64), (32, 256, 256, 128), (64, 512, 512, 256)],
)
def test_counts_of_the_reference_architecture(units: int, leaf: int, spine: int, core: int) -> None:
    kinds = dict(build(ClusterConfig(nodes=32 * units)).kinds)
    assert (kinds["leaf"], kinds["spine"], kinds["core"]) == (leaf, spine, core)
    assert kinds["gpu"] == kinds["nic"] == 256 * units


def test_cables_of_the_reference_architecture() -> None:
    # 64 units: 16,384 cables node to leaf, leaf to spine and spine to core; here both directions of each.
    fabric = build(ClusterConfig(nodes=2048))
    for tier in ("leaf", "spine", "core"):
        assert (fabric.tier == TIERS.index(tier)).sum() == 2 * 16384


def test_ways_by_hand() -> None:
    fabric = build(ClusterConfig(nodes=64))
    assert named(fabric, 0, 7) == ["gpu0>nvswitch0", "nvswitch0>gpu7"]
    assert named(fabric, 3, 11) == ["nic3>leaf3", "leaf3>nic11"]  # the same rail, the same unit
    # Rail 3 to rail 4: NVLink to GPU 4, then its leaf.
    assert named(fabric, 3, 12) == ["gpu3>nvswitch0", "nvswitch0>gpu4", "nic4>leaf4", "leaf4>nic12"]
    way = named(fabric, 3, 12, pxn=False)
    assert [way[0], way[-1], len(way)] == ["nic3>leaf3", "leaf4>nic12", 4]
    way = named(fabric, 0, 256)  # node 32 is the first of the second unit, whose leaves begin at 8
    assert [way[0], way[-1], len(way)] == ["nic0>leaf0", "leaf8>nic256", 4]
    assert named(fabric, 5, 5) == []


def test_core_beyond_a_pod() -> None:
    fabric = build(ClusterConfig(nodes=512))
    way = named(fabric, 0, 8 * 511)
    assert [hop.split(">")[0].rstrip("0123456789") for hop in way] == ["nic", "leaf", "spine", "core", "spine", "leaf"]


def test_the_built_in_walk_uses_four_rails() -> None:
    fabric = build(ClusterConfig(nodes=2, gpus_per_node=4))
    kinds = dict(fabric.kinds)
    assert (kinds["gpu"], kinds["nic"], kinds["leaf"]) == (8, 8, 4)
    assert named(fabric, 1, 5) == ["nic1>leaf1", "leaf1>nic5"]


def test_dual_plane_ends_in_the_plane_it_began_in() -> None:
    fabric = build(ClusterConfig(preset="alibaba-hpn", nodes=256))
    src = np.arange(1024)
    offsets, links = routes(fabric, src, src + 1024)
    leaf = fabric.starts["leaf"]
    planes = [
        {int(d - leaf) % 2 for d in fabric.dst[links[a:b]] if leaf <= d < leaf + dict(fabric.kinds)["leaf"]}
        for a, b in itertools.pairwise(offsets)
    ]
    assert all(len(plane) == 1 for plane in planes)
    assert {0, 1} == set.union(*planes)  # both planes are used


def test_planes_of_deepseek_meet_only_inside_nodes() -> None:
    fabric = build(ClusterConfig(preset="deepseek-h800", nodes=64))
    assert named(fabric, 0, 8 * 40 + 3)[:2] == ["gpu0>nvswitch0", "nvswitch0>gpu3"]


def test_oversubscription_takes_uplinks_away() -> None:
    # 32 ports down; 4:1 leaves 8 up.
    full, thin = (build(ClusterConfig(nodes=64, oversubscription=x)) for x in (1.0, 4.0))
    spine = TIERS.index("spine")
    assert (full.tier == spine).sum() == 4 * (thin.tier == spine).sum()


def seats(fabric: Fabric) -> np.ndarray:
    """Return for each device the one it stands for: a NIC the first GPU that uses it."""
    out = np.arange(fabric.devices)
    gpus, nics = fabric.attachments
    for gpu, nic in zip(gpus[::-1], nics[::-1], strict=True):
        out[nic] = gpu
    return out


@pytest.mark.parametrize("preset", presets())
def test_every_route_leads_from_end_to_end(preset: str) -> None:
    config = ClusterConfig(preset=preset, nodes=8)
    fabric = build(config)
    random = np.random.default_rng(3)
    src, dst = random.integers(0, fabric.world, (2, 400))
    offsets, links = routes(fabric, src, dst, seed=7)
    gpus, nics = fabric.attachments
    own = {(int(g), int(n)) for g, n in zip(gpus, nics, strict=True)}
    for i in range(src.size):
        way = links[offsets[i] : offsets[i + 1]]
        if src[i] == dst[i]:
            assert way.size == 0
            continue
        at = int(src[i])
        for link in way:
            here = int(fabric.src[link])
            assert here == at or (at, here) in own or (here, at) in own
            at = int(fabric.dst[link])
        assert at == dst[i] or (int(dst[i]), at) in own
        assert len(set(way.tolist())) == way.size  # no link twice


@given(nodes=st.integers(1, 600), seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_seeds_change_the_way_but_not_its_length(nodes: int, seed: int) -> None:
    fabric = build(ClusterConfig(nodes=nodes))
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, fabric.world, (2, 50))
    one, other = (routes(fabric, src, dst, seed=s) for s in (0, seed))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(fabric.tier[one[1]], fabric.tier[other[1]])


def test_hash_spreads_over_spines() -> None:
    # 256 GPUs of unit 0 to unit 1 over 16 spines x 2 links: no uplink is left alone by a fair hash (mean 8 a link a rail).
    fabric = build(ClusterConfig(nodes=128))
    src = np.arange(256)
    _, links = routes(fabric, np.repeat(src, 8), np.repeat(src, 8) + 256 * np.tile([1, 2, 3, 1, 2, 3, 1, 2], 256))
    used = np.bincount(links, minlength=fabric.links)[(fabric.tier == TIERS.index("spine"))]
    assert (used[: 8 * 32] > 0).mean() > 0.9


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"gpus": 12}, "gpus_per_node = 6"), ({"nodes": 10**7}, "nodes"), ({"nodes": 3, "gpus": 8}, "give one"),
        ({"nodes": 2, "nics_per_node": 3}, "nics_per_node"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit(fields: dict[str, int], word: str) -> None:
    with pytest.raises(InputError, match=word):
        _ = ClusterConfig(**fields).world


def test_gpus_that_are_not_there() -> None:
    with pytest.raises(InputError, match="GPU 16"):
        routes(build(ClusterConfig(nodes=2)), [0], [16])


def test_fewer_gpus_than_a_node() -> None:
    assert ClusterConfig(gpus=4).world == 4
    assert build(ClusterConfig(gpus=1)).world == 1
