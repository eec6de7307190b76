"""``--plot`` of model, plan and step: a drawing alone or in a page, with the numbers of the scene."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tokenwire.errors import InputError
from tokenwire.journey import Journey, scale
from tokenwire.report.plots import write_scene


@pytest.mark.parametrize(("name", "said"), [("model", "layers: 6,318,080"), ("plan", "rank 7: tp 1, dp 1, pp 1"), ("step", "optimizer")])
def test_a_scene_is_drawn(tmp_path: Path, name: str, said: str) -> None:
    alone, page = tmp_path / "a.svg", tmp_path / "a.html"
    write_scene(name, Journey.read(None), str(alone))
    write_scene(name, Journey.read(None), str(page))
    assert ET.parse(alone).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert said in alone.read_text()
    assert said in page.read_text()
    assert "<figcaption>" in page.read_text()


def test_what_cannot_be_drawn_is_said_and_no_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    with pytest.raises(InputError, match="nothing to draw of this plan"):
        write_scene("plan", scale("405b"), str(path))
    with pytest.raises(InputError, match=r"\.svg, \.html or \.png"):
        write_scene("plan", Journey.read(None), str(tmp_path / "a.gif"))
    assert list(tmp_path.iterdir()) == []
