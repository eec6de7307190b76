"""Options that many verbs share, and the journey that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tokenwire.journey import Journey

JourneyFile = Annotated[
    str | None,
    typer.Argument(metavar="[JOURNEY]", help="Journey file (TOML), or - for standard input; none: the built-in walk."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value, e.g. --set plan.tp=4.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the hash that chooses among equal ways.")]
NoPxn = Annotated[bool, typer.Option("--no-pxn", help="Across rails go by the spine, not by NVLink first.")]
Protocol = Annotated[
    str, typer.Option("--protocol", metavar="P", help="Of NCCL, with the flags it sends: Simple (none), LL128, LL (twice the bytes).")
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]
Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV (- is stdout).")]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Draw it: .svg, .html or .png.")]
Parquet = Annotated[str | None, typer.Option("--parquet", metavar="FILE", help="Write the table as Parquet.")]


def read_journey(file: str | None, sets: list[str] | None) -> Journey:
    """Return the journey of a file (or the built-in one) with ``--set`` overrides."""
    from tokenwire.journey import Journey

    return Journey.read(file, overrides=sets or [])


def journey_or_text(source: str | None, sets: list[str] | None, encoding: str | None = None) -> Journey:
    """Return the journey of a ``.toml`` file, or the built-in one on another text."""
    is_journey = source is not None and source.lower().endswith(".toml")
    overrides = [*with_text(None if is_journey else source, encoding), *(sets or [])]
    return read_journey(source if is_journey else None, overrides)


def with_text(text: str | None, encoding: str | None = None) -> list[str]:
    """Return the overrides that ``--text`` and ``--encoding`` stand for."""
    import json

    given = {"text.source": text, "text.encoding": encoding}
    return [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
