"""Failed switches and links: what is left finds its way round, the rest stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fabric.test_clos import named
from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, build, routes, without


def test_a_failed_leaf_is_passed_over_another_rail() -> None:
    fabric = without(build(ClusterConfig(nodes=4)), ["leaf3"])
    way = named(fabric, 3, 11)
    # NVLink to a GPU of another rail, its leaf, and NVLink again: 2 + 2 + 2 links.
    assert len(way) == 6
    assert not any("leaf3" in hop for hop in way)
    assert way[0] == "gpu3>nvswitch0"
    assert way[-1] == "nvswitch1>gpu11"
    assert named(fabric, 0, 8) == ["nic0>leaf0", "leaf0>nic8"]


def test_no_route_uses_what_failed_and_others_stay() -> None:
    before = build(ClusterConfig(nodes=96))
    after = without(before, ["spine0", "leaf5-spine3"])
    random = np.random.default_rng(1)
    src, dst = random.integers(0, before.world, (2, 3000))
    one, other = routes(before, src, dst), routes(after, src, dst)
    spine0, leaf5, spine3 = before.device("spine0"), before.device("leaf5"), before.device("spine3")
    ends = set(zip(after.src[other[1]].tolist(), after.dst[other[1]].tolist(), strict=True))
    assert not any(spine0 in pair for pair in ends)
    assert (leaf5, spine3) not in ends
    assert (spine3, leaf5) not in ends
    changed = 0
    for i in range(src.size):
        way, way_after = (r[1][r[0][i] : r[0][i + 1]] for r in (one, other))
        touched = spine0 in before.dst[way] or (leaf5 in before.src[way] and spine3 in before.dst[way])
        touched |= spine3 in before.src[way] and leaf5 in before.dst[way]
        if touched:
            changed += 1
        else:
            assert np.array_equal(way, way_after)
    assert changed > 100


def test_a_fabric_in_two_parts_says_so() -> None:
    fabric = without(build(ClusterConfig(preset="university-100gbe")), ["leaf0"])
    with pytest.raises(InputError, match="no way is left"):
        routes(fabric, [0], [15])
    assert named(fabric, 0, 1) == ["gpu0>pcie0", "pcie0>gpu1"]


@pytest.mark.parametrize("name", ["leaf99", "leef3", "leaf0-leaf1", "gpu0", "", "leaf", "leaf0-"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InputError):
        without(build(ClusterConfig(nodes=2)), [name])
