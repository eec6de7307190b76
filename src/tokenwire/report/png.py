"""A drawing as PNG: resvg turns SVG into pixels, without a browser and without a network; its letters are of this machine's fonts."""

from __future__ import annotations

from functools import cache

from tokenwire.errors import InputError, MissingExtra

ZOOM = 2
"""Pixels of the picture for a pixel of the drawing, so that it is sharp on paper and on dense screens."""
SANS = ("DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica", "Helvetica Neue", "Roboto", "Open Sans", "Ubuntu", "Cantarell", "FreeSans", "Segoe UI")
MONO = ("DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "Courier New", "Courier", "Menlo", "Consolas", "Ubuntu Mono", "FreeMono")
"""Families that may stand for sans-serif and monospace, the first that is there: resvg has no such names of its own."""


def check_png(path: str) -> None:
    """Raise ``MissingExtra`` where resvg is not there, and ``InputError`` where no font is: labels would be left out in silence."""
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise MissingExtra("a plot as .png", "plots") from None
    if not _family(SANS):
        raise InputError(f"--plot {path}"[:120], rule=f"no font to write its labels with ({', '.join(SANS[:4])} ...) is on this machine",
                         nearest="the same as .svg")  # fmt: skip


def png(svg: str) -> bytes:
    """Return the picture of an SVG whose colours are given (no variables of a page), on white."""
    sans = _family(SANS)
    return _pixels(svg, sans, _family(MONO) or sans)


@cache
def _family(names: tuple[str, ...]) -> str:
    blank, letter = ('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20" font-family="sans-serif">' + said + "</svg>"
                     for said in ("", '<text y="16">M</text>'))  # fmt: skip
    return next((name for name in names if _pixels(letter, name, name) != _pixels(blank, name, name)), "")


def _pixels(svg: str, sans: str, mono: str) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, background="#ffffff", zoom=ZOOM, sans_serif_family=sans, monospace_family=mono))
