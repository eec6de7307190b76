"""Charts and plots: what is drawn is what was given, in files that open."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.plots import write_plot
from tokenwire.report.comparison.svg import height_of, svg
from tokenwire.report.drawn import alone, check_ending, framed, stacked, write_drawings

NS = {"s": "http://www.w3.org/2000/svg"}
BARS = Chart(
    "Bytes & words", "bars", "tokenizer <x>", "B a word", ("bytes", "BPE"),
    (Series("data", (100.0, 10.0)), Series("tensor", (1000.0, None))),
)  # fmt: skip
LINES = Chart("T", "lines", "h", "B", ("256", "512"), (Series("data", (1.0, 10.0)),), (256.0, 512.0))


def _bars(chart: Chart) -> list[ElementTree.Element]:
    tree = ElementTree.fromstring(svg(chart))
    return [rect for rect in tree.findall(".//s:rect", NS) if rect.find("s:title", NS) is not None]


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
    assert len(ElementTree.fromstring(svg(LINES)).findall(".//s:circle", NS)) == 2


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


@pytest.mark.parametrize("name", ["plot.gif", "plot", "plot.html.bmp"])
def test_another_ending_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.svg, \.html or \.png"):
        check_ending(name)
    with pytest.raises(InputError):
        write_plot(BARS, str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_names_and_colours_do_not_leave_the_picture() -> None:
    # 40 series would need 40 x 100 pixels beside each other, 10 bars with long names as much below.
    many = Chart("T", "bars", "x", "B", ("a name that is long",) * 10, tuple(Series(f"series {n}", (1.0,) * 10) for n in range(40)))
    tree = ElementTree.fromstring(svg(many))
    height = float(tree.get("height") or 0)
    assert all(float(text.get("x") or 0) < 860 for text in tree.findall(".//s:text", NS))
    assert height > float(ElementTree.fromstring(svg(BARS)).get("height") or 0) + 17
    both = ElementTree.fromstring(stacked([svg(many), svg(BARS)]))
    assert float(both.get("height") or 0) == height + float(ElementTree.fromstring(svg(BARS)).get("height") or 0)


def test_a_linear_axis_ends_on_a_tick_above_all_values() -> None:
    assert Chart("", "bars", "", "", ("a",), (Series("s", (377.0,)),), log_y=False).extent() == (0.0, 400.0)


def test_many_points_of_a_line_have_few_names() -> None:
    sizes = [float(2**n) for n in range(3, 34)]
    chart = Chart("T", "lines", "B", "GB/s", tuple(f"{n} MiB and" for n in range(31)), (Series("s", tuple(sizes)),), tuple(sizes))
    names = [text.text for text in ElementTree.fromstring(svg(chart)).findall(".//s:text", NS) if str(text.text).endswith("MiB and")]
    assert 2 <= len(names) <= 10


def test_pictures_of_pixels(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    write_plot(BARS, str(tmp_path / "a.png"))
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    # Twice the drawing's pixels: width and height stand at bytes 16 to 24.
    size = ElementTree.fromstring(svg(BARS))
    assert [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)] == [2 * int(size.get(side) or 0) for side in ("width", "height")]


def test_no_font_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py")
    monkeypatch.setattr("tokenwire.report.png.SANS", ("no such family",))
    with pytest.raises(InputError, match="no font to write its labels with"):
        write_plot(BARS, str(tmp_path / "a.png"))
    assert list(tmp_path.iterdir()) == []


def test_a_drawing_of_a_page_stands_alone(tmp_path: Path) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 5"><title>A &amp; b</title><path style="fill:var(--tw-ink,#123456)"/></svg>'
    write_drawings(str(tmp_path / "a.svg"), "t", [(drawing, "said")])
    tree = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert tree.get("viewBox") == "-16 -40 74.5 61"  # 5 letters of the title, 8.5 pixels each, are wider than the drawing
    assert tree.findtext("s:text", None, NS) == "A & b"
    assert "var(" not in (tmp_path / "a.svg").read_text()
    assert framed(alone(svg(BARS))) == svg(BARS)
    write_drawings(str(tmp_path / "a.html"), "t", [(drawing, "said"), (svg(BARS), "")])
    assert (tmp_path / "a.html").read_text().count("<figure>") == 2
