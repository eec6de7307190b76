"""The verse: the lines on stage, where they are in the text, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import harmless, shortened

LINES = 18
"""Verses drawn at most; ``facts`` has them all."""
LETTERS = 400
"""Characters drawn of a verse at most."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the verses shown with their numbers, and the size of the text they come from."""
    shown, text = walk.shown, walk.journey.text()
    return {
        "text": text.name, "place": shown.name, "encoding": text.encoding,
        "verses": [
            {"canto": verse.canto, "number": verse.number, "stanza": verse.stanza, "text": shown.verse_text(verse)}
            for verse in shown.verses
        ],
        "bytes": len(shown.data), "characters": len(shown.content), "text_bytes": len(text.data),
        "text_verses": len(text.verses),
    }  # fmt: skip


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the verses, stanzas apart."""
    from rich.text import Text

    yield ""
    before = facts["verses"][0]
    for verse in facts["verses"][:LINES]:
        if (verse["canto"], verse["stanza"]) != (before["canto"], before["stanza"]):
            yield ""
        before = verse
        where = f"{verse['canto']} {verse['number']}".strip()
        yield Text.assemble((f"{where:>16}  ", "dim"), (shortened(harmless(verse["text"]), LETTERS), "bold italic"))
    if len(facts["verses"]) > LINES:
        yield Text(f"{'':16}  … {len(facts['verses']) - LINES:,} verses more", style="dim")
    yield ""
    yield (
        f"{facts['characters']:,} characters are {facts['bytes']:,} bytes of UTF-8, of the {facts['text_bytes']:,} B "
        f"({facts['text_verses']:,} verses) of {facts['text']} that are trained on."
    )
