"""The terminal: one console, one style of table, readable at 80 columns, in a pipe and without colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


_WHITE = {"\n": "↵", "\t": "⇥", "\r": "␍", " ": "␣"}
# Control characters as the pictures that Unicode has of them: a text must not steer the terminal that shows it.
_CONTROLS = {
    **{chr(code): chr(0x2400 + code) for code in range(0x20)},
    "\x7f": "␡",
    **{chr(code): "\N{REPLACEMENT CHARACTER}" for code in range(0x80, 0xA0)},
}
_MARKED = str.maketrans(_CONTROLS | _WHITE)
_HARMLESS = str.maketrans(_CONTROLS | {"\n": "\n", "\t": "\t"})


@cache
def console() -> Console:
    """Return the console: as wide as the terminal, 80 columns in a pipe (or ``COLUMNS``), no colour if NO_COLOR."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 80
    return Console(width=width, highlight=False, emoji=False, markup=False, soft_wrap=False)


def table(
    rows: Sequence[Sequence[Any]], columns: Sequence[str], *, right: Sequence[str] = (), title: str = ""
) -> Table:
    """Return a table with a rule below its head; ``right`` names the columns of numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = Table(title=_title(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=True)
    for column in columns:
        out.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        out.add_row(*[cell if hasattr(cell, "__rich_console__") else Text(str(cell)) for cell in row])
    return out


def _title(title: str) -> Text:
    # As wide as the terminal, where Rich makes it as wide as its table.
    from textwrap import fill

    from rich.text import Text

    lines = [fill(line, console().width) for line in title.splitlines()]
    return Text("\n".join(lines), style="table.title", no_wrap=True, overflow="ignore")


def bar(fraction: float, width: int = 20) -> str:
    """Return a bar of block characters, eighths of a cell fine; a fraction above 0 always shows.

    >>> bar(0.5, 4), bar(1, 4), bar(0, 4), bar(0.001, 4)
    ('██  ', '████', '    ', '▏   ')
    """
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    if fraction > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return ("█" * full + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])).ljust(width)


def visible(text: str) -> str:
    r"""Return a text with white space and control characters as signs, in a line.

    >>> visible("di nostra\tvita\n"), visible("\x1b[31m")
    ('di␣nostra⇥vita↵', '␛[31m')
    """
    return text.translate(_MARKED)


def harmless(text: str) -> str:
    r"""Return a text with its lines and tabs as they are, and other control characters as signs.

    >>> harmless("mi ritrovai\n\x1b[31m")
    'mi ritrovai\n␛[31m'
    """
    return text.translate(_HARMLESS)


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text that is longer than ``most`` characters, with ``…`` for the rest.

    >>> shortened("selva", 5), shortened("selva oscura", 6)
    ('selva', 'selva…')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def folded(paragraph: str, width: int | None = None) -> str:
    """Return a paragraph with each line folded between words to ``width`` columns (None: the console's).

    What does not fit goes on below, two columns further in; a word that is longer than a line is left whole.

    >>> print(folded("  why: each rank needs the sum", 20))
      why: each rank
        needs the sum
    """
    import textwrap

    lines = []
    for line in paragraph.split("\n"):
        lead = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line, width or console().width, subsequent_indent=f"{lead}  ", break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)
