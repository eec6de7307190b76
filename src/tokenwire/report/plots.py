"""A scene of the walk as a file: its drawing as SVG, or all of its drawings in a page of their own."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.files import whole_or_nothing
from tokenwire.report.comparison.chart import Chart
from tokenwire.report.comparison.plots import check_ending
from tokenwire.report.comparison.svg import svg
from tokenwire.report.page.rooms import drawings_of
from tokenwire.report.scenes import Walk

if TYPE_CHECKING:
    from tokenwire.journey import Journey


def write_scene(name: str, journey: Journey, path: str) -> None:
    """Write the drawings of a scene to a file, whole or not at all.

    Raises ``InputError`` for an ending that is not drawn, and for a scene with nothing to draw (a plan of too many ranks).
    """
    ending, walk = check_ending(path), Walk(journey)
    drawn = drawings_of(name, walk, import_module(f"tokenwire.report.scenes.{name}").facts(walk))
    if not drawn:
        raise InputError(f"--plot {path}"[:120], rule=f"there is nothing to draw of this {name}: it is too large, or says nothing",
                         nearest="tokenwire explore")  # fmt: skip
    pictures = [(svg(one.what) if isinstance(one.what, Chart) else one.what, one.caption) for one in drawn]
    text = pictures[0][0] if ending == ".svg" else _page(name, pictures)
    with whole_or_nothing(path) as file:
        file.write(text.encode())


def _page(name: str, pictures: list[tuple[str, str]]) -> str:
    figures = "\n".join(f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>" for picture, caption in pictures)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f'<body style="margin:2em;font-family:sans-serif">{figures}</body></html>\n'
    )
