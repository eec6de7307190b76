"""Clusters as data: the catalog, users' files, what is different from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, build, preset, presets


@pytest.mark.parametrize("name", presets())
def test_catalog_names_its_sources(name: str) -> None:
    facts = preset(name)
    assert facts.title
    assert facts.source
    fabric = build(ClusterConfig(preset=name))
    assert fabric.world == facts.nodes * facts.gpus_per_node
    assert (fabric.rate > 0).all()
    assert (fabric.src != fabric.dst).all()


def test_users_file_changes_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('preset = "dgx-h100-superpod"\nnic_rate = "200 Gb/s"\nnodes = 4\n')
    fabric = build(ClusterConfig(file=str(path)))
    assert (fabric.world, fabric.nic_rate) == (32, 25e9)
    assert fabric.facts.domain_rate == 450e9


@pytest.mark.parametrize(
    ("text", "word"),
    [("nodes = ", "not TOML"), ("nods = 3", "nods"), ('nic_rate = "0 Gb/s"', "nic_rate"), ('preset = "x"', "known are"),
     ("nodes = -1", "nodes"), ('nic_rate = "400"', "unit"), ("preset = 3", "preset")],
)  # fmt: skip
def test_files_that_are_wrong(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=word) as caught:
        build(ClusterConfig(file=str(path)))
    assert len(str(caught.value).splitlines()) == 1


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(InputError, match="dgx-h100-superpod"):
        read_section(ClusterConfig, {"preset": "dgx-h100-superpot"}, where="[cluster]")


@pytest.mark.parametrize(("gpus", "nearest"), [(12, "gpus_per_node = 6 (2 nodes)"), (18, "gpus_per_node = 6 (3 nodes)"), (13, "gpus = 8")])
def test_gpus_that_do_not_fill_nodes_are_offered_smaller_nodes(gpus: int, nearest: str) -> None:
    with pytest.raises(InputError) as found:
        ClusterConfig(gpus=gpus).facts  # noqa: B018 - raises
    assert found.value.nearest == nearest
