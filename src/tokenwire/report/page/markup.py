"""What the terminal prints, as HTML: tables stay tables, emphasis stays emphasis, bars become bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import pairwise
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_BLOCKS = re.compile(r"[█▏▎▍▌▋▊▉ ]*[█▏▎▍▌▋▊▉][█▏▎▍▌▋▊▉ ]*")
_HEX = re.compile(r"[0-9a-f]{2}(\s[0-9a-f]{2})+")
_EIGHTHS = {" ": 0, "▏": 1, "▎": 2, "▍": 3, "▌": 4, "▋": 5, "▊": 6, "▉": 7, "█": 8}


def html(parts: Iterable[Any]) -> str:
    """Return printed parts (strings, ``rich`` texts and tables) as HTML.

    >>> html(["2 < 3", Text("so", style="bold")])
    '<p>2 &lt; 3</p>\\n<p><b>so</b></p>\\n'
    """
    return "".join(f"{one}\n" for part in parts for one in _one(part))


def _one(part: Any) -> Iterator[str]:
    if isinstance(part, Table):
        yield table(part)
    elif isinstance(part, Padding):
        yield f'<div class="tw-in">{html([part.renderable])}</div>'
    elif isinstance(part, Text):
        if part.plain.strip():
            yield f"<p>{spans(part)}</p>"
    elif str(part).strip():
        yield f"<p>{escape(str(part).strip())}</p>"


def spans(text: Text) -> str:
    """Return a text with its styles: bold, italic and dim; colours are the terminal's own and are left out.

    >>> spans(Text.assemble("a ", ("b", "dim cyan")))
    'a <span class="tw-dim">b</span>'
    """
    marks = [(0, len(text.plain), str(text.style)), *((span.start, span.end, str(span.style)) for span in text.spans)]
    cuts = sorted({0, len(text.plain), *(end for start, stop, _ in marks for end in (start, stop))})
    out = []
    for start, end in pairwise(cuts):
        styles = " ".join(style for first, last, style in marks if first <= start and end <= last).split()
        out.append(_marked(escape(text.plain[start:end]).replace("\n", "<br>"), styles))
    return "".join(out)


def _marked(said: str, styles: list[str]) -> str:
    plain = "not" in styles
    if "bold" in styles and not plain:
        said = f"<b>{said}</b>"
    if "italic" in styles:
        said = f"<i>{said}</i>"
    return f'<span class="tw-dim">{said}</span>' if "dim" in styles else said


def table(found: Table) -> str:
    """Return a table as HTML that scrolls on its own where the page is narrow; columns of numbers are aligned right.

    >>> made = Table("tier", "bytes")
    >>> made.add_row("leaf", "3 B")
    >>> table(made).splitlines()[3]
    '<tr><td>leaf</td><td>3 B</td></tr>'
    """
    right = [column.justify == "right" for column in found.columns]
    heads = [_plain(column.header) for column in found.columns]
    columns = [list(column.cells) for column in found.columns]
    out = ['<div class="tw-wide" tabindex="0"><table>']
    if found.title:
        out.append(f"<caption>{escape(_plain(found.title))}</caption>")
    if found.show_header and any(heads):
        out.append("<thead><tr>" + "".join(_cell("th" if head else "td", escape(head), at) for head, at in zip(heads, right, strict=True)) + "</tr></thead>")
    rows = ("<tr>" + "".join(_cell("td", _inside(cell), at) for cell, at in zip(row, right, strict=True)) + "</tr>" for row in zip(*columns, strict=True))
    return "\n".join([*out, "<tbody>", *rows, "</tbody></table></div>"])


def _cell(kind: str, said: str, right: bool) -> str:
    return f'<{kind} class="tw-n">{said}</{kind}>' if right else f"<{kind}>{said}</{kind}>"


def _plain(said: Any) -> str:
    return said.plain if isinstance(said, Text) else str(said)


def _inside(cell: Any) -> str:
    plain = _plain(cell)
    if _BLOCKS.fullmatch(plain):
        share = sum(_EIGHTHS[sign] for sign in plain) / (8 * len(plain))
        return f'<span class="tw-bar" style="width:{share:.1%}"></span>'
    if _HEX.fullmatch(plain):
        return f'<span class="tw-hex">{escape(plain)}</span>'
    return spans(cell) if isinstance(cell, Text) else escape(plain)
