"""Generators: every pair connected, ports of switches respected, capacity across the middle as the books say."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.fabric import TIERS, ClusterConfig, Fabric, build, presets, routes, ways
from tokenwire.fabric.facts import ClusterFacts
from tokenwire.fabric.hyperx import build_hyperx, mesh


def ports(fabric: Fabric, kind: str) -> int:
    """Return the most links out of a device of a kind."""
    first, many = fabric.starts[kind], dict(fabric.kinds)[kind]
    return int(np.bincount(fabric.src, minlength=fabric.devices)[first : first + many].max(initial=0))


def connected(fabric: Fabric, pairs: int = 200) -> None:
    random = np.random.default_rng(0)
    src, dst = random.integers(0, fabric.world, (2, pairs))
    offsets, _ = routes(fabric, src, dst)
    assert ((np.diff(offsets) > 0) == (src != dst)).all()


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("nodes", [1, 3, 40])
def test_every_pair_of_every_preset_is_connected(name: str, nodes: int) -> None:
    config = ClusterConfig(preset=name, nodes=nodes)
    if name == "single-switch" and nodes > 8:
        with pytest.raises(InputError, match="leaf_radix is 64"):
            build(config)
    else:
        connected(build(config))


def hyperx(nodes: int, per_switch: int = 2, **fields: object) -> Fabric:
    facts = ClusterFacts().model_copy(update={
        "nodes": nodes, "gpus_per_node": 1, "nics_per_node": 1, "domain": "none", "nodes_per_unit": per_switch,
        "topology": "hyperx", "dimensions": 2, **fields,
    })  # fmt: skip
    return build_hyperx("hyperx", facts)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_a_hyperx_by_its_formulas(shape: list[int]) -> None:
    # Ahn et al.: K = sum(S - 1) links a switch, and a way has one link for each dimension in which two switches differ.
    switches = int(np.prod(shape))
    fabric = hyperx(2 * switches, shape=tuple(shape))
    assert ports(fabric, "leaf") == 2 + sum(side - 1 for side in shape)
    spine = fabric.tier == TIERS.index("spine")
    assert spine.sum() == switches * sum(side - 1 for side in shape)
    connected(fabric, 50)
    src, dst = np.random.default_rng(1).integers(0, switches, (2, 50))
    differ = sum(np.array(np.unravel_index(src, shape)) != np.array(np.unravel_index(dst, shape)))
    offsets, links = routes(fabric, 2 * src, 2 * dst + 1)
    hops = [int(spine[links[a:b]].sum()) for a, b in itertools.pairwise(offsets)]
    assert hops == list(differ)


@given(st.integers(2, 10))
@settings(max_examples=10)
def test_bisection_of_a_full_mesh(n: int) -> None:
    # Halves of n/2 switches: n²/4 cables between them for even n.
    low, high = mesh((n,))
    half = n // 2
    assert ((low < half) != (high < half)).sum() == half * (n - half)


@pytest.mark.parametrize(("preset", "fields"), [("fat-tree", {}), ("dgx-h100-superpod", {})])
@pytest.mark.parametrize("over", [1.0, 2.0, 4.0])
def test_bisection_of_a_two_level_tree(preset: str, fields: dict[str, object], over: float) -> None:
    # What leaves the leaves is what enters them, over the oversubscription.
    fabric = build(ClusterConfig(preset=preset, nodes=128, oversubscription=over, **fields))  # type: ignore[arg-type]
    leaf, spine = (fabric.rate[fabric.tier == TIERS.index(t)].sum() for t in ("leaf", "spine"))
    assert leaf / spine == pytest.approx(over)


def test_a_three_level_tree_of_16_port_switches() -> None:
    # Al-Fares et al. 2008: k = 16: k³/4 = 1,024 hosts, k²/2 = 128 edge and aggregation switches each, k²/4 = 64 cores.
    fabric = build(ClusterConfig(preset="fat-tree-3"))
    kinds = dict(fabric.kinds)
    assert (fabric.world, kinds["leaf"], kinds["spine"], kinds["core"]) == (1024, 128, 128, 64)
    assert ports(fabric, "leaf") == ports(fabric, "spine") == ports(fabric, "core") == 16
    connected(fabric)
    # Full bisection: as much capacity on every level.
    rates = [fabric.rate[fabric.tier == TIERS.index(t)].sum() for t in ("leaf", "spine", "core")]
    assert rates[0] == rates[1] == rates[2]


def test_single_switch() -> None:
    fabric = build(ClusterConfig(preset="single-switch"))
    kinds = dict(fabric.kinds)
    assert kinds["leaf"] == 1
    assert ports(fabric, "nic") == 1
    offsets, links = routes(fabric, np.arange(8), np.arange(8) + 8)
    assert set(np.diff(offsets)) == {2}
    assert set(fabric.tier[links].tolist()) == {TIERS.index("leaf")}


def test_rail_only_sends_across_rails_by_nvlink() -> None:
    fabric = build(ClusterConfig(preset="rail-only", nodes=64))
    _, links = routes(fabric, [0], [8 * 40 + 3])
    assert [TIERS[fabric.tier[i]] for i in links[:2]] == ["nvlink", "nvlink"]
    # No spine joins leaves of two rails.
    up = np.flatnonzero((fabric.tier == TIERS.index("spine")) & (fabric.src < fabric.dst))
    rails: dict[int, set[int]] = {}
    for i in up:
        rails.setdefault(int(fabric.dst[i]), set()).add(int(fabric.src[i] - fabric.starts["leaf"]) % 8)
    assert all(len(found) == 1 for found in rails.values())


@pytest.mark.parametrize("shape", [(4, 4, 4), (2, 4, 8), (1, 8, 8), (64,)])
def test_sides_of_a_torus(shape: tuple[int, ...]) -> None:
    fabric = build(ClusterConfig(preset="tpu-v4-torus", nodes=16, shape=shape))
    # Each chip has two links a side, one where the side is 2, none where it is 1.
    assert fabric.links == 64 * sum(min(side - 1, 2) for side in shape)
    # The farthest is half of every side away.
    offsets, _ = routes(fabric, np.zeros(64, dtype=int), np.arange(64))
    assert np.diff(offsets).max() == sum(side // 2 for side in shape)


def test_a_torus_goes_dimension_by_dimension_where_static() -> None:
    fabric = build(ClusterConfig(preset="tpu-v4-torus", nodes=16, shape=(4, 4, 4), routing="dmod"))
    _, links = routes(fabric, [0], [16 + 4 + 1])
    assert fabric.dst[links].tolist() == [16, 20, 21]


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"preset": "tpu-v4-torus", "shape": (3, 3)}, "9 places"), ({"preset": "hyperx", "shape": (2, 2), "nodes": 4000}, "places for"),
     ({"preset": "fat-tree", "leaf_radix": 8}, "leaf_radix"), ({"preset": "hyperx", "leaf_radix": 2}, "leaf_radix"),
     ({"preset": "hyperx", "nodes": 10**5, "dimensions": 1}, "cables")],
)  # fmt: skip
def test_what_cannot_be_built(fields: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        build(ClusterConfig(**fields))  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1


def test_a_large_scale_up_domain() -> None:
    fabric = build(ClusterConfig(preset="gb200-nvl72", nodes=2))
    _, links = routes(fabric, [0], [71])
    assert [TIERS[fabric.tier[i]] for i in links] == ["nvlink", "nvlink"]
    assert fabric.rate[links].tolist() == [900e9, 900e9]


@pytest.mark.parametrize("routing", ["ecmp", "static", "adaptive", "spray", "valiant", "ugal"])
def test_a_ring_longer_than_most(routing: str) -> None:
    # 512 chips in a ring: the farthest is 256 links away.
    fabric = build(ClusterConfig(preset="tpu-v4-torus", gpus=512, shape=(512,), routing=routing))  # type: ignore[arg-type]
    found = ways(fabric, [0, 0, 511], [200, 312, 1], [10, 10, 10])
    if routing != "valiant":
        assert found.hops.tolist() == [200, 200, 2]
    assert found.size.tolist() == [10, 10, 10]


@pytest.mark.parametrize(
    "asked",
    [{"nodes": 16}, {"gpus": 128}, {"nodes": 9}, {"nodes": 1000}, {"nics_per_node": 16}, {"nics_per_node": 64}, {"nics_per_node": 128},
     {"nodes": 16, "oversubscription": 3}, {"nodes": 16, "rails": 8, "leaf_radix": 9}, {"nodes": 16, "uplinks": 60}],
)  # fmt: skip
def test_the_hint_for_a_leaf_without_ports_works(asked: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="leaf_radix is") as caught:
        build(ClusterConfig(preset="single-switch", **asked))
    for hint in caught.value.nearest.split(" or "):
        name, value = hint.split(" (")[0].split(" = ")
        kept = {key: given for key, given in asked.items() if not (name == "nodes" and key == "gpus")}
        build(ClusterConfig(preset="single-switch", **{**kept, name: int(value)}))
