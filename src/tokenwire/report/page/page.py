"""The page: one file with everything in it, which asks nothing of any other host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from tokenwire import __version__
from tokenwire.errors import InputError, MissingExtra
from tokenwire.files import whole_or_nothing
from tokenwire.report.comparison.chart import Chart
from tokenwire.report.page.rooms import sections
from tokenwire.report.page.section import charts, section_html
from tokenwire.report.page.style import STYLE
from tokenwire.report.scenes import Walk


def check_page(path: str) -> None:
    """Raise ``InputError`` for a report that is not asked for as a page (``-`` is standard output)."""
    if path != "-" and Path(path).suffix.lower() not in (".html", ".htm"):
        nearest = str(Path(path).with_suffix(".html")) if Path(path).name else "report.html"
        raise InputError(f"--output {path}"[:120], rule="a report is written as a page", nearest=nearest)


def write_page(written: str, path: str) -> None:
    """Write a page, whole or not at all; ``-`` is standard output."""
    if path == "-":
        sys.stdout.write(written)
        return
    with whole_or_nothing(path) as file:
        file.write(written.encode())


def page(walk: Walk, *, interactive: bool = False) -> str:
    """Return the report of a walk as HTML. ``interactive``: charts by plotly, whose script is then in the page.

    Raises ``MissingExtra`` where that needs plotly and it is not there.
    """
    rooms = list(sections(walk))
    plotted = _plotted(charts(rooms)) if interactive else None
    title = f"From words to bits: {walk.journey.model().architecture.name}"
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">\n'
        f"<style>{STYLE}</style></head><body>\n",
        f"<header><h1>{escape(title)}</h1>{_summary(walk)}</header>\n<nav aria-label=\"rooms\"><ol>",
        *(f'<li><a href="#{room.name}">{escape(room.title)}</a></li>' for room in rooms),
        "</ol></nav>\n<main>\n",
        *(section_html(room, number, plotted) for number, room in enumerate(rooms, 1)),
        _journey(walk),
        f"<footer>tokenwire {__version__}. Sizes of calls are of the full tensor; 1 GB is 10⁹ bytes, 1 GiB is 2³⁰.</footer>\n</main></body></html>\n",
    ]
    return "".join(parts)


def _summary(walk: Walk) -> str:
    plan, totals = walk.journey.plan(), walk.journey.traffic().totals
    sizes = ", ".join(f"{axis} {size:,}" for axis, size in plan.grid.axes if size > 1) or "one GPU"
    said = (
        f"{walk.journey.text().name} trained on {plan.world:,} GPUs of {walk.journey.config.cluster.preset or 'a cluster of your own'} "
        f"({sizes}; {plan.config.dialect}): {totals['sent_bytes']:,} bytes sent in a step of {totals['tokens']:,} tokens."
    )
    notes = "".join(f"<p><b>Note:</b> {escape(note)}</p>" for note in walk.notes())
    return f"<p>{escape(said)}</p>{notes}"


def _journey(walk: Walk) -> str:
    import json

    told = walk.journey.config.model_dump(mode="json", exclude_unset=True)
    return (
        "<section id=\"journey\"><h2>The journey</h2><details><summary>What was asked for, section by section</summary>"
        f"<pre>{escape(json.dumps(told, indent=2, ensure_ascii=False))}</pre></details></section>\n"
    )


def _plotted(found: list[Chart]) -> Iterator[str]:
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise MissingExtra("--interactive", "plots") from None
    from tokenwire.report.comparison.plots import figure

    # The script once, with the first chart.
    return iter([str(figure(chart).to_html(include_plotlyjs=not at, full_html=False)) for at, chart in enumerate(found)])


