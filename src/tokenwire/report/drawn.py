"""Drawings as files, by the file's ending: ``.svg`` and ``.png`` hold them one below the other, ``.html`` each with what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape, unescape
from pathlib import PurePath

from tokenwire.errors import InputError
from tokenwire.files import whole_or_nothing
from tokenwire.report.png import check_png, png

ENDINGS = (".svg", ".html", ".png")
MARGIN = 16
"""Pixels around a drawing that stands alone."""
_LETTER = 8.5
_HEAD = re.compile(r'<svg[^>]*?(?P<box>viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)")[^>]*>\s*<title>(?P<title>[^<]*)</title>\s*')
_BOX = re.compile(r'viewBox="\S+ \S+ (?P<width>[\d.]+) (?P<height>[\d.]+)"')
_VARIABLE = re.compile(r"var\(--[a-z-]+,([^()]+)\)")


def check_ending(path: str) -> str:
    """Return the ending of a plot's file name. Raises ``InputError`` for one that cannot be drawn, or not here.

    >>> check_ending("words.SVG")
    '.svg'
    """
    name = PurePath(path)
    ending = name.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"--plot {path}"[:120], rule="a plot is written as .svg, .html or .png",
                         nearest=str(name.with_suffix(".svg"))[:120] if name.name else "plot.svg")  # fmt: skip
    if ending == ".png":
        check_png(path)
    return ending


def alone(svg: str) -> str:
    """Return a drawing with the colours that it has where no page around it gives others.

    >>> alone("fill:var(--tw-ink,#1d2330)")
    'fill:#1d2330'
    """
    return _VARIABLE.sub(r"\1", svg)


def framed(svg: str) -> str:
    """Return a drawing of a page with a margin, its title and a ground; one with a ground of its own as it is.

    >>> framed('<svg viewBox="0 0 100 20"><title>A</title><path/></svg>')
    '<svg viewBox="-16 -40 132 76"><title>A</title><rect x="-16" y="-40" width="132" height="76" fill="#ffffff"/><text y="-16" font-size="15">A</text><path/></svg>'
    """
    found = _HEAD.match(svg)
    if found is None or svg.startswith('<rect width="', found.end()):
        return svg
    title = found["title"]
    width = max(float(found["width"]), _LETTER * len(unescape(title))) + 2 * MARGIN
    height = float(found["height"]) + 40 + MARGIN
    head = svg[: found.end()].replace(found["box"], f'viewBox="-{MARGIN} -40 {width:g} {height:g}"')
    ground = f'<rect x="-{MARGIN}" y="-40" width="{width:g}" height="{height:g}" fill="#ffffff"/>'
    return f'{head}{ground}<text y="-16" font-size="15">{title}</text>{svg[found.end() :]}'


def stacked(drawings: Sequence[str]) -> str:
    """Return drawings that stand alone as one, each below the one before it; a single one as it is.

    >>> one = '<svg viewBox="0 0 100 20"><title>A</title><path/></svg>'
    >>> stacked([one, one])[:120]
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 40" width="100" height="40" font-family="sans-serif" font-size='
    """
    if len(drawings) == 1:
        return drawings[0]
    y, widest, inner = 0.0, 0.0, []
    for drawing in drawings:
        box = _BOX.search(drawing)
        if box is None:
            raise ValueError("a drawing without a viewBox")
        width, height = float(box["width"]), float(box["height"])
        inner.append(f'<svg y="{y:g}" width="{width:g}" height="{height:g}" {box[0]}>{drawing[drawing.index(">") + 1 :]}')
        y, widest = y + height, max(widest, width)
    size = f'viewBox="0 0 {widest:g} {y:g}" width="{widest:g}" height="{y:g}"'
    ground = f'<rect width="{widest:g}" height="{y:g}" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">{ground}{"".join(inner)}</svg>\n'


def write_drawings(path: str, title: str, pictures: Sequence[tuple[str, str]]) -> None:
    """Write drawings, each an SVG and its caption ("" for none), whole or not at all."""
    ending = check_ending(path)
    if ending == ".html":
        data = _page(title, pictures).encode()
    else:
        whole = stacked([framed(alone(picture)) for picture, _ in pictures])
        data = png(whole) if ending == ".png" else whole.encode()
    with whole_or_nothing(path) as file:
        file.write(data)


def _page(title: str, pictures: Sequence[tuple[str, str]]) -> str:
    figures = "\n".join(
        f"<figure>{alone(picture)}{f'<figcaption>{escape(said)}</figcaption>' if said else ''}</figure>" for picture, said in pictures
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>body{margin:2em;font-family:sans-serif}figure{margin:0 0 2em}svg{max-width:100%;height:auto}</style></head>\n"
        f"<body>{figures}</body></html>\n"
    )
