"""A room as it stands in the report: what it is about, drawings with captions, and the tables that the terminal prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from tokenwire.report.comparison.chart import Chart
from tokenwire.report.comparison.svg import svg
from tokenwire.report.page.markup import html


@dataclass(frozen=True)
class Drawn:
    """A drawing (SVG or HTML) or a chart, and the line below it; ``paper``: an SVG on white, which the page's style recolours."""

    what: str | Chart
    caption: str
    paper: bool = False


@dataclass(frozen=True)
class Section:
    """One room. ``lead`` is a sentence for a reader who is new, ``parts`` what the terminal prints, ``drawings`` stand before them."""

    name: str
    title: str
    lead: str
    drawings: tuple[Drawn, ...]
    parts: tuple[Any, ...]


def section_html(section: Section, number: int, plotted: Iterator[str] | None = None) -> str:
    """Return a section as HTML; ``plotted`` gives charts drawn by plotly, in the order in which they stand (None: as SVG)."""
    figures = "".join(_figure(drawn, plotted) for drawn in section.drawings)
    return (
        f'<section id="{section.name}"><h2><small>{number}</small>{escape(section.title)}</h2>\n'
        f'<p class="tw-lead">{escape(section.lead)}</p>\n{figures}{html(section.parts)}</section>\n'
    )


def charts(sections: Iterable[Section]) -> list[Chart]:
    """Return the charts of the sections in order."""
    return [drawn.what for section in sections for drawn in section.drawings if isinstance(drawn.what, Chart)]


def _figure(drawn: Drawn, plotted: Iterator[str] | None) -> str:
    caption = f"<figcaption>{escape(drawn.caption)}</figcaption>"
    if isinstance(drawn.what, Chart):
        inner = svg(drawn.what) if plotted is None else next(plotted)
        return f'<figure class="tw-chart" tabindex="0">{inner}{caption}</figure>\n'
    kind = ' class="tw-chart"' if drawn.paper else ""
    return f"<figure{kind} tabindex=\"0\">{drawn.what}{caption}</figure>\n"
