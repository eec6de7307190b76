"""Printing results: a table a person reads, JSON a program reads, or a file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def print_json(facts: Any) -> None:
    """Print facts as JSON; numpy scalars and dataclasses become plain values; NaN is never printed."""
    narrow = "utf" not in (sys.stdout.encoding or "utf-8").lower()
    sys.stdout.write(json.dumps(facts, indent=2, ensure_ascii=narrow, default=_plain, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    for attribute in ("as_dict", "model_dump", "to_dicts", "tolist"):
        if hasattr(value, attribute):
            return getattr(value, attribute)()
    return str(value)


def print_table(
    rows: Sequence[Sequence[Any]], columns: Sequence[str], *, right: Sequence[str] = (), title: str = ""
) -> None:
    """Print a table that is readable at 80 columns, in a pipe and without colour.

    ``right`` names the columns that are aligned right (numbers).
    """
    from tokenwire.report.terminal import console, table

    console().print(table(rows, columns, right=right, title=title))


def write_table(frame: pl.DataFrame, *, csv: str | None = None, parquet: str | None = None) -> bool:
    """Write the table to the files that were asked for; return whether any was."""
    from tokenwire.files import whole_or_nothing

    if csv == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(frame.write_csv().encode())  # UTF-8 whatever the terminal speaks, as in a file
    elif csv:
        with whole_or_nothing(csv) as file:
            file.write(frame.write_csv().encode())
    if parquet:
        with whole_or_nothing(parquet) as file:
            frame.write_parquet(whole := io.BytesIO())  # into the file, polars' own error would stand for a full disk
            file.write(whole.getbuffer())
    return bool(csv or parquet)


def answered(
    table: Callable[[], pl.DataFrame], facts: Callable[[], Any], *, json: bool, csv: str | None = None, parquet: str | None = None
) -> bool:  # fmt: skip
    """Write the table to the files that were asked for, and print the facts as JSON if that was; return whether anything was.

    What was not asked for is not worked out. Raises ``InputError`` where CSV and JSON would both go to standard output.
    """
    if json and csv == "-":
        raise InputError("--csv - --json", rule="are two things on standard output", nearest="--csv FILE --json")
    written = bool(csv or parquet) and write_table(table(), csv=csv, parquet=parquet)
    if json:
        print_json(facts())
    return written or json


def progress() -> Callable[[str], None] | None:
    """Return what says how far something is, on a line of standard error that is written over; None but on a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda said: print(f"\r\033[K{said[:79]}", end="", file=sys.stderr, flush=True)
