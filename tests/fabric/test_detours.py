"""Dragonflies by their formulas, and detours: when they pay, when not, and that they are ways."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, Fabric, build, ways, without
from tokenwire.fabric.dragonfly import global_cables
from tokenwire.fabric.fabric import TIERS

CORE = TIERS.index("core")


def dragonfly(routing: str = "ecmp", **fields: object) -> Fabric:
    """Return the 72 ends of Kim et al. 2008: p = h = 2, a = 4, 9 groups; a node of one GPU an end."""
    given: dict[str, object] = {"preset": "dragonfly", "nodes": 72, "gpus_per_node": 1, "nodes_per_unit": 2, "units_per_pod": 4,
                                "global_links": 2, "routing": routing, **fields}  # fmt: skip
    return build(ClusterConfig.model_validate(given))


def busiest(fabric: Fabric, src: np.ndarray, dst: np.ndarray, seed: int = 0) -> float:
    """Return the bytes of the busiest link where each pair sends 1,000."""
    return float(ways(fabric, src, dst, np.full(src.size, 1000), seed=seed).link_bytes.max())


@pytest.mark.parametrize(("groups", "routers", "links"), [(9, 4, 2), (33, 8, 4), (5, 4, 2), (2, 3, 1), (4, 8, 4)])
def test_any_two_groups_have_as_many_links(groups: int, routers: int, links: int) -> None:
    a, b = global_cables(groups, routers, links)
    pairs = np.unique(np.sort([a // routers, b // routers], axis=0), axis=1, return_counts=True)
    assert pairs[0].shape[1] == groups * (groups - 1) // 2
    assert set(pairs[1].tolist()) == {routers * links // (groups - 1)}
    assert np.bincount(np.concatenate([a, b]), minlength=groups * routers).max() <= links  # no router has more than h


def test_the_dragonfly_of_the_paper() -> None:
    # 36 routers of 7 ports: 2 ends, 3 in the group, 2 out. 9·6 links in groups, 36 between them.
    fabric = dragonfly()
    assert dict(fabric.kinds)["leaf"] == 36
    assert [(fabric.tier == TIERS.index(t)).sum() // 2 for t in ("leaf", "spine", "core")] == [72, 54, 36]
    # At most router, global link, router: leaf, spine, core, spine, leaf.
    src, dst = (x.reshape(-1) for x in np.meshgrid(np.arange(72), np.arange(72)))
    assert ways(fabric, src, dst, np.ones(src.size)).hops.max() == 5


def core_bytes(fabric: Fabric, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return the bytes of the links between groups where each pair sends 64,000."""
    return ways(fabric, src, dst, np.full(src.size, 64000)).link_bytes[fabric.tier == CORE]


def test_neighbour_groups_want_a_detour() -> None:
    # Every end sends to the next group: 8 ends over the one link between the two, 8·64,000 B, while 63 of 72 links idle.
    # Detours: each byte over two links between groups instead of one, 72·2/72 = 2 ends a link on average, by chance some more.
    src = np.arange(72)
    load = {r: core_bytes(dragonfly(r, queue_pairs=64), src, (src + 8) % 72) for r in ("ecmp", "valiant", "ugal")}
    assert sorted(set(load["ecmp"].tolist())) == [0, 8 * 64000]
    assert load["valiant"].sum() == 2 * load["ecmp"].sum()
    assert load["valiant"].max() < 3 * 64000
    assert load["ugal"].max() < 4 * 64000
    assert load["ecmp"].sum() < load["ugal"].sum() < load["valiant"].sum()


def test_a_random_permutation_wants_few_detours() -> None:
    src = np.arange(72)
    dst = np.random.default_rng(0).permutation(72)
    load = {r: core_bytes(dragonfly(r, queue_pairs=64), src, dst) for r in ("ecmp", "valiant", "ugal")}
    assert load["ugal"].max() < load["ecmp"].max()
    assert load["ugal"].sum() < 1.5 * load["ecmp"].sum()
    assert load["valiant"].sum() == 2 * load["ecmp"].sum()


def test_a_minimal_way_has_one_link_between_groups() -> None:
    src, dst = (x.reshape(-1) for x in np.meshgrid(np.arange(72), np.arange(72)))
    for routing in ("ecmp", "spray", "adaptive", "static", "dmod"):
        fabric = dragonfly(routing)
        assert ways(fabric, src, dst, np.ones(src.size, dtype=np.int64)).link_bytes[fabric.tier == CORE].sum() == 72 * 64


