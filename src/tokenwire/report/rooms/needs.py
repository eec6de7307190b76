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
    """Yield one block a requirement: value, name, derivation, reason."""
    from rich.padding import Padding
    from rich.text import Text

    for need in facts["requirements"]:
        yield Text.assemble((f"{need['text']:>12}", "bold"), "  ", need["name"])
        for line in (need["derivation"] if need["formula"] else "", need["because"], need["source"]):
            if line:
                style = "dim" if line == need["source"] else ""
                yield Padding(Text(line, style=style), (0, 0, 0, 14))
