"""Reading a table of runs: its rows as mappings of texts, checked for the columns that its reader needs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tokenwire.errors import InputError
from tokenwire.files import read_limited

LIMIT = 2**26
"""Bytes of the largest table that is read."""


def rows_of(path: str | Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a CSV table. Raises ``InputError`` for a file without these columns or with a short row."""
    where = f"runs {str(path)!r}"
    try:
        text = read_limited(path, limit=LIMIT, what="table of runs").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(where, rule=f"is not UTF-8 (offset {error.start:,})") from None
    found = list(csv.DictReader(io.StringIO(text)))
    missing = [name for name in columns if not found or name not in found[0]]
    if missing:
        raise InputError(where, rule=f"must have the columns {', '.join(columns)}; {missing[0]} is missing")
    for number, row in enumerate(found, 2):
        if any(row[name] is None for name in columns):
            raise InputError(f"line {number}", where=where, rule="has fewer cells than the head")
    return found


def whole(row: dict[str, str], *names: str) -> list[int]:
    """Return cells as whole numbers. Raises ``InputError`` for one that is none."""
    out = []
    for name in names:
        text = row[name].strip()
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            raise InputError(f"{name} = {text[:40]!r}", rule="must be a whole number")
        out.append(int(text))
    return out


def number(row: dict[str, str], name: str) -> float:
    """Return a cell as a number above 0. Raises ``InputError`` for one that is none."""
    try:
        value = float(row[name])
    except ValueError:
        value = 0.0
    if not 0 < value < 1e18:
        raise InputError(f"{name} = {row[name][:40]!r}", rule="must be a number above 0")
    return value
