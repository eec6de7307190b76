"""The report: one file that asks for nothing, with every room and every row, in light and dark, for every kind of plan."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from tests.house.running import run
from tokenwire.journey import Journey
from tokenwire.report.comparison.chart import Chart
from tokenwire.report.page import page, sections
from tokenwire.report.page.drawings import Box, bars, frame, gantt, matrix, rounds
from tokenwire.report.page.markup import html, table
from tokenwire.report.scenes import SCENES, Walk
from tokenwire.report.terminal import bar

PLANS = {
    "as built in": [],
    "tensor alone": ["plan.pp=1", "plan.tp=8"],
    "one GPU": ["plan.pp=1", "plan.tp=1", "cluster.nodes=1", "cluster.gpus_per_node=1"],
    "experts": ["model.preset=mixtral-8x7b", "plan.ep=2"],
}
VOID = {"meta", "br", "col"}


class _Balanced(HTMLParser):
    """Follows the tags of a page: all that open must close, in order; notes what is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "data") and not (value or "").startswith("#")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written() -> str:
    return page(Walk(Journey.read()))


def test_the_walk_is_one_small_file_that_fetches_nothing(written: str) -> None:
    parsed = _Balanced()
    parsed.feed(written)
    assert parsed.open == []
    assert parsed.fetched == []
    assert "<script" not in written
    assert "@import" not in written
    assert "url(" not in written
    assert len(written.encode()) < 500_000
    assert "prefers-color-scheme:dark" in written
    assert "@media print" in written


def test_every_room_is_there_and_linked(written: str) -> None:
    linked = re.findall(r'<li><a href="#([\w-]+)">', written)
    assert set(SCENES) | {"collective", "flows", "time", "memory", "needs-in-time"} == set(linked)
    assert all(f'<section id="{name}">' in written for name in linked)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_every_kind_of_plan_has_its_page(plan: list[str]) -> None:
    parsed = _Balanced()
    parsed.feed(page(Walk(Journey.read(None, plan))))
    assert parsed.open == []


def test_figures_are_those_of_the_terminal(written: str) -> None:
    journey = Journey.read()
    assert f"{journey.traffic().totals['sent_bytes']:,} bytes sent" in written
    for need in journey.needs():
        if need.value >= 1000:
            assert need.text in written


def test_texts_of_others_are_no_markup() -> None:
    assert html(["<b>&", Text("<i>")]) == "<p>&lt;b&gt;&amp;</p>\n<p>&lt;i&gt;</p>\n"


def test_a_table_keeps_every_row_and_its_bars() -> None:
    made = Table("link", "bytes", "", title="loads")
    made.columns[1].justify = "right"
    made.add_row("nic0", "3 B", bar(0.25, 8))
    made.add_row("02 74 77", "1 B", "")
    said = table(made)
    # Two rows and a head; a quarter of 8 cells is 2 of them.
    assert said.count("<tr>") == 3
    assert '<td class="tw-n">3 B</td>' in said
    assert 'style="width:25.0%"' in said
    assert '<span class="tw-hex">02 74 77</span>' in said


def test_a_ring_of_four_is_six_rounds_of_four_arrows() -> None:
    # all_reduce: n - 1 = 3 rounds of adding and 3 of keeping, n = 4 transfers each.
    drawn = rounds("all_reduce", "ring", 4, 4096)
    assert drawn.count("<polygon") == 24
    assert drawn.count("added") == drawn.count("kept") == 12
    assert drawn.count("1,024 B") == 24


def test_drawings_say_what_they_show() -> None:
    assert "0 to 1: 1,500 B" in matrix([[0, 1500], [0, 0]])
    assert "micro-batch 3: 1 s to 3 s" in gantt([Box(0, 1.0, 3.0, "F", 3)], 1)
    assert "tp: 2 B" in bars([("tp", 2.0, "2 B")], "by group")
    layers = [{"layer": "Ethernet", "bit_length": 112, "bit_offset": 0}, {"layer": "payload", "bit_length": 32768, "bit_offset": 112}]
    assert "payload: bytes 14 to 4109" in frame(layers)