@pytest.mark.parametrize("preset", ["leonardo", "hyperx", "tpu-v4-torus", "dragonfly"])
def test_ugal_takes_few_detours_where_nothing_is_in_the_way(preset: str) -> None:
    # Far apart and few: no flow finds a link taken.
    more = {"nodes": 1080} if preset == "leonardo" else {}  # two groups have no third
    made = {r: build(ClusterConfig(preset=preset, routing=r, **more)) for r in ("ecmp", "ugal", "valiant")}  # type: ignore[arg-type]
    half = made["ecmp"].world // 2
    load = {r: ways(f, [0], [half], [1000]).link_bytes.sum() for r, f in made.items()}
    assert load["ugal"] == load["ecmp"]
    assert load["valiant"] > load["ecmp"]


def test_a_torus_shifted_by_half() -> None:
    # 8 x 8 torus, everyone to the chip 4 on in its row: 4 hops, all on the 8 links of the row: 8·4/16 = 2 each way on average.
    # Detours over random chips: 64·(4 + 4) hops over 256 links; more hops, no gain. UGAL stays with the shortest.
    def torus(routing: str) -> Fabric:
        return build(ClusterConfig(preset="tpu-v4-torus", gpus=64, dimensions=2, routing=routing))

    src = np.arange(64)
    dst = src // 8 * 8 + (src + 4) % 8
    assert busiest(torus("ugal"), src, dst) <= busiest(torus("ecmp"), src, dst)


@given(st.sampled_from(["dragonfly", "leonardo", "hyperx", "tpu-v4-torus"]), st.sampled_from(["valiant", "ugal"]), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_detours_are_ways(preset: str, routing: str, seed: int) -> None:
    # From link to link without a gap, from the sender to the receiver, no link twice.
    size = {"gpus": 64} if preset == "tpu-v4-torus" else {"nodes": 64 if preset != "leonardo" else 600}
    fabric = build(ClusterConfig(preset=preset, routing=routing, **size))  # type: ignore[arg-type]
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, fabric.world, (2, 50))
    found = ways(fabric, src, dst, np.full(50, 10), seed=seed % 1000)
    nics = fabric.attachments
    own = {gpu: {int(gpu), *nics[1][nics[0] == gpu].tolist()} for gpu in {*src.tolist(), *dst.tolist()}}
    for pair, (a, b) in zip(found.pair, itertools.pairwise(found.offsets), strict=True):
        links = found.entries[a:b]
        if src[pair] == dst[pair]:
            assert links.size == 0
            continue
        assert int(fabric.src[links[0]]) in own[src[pair]]
        assert int(fabric.dst[links[-1]]) in own[dst[pair]]
        assert np.unique(links).size >= links.size - 4  # a detour may come back over a link in its first or last group
        for one, two in itertools.pairwise(links):
            here, there = int(fabric.dst[one]), int(fabric.src[two])
            g = fabric.gpus_per_node
            same = here < fabric.world and there in nics[1][nics[0] == here].tolist()
            assert here == there or same or (there < fabric.world and here in nics[1][nics[0] == there].tolist()), (here, there, g)


def test_failures_are_gone_round() -> None:
    for routing in ("valiant", "ugal"):
        after = without(dragonfly(routing), ["leaf5", "leaf0-leaf1"])
        src = np.array([i for i in range(72) if i not in (10, 11)])
        load = ways(after, src, np.roll(src, 9), np.full(src.size, 7)).link_bytes
        dead = after.device("leaf5")
        used = np.flatnonzero(load)
        assert not ((after.src[used] == dead) | (after.dst[used] == dead)).any()


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"preset": "dgx-h100-superpod", "routing": "valiant"}, "dragonfly"), ({"preset": "fat-tree", "routing": "ugal"}, "adaptive"),
        ({"preset": "dragonfly", "nodes": 265}, "nodes = 264"), ({"preset": "dragonfly", "leaf_radix": 8}, "leaf_radix"),
    ],
)  # fmt: skip
def test_wrong_clusters(fields: dict[str, object], word: str) -> None:
    with pytest.raises(InputError) as error:
        build(ClusterConfig.model_validate(fields))
    assert word in str(error.value)
