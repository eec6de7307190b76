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

    out = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=True)
    for column in columns:
        out.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        out.add_row(*[cell if hasattr(cell, "__rich_console__") else Text(str(cell)) for cell in row])
    return out


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
