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
    """Yield the requirements: the value, and beside it its name, its derivation, the reason and the source."""
    from rich.table import Table
    from rich.text import Text

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
