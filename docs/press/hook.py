"""The hook of mkdocs: prints pages with their computed numbers, adds the generated reference, and lists pages that no one listed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as SitePage

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
# Commands print as they do in a pipe, for a page of 80 columns.
os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}

from press.blocks import Failed, Page, printed  # noqa: E402
from press.names import names  # noqa: E402
from press.reference import pages  # noqa: E402

COMPUTED = ("index.md", "book/", "guides/")
"""Pages, and folders of pages, whose blocks are run and whose values are put in."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that the nav does not name, so that a new page is in the book from its first day."""
    listed = set(_files_of(config.nav or []))
    docs = Path(config.docs_dir)
    found = sorted(path.relative_to(docs).as_posix() for path in docs.glob("*.md"))
    more = [page for page in found if page not in listed]
    measured = [page for page in more if page.startswith(("validat", "measured", "agreement"))]
    for title, added in (("Is it true", measured), ("More", [page for page in more if page not in measured])):
        if added and config.nav is not None:
            section = next((part[title] for part in config.nav if title in part), None)
            if section is None:
                config.nav.append({title: added})
            else:
                section.extend(added)
    return config


def _files_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inner in nav.values():
            yield from _files_of(inner)
    else:
        for inner in nav:
            yield from _files_of(inner)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of reference, written from the program itself."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its blocks run and its values put in."""
    source = page.file.src_uri
    if not source.startswith(COMPUTED):
        return markdown
    with tempfile.TemporaryDirectory() as folder:
        try:
            return printed(markdown, Page(source, Path(folder), names()))
        except Failed as failed:
            raise PluginError(str(failed)) from failed


def on_post_page(output: str, page: SitePage, config: MkDocsConfig) -> str:
    """Return the page with a name for the theme's search, which a screen reader says."""
    return output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
