"""Charts and plots: what is drawn is what was given, in files that open."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.plots import check_ending, write_plot
from tokenwire.report.comparison.svg import height_of, svg

NS = {"s": "http://www.w3.org/2000/svg"}
BARS = Chart(
    "Bytes & words", "bars", "tokenizer <x>", "B a word", ("bytes", "BPE"),
    (Series("data", (100.0, 10.0)), Series("tensor", (1000.0, None))),
)  # fmt: skip
LINES = Chart("T", "lines", "h", "B", ("256", "512"), (Series("data", (1.0, 10.0)),), (256.0, 512.0))


def _bars(chart: Chart) -> list[ElementTree.Element]:
    tree = ElementTree.fromstring(svg(chart))
    return [rect for rect in tree.findall("s:rect", NS) if rect.find("s:title", NS) is not None]


def test_a_bar_for_each_value() -> None:
    bars = _bars(BARS)
    assert [bar.findtext("s:title", None, NS) for bar in bars] == [
        "bytes, data: 100", "BPE, data: 10", "bytes, tensor: 1,000",
    ]  # fmt: skip
    # 10 is the foot of the logarithmic axis, 100 half of the two decades, 1,000 its top.
    heights = [float(bar.get("height") or 0) for bar in bars]
    assert heights[0] == pytest.approx(heights[2] / 2, abs=0.11)
    assert heights[1] == 0


def test_words_are_escaped() -> None:
    assert "Bytes &amp; words" in svg(BARS)
    assert "tokenizer &lt;x&gt;" in svg(BARS)


def test_a_point_for_each_value_of_a_line() -> None:
    assert len(ElementTree.fromstring(svg(LINES)).findall("s:circle", NS)) == 2


def test_stacked_bars_stand_on_each_other() -> None:
    chart = Chart("T", "stacked", "", "", ("a",), (Series("x", (1.0,)), Series("y", (3.0,))), log_y=False)
    first, second = _bars(chart)
    assert float(second.get("height") or 0) == pytest.approx(3 * float(first.get("height") or 0), abs=0.3)
    assert float(second.get("y") or 0) + float(second.get("height") or 0) == pytest.approx(float(first.get("y") or 0), abs=0.11)


@given(st.lists(st.floats(1e-9, 1e18), min_size=1, max_size=6))
def test_every_value_is_inside_the_picture(values: list[float]) -> None:
    chart = Chart("T", "bars", "", "", tuple(map(str, range(len(values)))), (Series("s", tuple(values)),))
    top = height_of(chart.extent()[1], chart)
    assert all(-1e-6 <= height_of(value, chart) <= top + 1e-6 for value in values)
    ElementTree.fromstring(svg(chart))


@pytest.mark.parametrize("values", [(0.0,), (None,), (5.0,), (1e12, 0.0)])
def test_strange_values_are_drawn(values: tuple[float | None, ...]) -> None:
    ElementTree.fromstring(svg(Chart("T", "bars", "", "", ("a",) * len(values), (Series("s", values),))))


def test_written_files(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    write_plot(BARS, str(tmp_path / "plot.svg"))
    write_plot(LINES, str(tmp_path / "plot.html"))
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    page = (tmp_path / "plot.html").read_text()
    assert "Plotly.newPlot" in page
    assert 'src="http' not in page  # opens without a network


@pytest.mark.parametrize("name", ["plot.png", "plot", "plot.html.bmp"])
def test_another_ending_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.html or \.svg"):
        check_ending(name)
    with pytest.raises(InputError):
        write_plot(BARS, str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []
