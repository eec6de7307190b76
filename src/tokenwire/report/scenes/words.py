"""Its words: the words of the verses shown, and what the whole text's word statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import shortened, visible
from tokenwire.text import forms, statistics, types, words

LETTERS = 64
"""Characters drawn of a word at most."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the words shown with how often their types occur in the text, and the text's statistics."""
    shown, text = walk.shown.content, walk.journey.text()
    counts, spans = types(text.content), words(shown)
    return {
        "words": [
            {"text": shown[start:end], "times": counts[form]}
            for (start, end), form in zip(spans, forms(shown, spans), strict=True)
        ],
        "text": {**asdict(statistics(text)), "name": text.name},
    }


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the words with their counts, and the laws of the text."""
    from rich.text import Text

    yield ""
    line = Text()
    for word in facts["words"][:60]:
        shown = Text.assemble(shortened(visible(word["text"]), LETTERS), (f" {word['times']}   ", "dim cyan"))
        # A word and its count stay together.
        if line.cell_len + shown.cell_len > 80:
            yield line
            line = Text()
        line.append_text(shown)
    yield line
    if len(facts["words"]) > 60:
        yield Text(f"… {len(facts['words']) - 60:,} words more", style="dim")
    text = facts["text"]
    yield Text("(a word, and how often its type occurs in the whole text)", style="dim")
    yield ""
    yield (
        f"{text['name']}: {text['words']:,} words of {text['types']:,} types; {text['once']:,} types occur once, "
        f"the most common, {text['most_common'][0][0]!r}, {text['most_common'][0][1]:,} times."
    )
    if text["zipf"] and text["heaps"]:
        yield (
            f"Zipf: frequency = {text['zipf']['scale']:,.3g} · rank^-{text['zipf']['exponent']:.3f}     "
            f"Heaps: types = {text['heaps']['scale']:,.3g} · words^{text['heaps']['exponent']:.3f}"
        )
        yield "New words never stop coming: a vocabulary of words never ends, one of pieces can."
