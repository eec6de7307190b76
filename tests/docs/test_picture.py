"""The picture of the README."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.docs.conftest import DOCS

picture = pytest.importorskip("picture")


def test_a_drawing_is_placed_as_wide_as_wanted() -> None:
    placed = picture.placed('<svg xmlns="x" viewBox="0 0 200 50" width="200" style="display:block"><g/></svg>', 10, 20, 100)
    # 100 wide is half of 200, and so 25 high.
    assert placed == '<svg x="10" xmlns="x" viewBox="0 0 200 50" y="20" width="100" height="25"><g/></svg>'


@pytest.mark.slow
def test_the_sheet_is_drawn_and_fetches_nothing() -> None:
    sheet = "\n".join(picture.sheet())
    words = " ".join(ElementTree.fromstring(sheet).itertext())
    assert [k for k in range(1, 7) if f"{k} · " not in words] == []
    assert re.findall(r"(?:href|src)=|url\(", sheet) == []


def test_the_readme_shows_it() -> None:
    assert "](docs/walk.svg)" in (DOCS.parent / "README.md").read_text("utf-8")
    assert (DOCS / "walk.svg").read_text("utf-8").startswith("<svg ")
