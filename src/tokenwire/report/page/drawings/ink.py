"""The pen: pieces of SVG whose colours follow the page they stand in (light or dark), and work alone too."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

INK, FAINT, RULE, PAPER = "var(--tw-ink,#1d2330)", "var(--tw-faint,#5c6474)", "var(--tw-rule,#c9ced8)", "var(--tw-paper,#ffffff)"
"""Text, lesser text, lines, ground: variables of the page, with what they are where the page has none."""

HUES = ("#4269d0", "#b86e00", "#d6432f", "#1a8a72", "#8a5a3c", "#8b46d6", "#2f7fb8", "#2d8a3a")
"""Fills under white text: each is dark enough for it (contrast of 4 and more)."""


def svg(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Return a drawing that grows no wider than it is and shrinks with its page; ``title`` is read aloud.

    >>> svg(10, 5, "a line", [line(0, 0, 10, 5)]).startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 5"')
    True
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label={quoteattr(title)} '
        f'style="display:block;width:100%;max-width:{width:g}px;height:auto;--tw-least:{min(width, 544):g}px" font-family="sans-serif" font-size="12">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>\n"
    )


def text(x: float, y: float, said: str, *, at: str = "start", size: float = 12, fill: str = INK, bold: bool = False, mono: bool = False) -> str:
    """Return a line of text; ``at`` is start, middle or end of it."""
    more = ' font-weight="600"' if bold else ""
    more += ' font-family="monospace"' if mono else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}" font-size="{size:g}" style="fill:{fill}"{more}>{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, *, fill: str = "none", edge: str = "none", said: str = "", corner: float = 2) -> str:
    """Return a rectangle; ``said`` appears where the pointer rests on it."""
    inner = f"<title>{escape(said)}</title>" if said else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" rx="{corner:g}" '
        f'style="fill:{fill};stroke:{edge}">{inner}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, *, colour: str = RULE, wide: float = 1, said: str = "") -> str:
    """Return a straight line."""
    inner = f"<title>{escape(said)}</title>" if said else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke:{colour};stroke-width:{wide:g}">{inner}</line>'


def arrow(x1: float, y1: float, x2: float, y2: float, *, colour: str = INK, wide: float = 1.5, said: str = "") -> str:
    """Return a line with a head at its second end."""
    long = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    ux, uy = (x2 - x1) / long, (y2 - y1) / long
    head = 3.2 * wide + 2
    bx, by = x2 - ux * head, y2 - uy * head
    points = f"{x2:.1f},{y2:.1f} {bx - uy * head / 2:.1f},{by + ux * head / 2:.1f} {bx + uy * head / 2:.1f},{by - ux * head / 2:.1f}"
    return line(x1, y1, bx, by, colour=colour, wide=wide, said=said) + f'<polygon points="{points}" style="fill:{colour}"/>'


def disc(x: float, y: float, radius: float, *, fill: str, said: str = "") -> str:
    """Return a filled circle."""
    inner = f"<title>{escape(said)}</title>" if said else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" style="fill:{fill}">{inner}</circle>'


def hue(number: int) -> str:
    """Return the colour of the n-th kind.

    >>> hue(0) == hue(len(HUES))
    True
    """
    return HUES[number % len(HUES)]