def test_charts_are_of_the_units_they_name() -> None:
    (chart,) = [
        drawn.what for section in sections(Walk(Journey.read())) for drawn in section.drawings
        if section.name == "step" and isinstance(drawn.what, Chart)
    ]  # fmt: skip
    step = Journey.read().step()
    first = step.filter(step["stage"] == 0)
    assert chart.y_title == "MB a step"
    assert sum(value or 0 for one in chart.series for value in one.values) * 1e6 == pytest.approx((first["bytes"] * first["count"]).sum())


def test_a_text_of_others_steers_no_browser(tmp_path: Path) -> None:
    """Mark-up, scripts, quotes and control characters of a text, a name of a model, a file's name are shown, not obeyed."""
    hostile = "<script>alert(1)</script> \"><img src=x onerror=alert(2)> ]]> & \x1b[31m &#60;b&#62; זה طريق \U0001f409\n" * 30
    (tmp_path / "a<b>.txt").write_text(hostile, "utf-8")
    file = tmp_path / "mine.toml"
    file.write_text('[text]\nsource = "a<b>.txt"\n[model]\nname = "<i>m</i>"\nhidden_size = 256\nlayers = 8\nmax_positions = 256\n', "utf-8")
    written = page(Walk(Journey.read(file)))
    parsed = _Balanced()
    parsed.feed(written)
    assert parsed.open == []
    assert parsed.fetched == []
    assert not {"script", "img"} & parsed.seen
    assert "<i>m" not in written
    assert "&lt;script" in written
    assert "\x1b" not in written


def test_the_verb_writes_it_whole_or_not_at_all(tmp_path: Path) -> None:
    ended = run(["report", "--output", "walk.html"], folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr
    assert (tmp_path / "walk.html").read_text("utf-8").endswith("</html>\n")
    assert [file.name for file in tmp_path.iterdir()] == ["walk.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output", "walk.pdf"], "a report is written as a page; nearest that works: walk.html"),
        (["--output", "nowhere/walk.html"], "cannot be written"),
        (["--token", "9999"], "--token 9999"),
        (["absent.toml"], "no such file"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    ended = run(["report", *arguments], folder=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.decode().count("\n") == 1
    assert said in ended.stderr.decode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_interactive_has_the_script_once() -> None:
    pytest.importorskip("plotly")
    written = page(Walk(Journey.read()), interactive=True)
    assert written.count("plotly.js v") == 1
    assert len(re.findall(r"Plotly\.newPlot\(", written)) >= 3


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_shows_it_without_another_host_and_no_wider_than_a_phone(written: str, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    (tmp_path / "walk.html").write_text(written, "utf-8")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            shown = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
            asked: list[str] = []
            wrong: list[str] = []
            shown.on("request", lambda request, asked=asked: asked.append(request.url))
            shown.on("console", lambda message, wrong=wrong: wrong.append(message.text))
            shown.goto((tmp_path / "walk.html").as_uri())
            assert [url for url in asked if not url.startswith("file:")] == []
            assert wrong == []
            assert shown.evaluate("document.documentElement.scrollWidth") == 390
            faults = axe.Axe().run(shown).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"][:120]) for one in faults if one["impact"] in ("serious", "critical")] == []
        browser.close()


def test_what_a_room_does_not_know_is_left_out() -> None:
    """A GPU without a catalog entry has no time and no memory; everything else is there."""
    names = [section.name for section in sections(Walk(Journey.read(None, ["cluster.preset=tpu-v4-torus", "cluster.gpus=8"])))]
    assert set(SCENES) <= set(names)


def test_only_the_rooms_picture_of_a_step_stands_on_white(written: str) -> None:
    (time,) = re.findall(r'<section id="time">.*?</section>', written, re.DOTALL)
    assert '<figure class="tw-chart" tabindex="0"><svg' in time
