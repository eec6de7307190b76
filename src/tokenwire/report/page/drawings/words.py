"""Tokens in turning colours with their ids below, and numbers as the bits they are sent as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tokenwire.report.page.drawings.ink import FAINT, HUES, box, svg, text

MOST = 240
"""Tokens drawn at most."""
FIELDS = ((0, 1, "sign", HUES[2]), (1, 9, "exponent", HUES[0]), (9, 16, "fraction", HUES[3]))
"""Fields of a bfloat16: first bit, last, name, colour."""


def tokens(found: Sequence[Mapping[str, Any]]) -> str:
    """Return tokens (``text``, ``id``, ``followed``) as HTML that breaks where the page does.

    >>> tokens([{"text": "Nel", "id": 672, "followed": False}])
    '<div class="tw-tokens"><span class="tw-t0">Nel<small>672</small></span></div>\\n'
    """
    spans = [
        f'<span class="tw-t{number % 4}{" tw-on" if one["followed"] else ""}">{escape(str(one["text"]))}<small>{one["id"]}</small></span>'
        for number, one in enumerate(found[:MOST])
    ]
    more = f"<p>… {len(found) - MOST:,} tokens more</p>" if len(found) > MOST else ""
    return f'<div class="tw-tokens">{"".join(spans)}</div>{more}\n'


def bits(numbers: Sequence[float], patterns: Sequence[str]) -> str:
    """Return numbers in bfloat16, a row each: sign, exponent, fraction, bit by bit.

    >>> bits([1.0], ["0011111110000000"]).count("<rect")
    16
    """
    cell, left = 20, 110
    parts = [text(left + (first + last) / 2 * cell, 14, name, at="middle", fill=colour) for first, last, name, colour in FIELDS]
    for row, (number, pattern) in enumerate(zip(numbers, patterns, strict=True)):
        y = 22 + row * (cell + 3)
        parts.append(text(left - 10, y + 15, f"{number:+.6f}", at="end", mono=True))
        for first, last, name, colour in FIELDS:
            for at in range(first, last):
                parts.append(box(left + at * cell, y, cell - 2, cell - 2, fill=colour if pattern[at] == "1" else "none", edge=colour, said=name))
                parts.append(text(left + at * cell + cell / 2 - 1, y + 14, pattern[at], at="middle", size=11, mono=True,
                                  fill="#ffffff" if pattern[at] == "1" else FAINT))  # fmt: skip
    return svg(left + 16 * cell + 10, 26 + len(numbers) * (cell + 3), "numbers of a vector as bfloat16 bits", parts)
