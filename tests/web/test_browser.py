"""The explorer in a real browser: every page, what leads from one to another, and who is kept out of whose view."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tokenwire.web.rooms import ROOMS

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WIDE, PHONE = {"width": 1366, "height": 768}, {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "tokenwire", "explore", "--port", str(port)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert f"http://127.0.0.1:{port}/" in server.stdout.readline()
    yield f"http://localhost:{port}"
    server.terminate()
    server.wait(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if not shutil.which(CHROMIUM):
        pytest.skip("needs Debian's chromium")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Visitor:
    """A browser context of its own, which notes what must not happen."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address, self.wrong = address, []
        self.context = browser.new_context(viewport=WIDE, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", lambda said: self.wrong.append(f"console: {said.text}") if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"request to {request.url}")

    def open(self, path: str, heading: str | None = None) -> Any:
        self.page.goto(self.address + path)
        name = heading or ROOMS[path.strip("/").split("?")[0] or "words"].title
        self.page.get_by_role("heading", name=name, level=1).wait_for()
        self.made()
        return self.page

    def made(self) -> None:
        # A page is made when it has its onward links, or says what is wrong.
        self.page.locator(".more, #wrong").first.wait_for()


@pytest.fixture
def visitor(browser: Any, address: str) -> Iterator[Visitor]:
    one = Visitor(browser, address)
    yield one
    one.context.close()
    assert one.wrong == []


def until(page: Any, true: str, most: float = 10.0) -> None:
    """Wait until an expression is true on the page (its policy lets Playwright's own ``wait_for_function`` evaluate nothing)."""
    end = time.monotonic() + most
    while not page.evaluate(true):
        assert time.monotonic() < end, f"never: {true}"
        page.wait_for_timeout(30)


def faults(page: Any, *rules: str) -> list[str]:
    """Return the serious faults that axe finds, by all of its rules or by some."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] in SERIOUS]


EVERY = {**dict.fromkeys(ROOMS, ""), "tokens": "?token=7&beside=bytes&text=Nel+mezzo&find=el", "model": "?tensor=embedding.weight", "plan": "?rank=3", "step": "?op=5",
         "fabric": "?link=70&fail=leaf1", "packet": "?token=7", "compare": "?with_set=plan.tp%3D4&with_set=plan.pp%3D1"}  # fmt: skip


@pytest.fixture(scope="module")
def reader(browser: Any, address: str) -> Iterator[Visitor]:
    one = Visitor(browser, address, reduced_motion="reduce")
    yield one
    one.context.close()


CUT = """() => [...document.querySelectorAll('h1, h2, th, dt, dd, label, .note, .value')].filter((one) => one.scrollWidth > one.clientWidth + 1
    && getComputedStyle(one).display !== 'inline' && one.checkVisibility()).map((one) => one.textContent.slice(0, 60))"""
"""What runs out of its place: over its neighbour, or cut off."""


@pytest.mark.parametrize("name", ROOMS)
def test_every_page_light_dark_and_on_a_phone(reader: Visitor, name: str) -> None:
    page = reader.page
    page.set_viewport_size(WIDE)
    page.emulate_media(color_scheme="light")
    reader.open(f"/{name}{EVERY[name]}")
    assert page.locator("#wrong").count() == 0
    assert page.locator("nav.walk a[aria-current=page] .word").inner_text() == ROOMS[name].title
    until(page, "[...document.querySelectorAll('.dash-graph')].every((one) => one.querySelector('.main-svg'))")
    assert faults(page) == []
    assert page.evaluate(CUT) == []
    # Another scheme changes colours alone, a narrow window places and sizes: each page is looked at in the schemes, both ways.
    page.emulate_media(color_scheme="dark")
    until(page, "document.documentElement.dataset.mantineColorScheme === 'dark'")
    assert faults(page, "color-contrast") == []
    page.set_viewport_size(PHONE)
    until(page, "document.querySelector('nav.walk').getBoundingClientRect().right <= 0 && document.documentElement.scrollWidth <= innerWidth")
    assert faults(page, "color-contrast", "scrollable-region-focusable", "target-size") == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate(CUT) == []
    assert page.locator(".modebar").evaluate_all("all => all.filter((one) => one.checkVisibility()).length") == 0
    assert reader.wrong == []


def test_a_token_leads_through_the_rooms_and_stays_selected(visitor: Visitor) -> None:
    page = visitor.open("/tokens")
    page.locator(".tokens a", has_text="selva").first.click()
    page.wait_for_url(re.compile(r"token=15"))
    page.get_by_role("heading", name="The selected token").wait_for()
    page.get_by_role("link", name="Vectors").first.click()
    page.get_by_role("heading", name=re.compile("selva, id ")).wait_for()
    page.locator("nav.walk").get_by_role("link", name="Packet").click()
    page.get_by_text("selva begins at byte").wait_for()
    page.get_by_role("link", name=re.compile("^rank 0, node 0")).click()
    page.wait_for_url(re.compile(r"/plan\?token=15&rank=0"))
    assert page.locator(".cell.chosen").inner_text().startswith("0")
    page.go_back()
    page.get_by_role("heading", name="Packet", level=1).wait_for()


def test_the_address_alone_says_what_is_shown(visitor: Visitor, browser: Any, address: str) -> None:
    page = visitor.open("/step")
    page.locator(".ag-center-cols-container").get_by_role("link", name="5", exact=True).click()
    page.get_by_role("heading", name="Row 5: all_gather on tp").wait_for()
    page.get_by_role("link", name="How this call is carried out").click()
    page.get_by_role("heading", name="all_gather by ring").wait_for()
    other = Visitor(browser, address)
    other.page.goto(page.url)
    other.page.get_by_role("heading", name="all_gather by ring").wait_for()
    other.context.close()
    assert other.wrong == []


def test_a_wrong_value_stays_in_its_field_with_the_reason(visitor: Visitor) -> None:
    page = visitor.open("/plan")
    field = page.get_by_label("tp", exact=True)
    field.fill("3")
    field.press("Enter")
    page.get_by_text("tp = 3").first.wait_for()
    assert field.input_value() == "3"
    assert "set=" not in page.url
    field.fill("4")
    field.press("Enter")
    page.wait_for_url(re.compile("plan.tp%3D4"))
    page.get_by_text("tp = 3").first.wait_for(state="detached")


def test_an_override_typed_above_changes_the_journey_and_goes_again(visitor: Visitor) -> None:
    page = visitor.open("/plan")
    field = page.get_by_label("Change a value of the journey")
    field.fill("cluster.nodes=4")
    field.press("Enter")
    page.wait_for_url(re.compile("cluster.nodes%3D4"))
    page.get_by_text("node 3", exact=True).wait_for()
    page.get_by_role("link", name="without cluster.nodes=4").click()
    page.get_by_text("node 3", exact=True).wait_for(state="detached")
    field.fill("text.source=/etc/passwd")
    field.press("Enter")
    page.get_by_text("is given when the explorer starts").wait_for()
    assert "passwd" not in page.url


def test_visitors_do_not_see_each_other(visitor: Visitor, browser: Any, address: str) -> None:
    other = Visitor(browser, address)
    mine, theirs = visitor.open("/plan"), other.open("/plan?rank=5&set=plan.tp%3D1")
    assert mine.locator(".cell.chosen").inner_text().startswith("0")
    assert theirs.locator(".cell.chosen").inner_text().startswith("5")
    mine.locator(".cell", has_text="2").first.click()
    mine.wait_for_url(re.compile("rank=2"))
    theirs.reload()
    theirs.locator(".cell.chosen").wait_for()
    assert theirs.locator(".cell.chosen").inner_text().startswith("5")
    assert mine.get_by_label("tp", exact=True).input_value() == "2"
    assert theirs.get_by_label("tp", exact=True).input_value() == "1"
    other.context.close()
    assert other.wrong == []


def test_by_keyboard_alone(visitor: Visitor) -> None:
    page = visitor.open("/words")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the page"
    page.locator("nav.walk a", has_text="Plan").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Plan", level=1).wait_for()
    visitor.made()
    page.locator(".cell").nth(1).focus()
    assert page.locator(".cell.lit").count() == 2  # rank 1 and rank 0 are its tensor group
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("rank=1"))


def test_what_was_pressed_keeps_the_focus(visitor: Visitor) -> None:
    page = visitor.open("/plan")
    page.locator(".cell").nth(5).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("rank=5"))
    until(page, "document.activeElement.matches('.cell.chosen')")


def test_a_slider_moves_what_the_network_needs(visitor: Visitor) -> None:
    page = visitor.open("/needs")
    slider = page.get_by_role("slider", name="Share of a step that may wait")
    slider.focus()
    for share in ("0.11", "0.12"):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(re.compile(f"exposed={share}"))
        page.locator(f"text=bandwidth a NIC needs for {share[2:]} % exposed, if nothing overlaps >> visible=true").first.wait_for()
        until(page, "document.activeElement.getAttribute('role') === 'slider'")


def test_fields_and_bytes_are_lit_both_ways(visitor: Visitor) -> None:
    page = visitor.open("/packet?token=7")
    page.locator("tr[data-lit]", has_text="IPv4").filter(has_text="source").first.hover()
    assert page.locator(".byte.lit").all_inner_texts() == ["0a", "00", "00", "01"]
    page.locator(".byte").first.hover()
    assert "destination" in page.locator("tr.lit").inner_text()


def test_a_window_of_the_timeline_is_in_the_address(visitor: Visitor) -> None:
    page = visitor.open("/timeline")
    page.locator(".js-plotly-plot .bars").first.wait_for()
    page.evaluate("""window.Plotly.relayout(document.querySelector('.js-plotly-plot'), {'xaxis.range[0]': 0.001, 'xaxis.range[1]': 0.002})""")
    page.wait_for_url(re.compile(r"zoom=0.00100000-0.00200000"))
    visitor.made()
    page.get_by_role("link", name="All of the step").click()
    page.wait_for_url(re.compile(r"/timeline$"))


def test_rounds_are_played(visitor: Visitor) -> None:
    page = visitor.open("/collective?call=all_reduce&ranks=4&bytes=4+MB")
    page.locator(".updatemenu-button", has_text="Play").click()
    page.locator(".slider-label", has_text="round 2").first.wait_for()


def test_a_switch_fails_and_is_mended(visitor: Visitor) -> None:
    page = visitor.open("/fabric")
    page.get_by_role("link", name="fail leaf1").click()
    page.get_by_role("link", name="mend leaf1").wait_for()
    page.locator("nav.walk").get_by_role("link", name="Flows").click()
    page.get_by_role("heading", name=re.compile("without leaf1")).wait_for()


def test_the_menu_of_a_phone(visitor: Visitor) -> None:
    visitor.page.set_viewport_size(PHONE)
    page = visitor.open("/words")
    link = page.locator("nav.walk a", has_text="Tokens")
    page.wait_for_timeout(300)
    assert not link.is_visible() or link.bounding_box()["x"] < 0
    page.get_by_role("button", name="Menu").click()
    page.wait_for_timeout(400)
    link.click()
    page.get_by_role("heading", name="Tokens", level=1).wait_for()


def test_own_text_is_data(visitor: Visitor) -> None:
    page = visitor.open("/tokens")
    page.get_by_label("Type here").fill("<img src=x onerror=alert(1)> selva")
    page.wait_for_url(re.compile("text="))
    page.locator(".tokens .piece").first.wait_for()
    assert page.locator("img[src=x]").count() == 0
    assert "<" in page.locator(".tokens .piece").first.inner_text()


@pytest.mark.parametrize(("path", "said"), [("/nothing", "known are"), ("/plan?rank=99", "ranks 0 to 7"), ("/tokens?token=99999", "tokens 0 to"), ("/step?tokn=1", "nearest that works: token")])
def test_a_wrong_address_says_so(visitor: Visitor, path: str, said: str) -> None:
    visitor.page.goto(visitor.address + path)
    visitor.page.locator("#wrong").get_by_text(said).wait_for()


def test_downloads(visitor: Visitor) -> None:
    page = visitor.open("/packet?token=7")
    with page.expect_download() as given:
        page.get_by_role("link", name=re.compile("pcap")).click()
    assert given.value.suggested_filename == "message.pcap"
    with open(given.value.path(), "rb") as file:
        assert file.read(4) == bytes.fromhex("4d3cb2a1")
    with page.expect_download() as given:
        page.get_by_role("link", name="CSV: Fields and bytes").click()
    with open(given.value.path()) as file:
        assert file.readline().strip() == "layer,field,at_byte,bits,value,meaning"


def test_a_large_journey_is_waited_for(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"{visitor.address}/flows?scale=405b")
    visitor.made()
    page.get_by_role("heading", name="Who is in whose way").first.wait_for()


def test_long_work_says_so_and_is_stopped(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"{visitor.address}/fabric?scale=405b&set=cluster.nodes%3D16384&fail=leaf1")
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    page.wait_for_timeout(1500)
    assert page.get_by_text("Stopped.").is_visible()
