"""The heat of links as a picture: a cell a link, tier by tier, the lower ends of links side by side; as SVG."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator

import numpy as np

from tokenwire.fabric import TIERS, Fabric
from tokenwire.fabric.fabric import Floats, Ints
from tokenwire.units import format_seconds

WIDTH, LEFT, PER_ROW, MOST_ROWS = 880, 150, 64, 12
CELL = (WIDTH - LEFT - 30) / PER_ROW
SCALE = ((0.0, (247, 251, 255)), (0.25, (158, 202, 225)), (0.5, (254, 217, 118)), (0.75, (252, 141, 60)), (1.0, (165, 15, 21)))
"""Colours from idle to busiest; lighter to darker, so that they also tell in grey."""


def colour(share: float) -> str:
    """Return the colour of a share of the busiest link.

    >>> colour(0.0), colour(1.0)
    ('#f7fbff', '#a50f15')
    """
    share = min(max(share, 0.0), 1.0)
    for (low, one), (high, two) in itertools.pairwise(SCALE):
        if share <= high:
            at = (share - low) / (high - low)
            return "#" + "".join(f"{round(a + (b - a) * at):02x}" for a, b in zip(one, two, strict=True))
    return "#a50f15"


def svg(fabric: Fabric, load: Ints, title: str) -> str:
    """Return the heat as SVG: each cell is a link (of very many, the busiest of a few), its colour its time at full rate."""
    seconds = load / fabric.rate
    most = float(seconds.max(initial=0.0))
    parts: list[str] = []
    y = 96.0
    for code, tier in enumerate(TIERS):
        links = np.flatnonzero(fabric.tier == code)
        up = fabric.src[links] < fabric.dst[links]
        for way, here in (("up", links[up]), ("down", links[~up])):
            if here.size:
                low = np.minimum(fabric.src[here], fabric.dst[here])
                here = here[np.argsort(low, kind="stable")]
                rows, tall = _strip(fabric, here, seconds, most, f"{tier} {way}", y)
                parts += rows
                y += tall + 14
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10:.0f}" width="{WIDTH}" height="{y + 10:.0f}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{html.escape(title)}</title>", f'<rect width="{WIDTH}" height="{y + 10:.0f}" fill="white"/>',
        f'<text x="14" y="26" font-size="16">{html.escape(title)}</text>', *_legend(most),
    ]  # fmt: skip
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _legend(most: float) -> Iterator[str]:
    yield f'<text x="{LEFT - 8}" y="57" text-anchor="end">bytes / rate</text>'
    for k in range(40):
        yield f'<rect x="{LEFT + 6 * k}" y="46" width="6" height="14" fill="{colour(k / 39)}"/>'
    for share in (0.0, 0.5, 1.0):
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
        text = "idle" if share == 0 else format_seconds(share * most)
        yield f'<text x="{LEFT + 240 * share:.0f}" y="76" text-anchor="{anchor}">{text}</text>'


def _strip(fabric: Fabric, links: Ints, seconds: Floats, most: float, name: str, y: float) -> tuple[list[str], float]:
    per_cell = -(-links.size // (PER_ROW * MOST_ROWS))
    cells = [links[i : i + per_cell] for i in range(0, links.size, per_cell)]
    rows = -(-len(cells) // PER_ROW)
    own = seconds[links]
    note = f"{links.size:,} links" + (f", {per_cell} a cell" if per_cell > 1 else "")
    worst = float(own.max())
    out = [
        f'<text x="14" y="{y + 11:.1f}" font-weight="bold">{name}</text>', f'<text x="14" y="{y + 25:.1f}" fill="#555">{note}</text>',
        f'<text x="14" y="{y + 39:.1f}" fill="#555">at most {format_seconds(worst) if worst else "0"}</text>',
    ]  # fmt: skip
    for i, cell in enumerate(cells):
        link = int(cell[int(seconds[cell].argmax())])
        said = f"{fabric.device_name(int(fabric.src[link]))} to {fabric.device_name(int(fabric.dst[link]))}: {format_seconds(float(seconds[link]))}"
        out.append(
            f'<rect x="{LEFT + i % PER_ROW * CELL:.1f}" y="{y + i // PER_ROW * CELL:.1f}" width="{CELL:.1f}" height="{CELL:.1f}" '
            f'fill="{colour(float(seconds[link]) / most if most else 0.0)}" stroke="#ccc" stroke-width="0.4">'
            f"<title>{html.escape(said)}</title></rect>"
        )
    return out, max(rows * CELL, 42.0)
