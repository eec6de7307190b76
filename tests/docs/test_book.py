"""The book as it is built: whole, with its reference, fetching nothing, and readable in a browser on a phone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.conftest import DOCS

pytestmark = pytest.mark.slow
CHAPTERS = ("words", "tokens", "vectors", "model", "parallelism", "collectives", "fabric", "flows", "bits", "time", "needs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built book."""
    pytest.importorskip("material")
    out = tmp_path_factory.mktemp("book") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(out)], cwd=DOCS.parent, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


def test_every_chapter_has_numbers_exercises_and_its_next(site: Path) -> None:
    for chapter in CHAPTERS:
        page = (site / "book" / f"{chapter}.html").read_text("utf-8")
        assert "{{" not in page
        assert "What this asks of the network" in page or chapter == "needs"
        assert page.count('<details class="question">') >= 2


def test_reference_is_written_from_the_program(site: Path) -> None:
    from tokenwire.cli import VERBS, _exists
    from tokenwire.fabric import presets

    commands = (site / "reference" / "commands.html").read_text("utf-8")
    assert [verb for verb in VERBS if _exists(verb) and f'id="{verb}"' not in commands] == []
    clusters = (site / "reference" / "clusters.html").read_text("utf-8")
    assert [name for name in presets() if name not in clusters] == []
    assert "<code>use_distributed_optimizer</code>" in (site / "reference" / "keys.html").read_text("utf-8")
    assert "requirements" in (site / "reference" / "python.html").read_text("utf-8")


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    fetched = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE)
    found = [
        f"{page.relative_to(site)}: {match[0][:100]}" for page in site.rglob("*.html") for match in fetched.finditer(page.read_text("utf-8"))
        if 'rel="canonical"' not in match[0]
    ]  # fmt: skip
    assert found == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?https?:[^)]*\)", styles) == []


@pytest.mark.browser
def test_a_browser_reads_it_as_files(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 390, "height": 800})
        asked: list[str] = []
        wrong: list[str] = []
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("console", lambda message: wrong.append(f"{shown.url}: {message.text}") if message.type == "error" else None)
        shown.on("pageerror", lambda error: wrong.append(f"{shown.url}: {error}"))
        for path in pages:
            shown.goto(path.as_uri())
            if shown.evaluate("document.documentElement.scrollWidth") > 390:
                wrong.append(f"{path.relative_to(site)}: wider than a phone")
        assert wrong == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        browser.close()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(site: Path, scheme: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = browser.new_page(color_scheme=scheme)
        for name in ("index", "book/tokens", "book/time", "book/bits", "guides/size-a-network", "cases", "fabric", "reference/models", "reference/keys"):
            shown.goto((site / f"{name}.html").as_uri())
            found = axe.Axe().run(shown).response["violations"]
            assert [(name, one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
        browser.close()


@pytest.mark.browser
def test_the_search_finds_words_without_a_server(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1300, "height": 900})
        shown.goto((site / "index.html").as_uri())
        shown.click(".md-search__input")
        shown.keyboard.type("oversubscription")
        shown.wait_for_selector(".md-search-result__link")
        assert "glossary" in " ".join(shown.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)"))
        browser.close()
