"""What the network must offer: each figure with its derivation and its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tokenwire.figures import Figure


def facts(figures: Iterable[Figure]) -> dict[str, Any]:
    """Return the requirements; ``text`` and ``derivation`` are for people."""
    return {
        "requirements": [
            {**figure.as_dict(), "text": figure.text, "derivation": figure.derivation} for figure in figures
        ]
    }


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield a summary, then the requirements: the value, and next to it its name, its derivation, the reason and the source."""
    from rich.table import Table
    from rich.text import Text

    short = Table.grid(padding=(0, 2, 0, 0))
    short.add_column(justify="right", no_wrap=True)
    short.add_column()
    for need in facts["requirements"]:
        if need["main"]:
            short.add_row(Text(need["text"], style="bold"), need["name"])
    if short.row_count:
        yield Text("In short", style="bold")
        yield short
        yield Text("\nEach figure with its derivation", style="bold")
    grid = Table.grid(padding=(0, 2, 1, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for need in facts["requirements"]:
        said = Text(need["name"], style="bold")
        for line in (need["derivation"] if need["formula"] else "", need["because"]):
            said.append(f"\n{line}" if line else "", style="not bold")
        said.append(f"\n{need['source']}" if need["source"] else "", style="not bold dim")
        grid.add_row(Text(need["text"].replace(" packets/s", "/s"), style="bold"), said)
    yield grid
