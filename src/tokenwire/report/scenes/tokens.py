"""Its tokens: the verses shown cut into tokens with their ids, and what tokenization did to the whole text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tokenwire.report.scenes.walk import Walk, piece
from tokenwire.report.terminal import shortened
from tokenwire.tokens import bytes_read

COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")
MOST = 72
"""Tokens drawn at most."""
LETTERS = 25
"""Letters drawn of a token."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the tokens shown (index among them, id, text, span in bytes) and the figures of the text."""
    journey, encoding, data = walk.journey, walk.journey.encoding(), walk.journey.text().data
    training = journey.config.training
    statistics = journey.tokens()
    storage = bytes_read(
        sequence_length=training.sequence_length, global_batch=training.global_batch, index_bytes=statistics.index_bytes
    )
    return {
        "tokens": [
            {
                "token": number, "id": int(encoding.ids[index]), "text": piece(data, encoding, index),
                "start": int(encoding.starts[index]), "end": int(encoding.ends[index]),
                "followed": walk.token is not None and index == walk.followed,
            }
            for number, index in enumerate(walk.tokens_shown)
        ],
        "text": asdict(statistics),
        "storage": storage.as_dict() | {"text": storage.derivation},
        "sequence_length": training.sequence_length, "global_batch": training.global_batch,
    }  # fmt: skip


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the tokens in turning colours, and below each its id."""
    from rich.text import Text

    yield ""
    yield from _columns(facts["tokens"][:MOST])
    if len(facts["tokens"]) > MOST:
        yield Text(f"… {len(facts['tokens']) - MOST:,} tokens more", style="dim")
    text = facts["text"]
    yield ""
    yield (
        f"{text['tokenizer']}: {text['vocabulary_size']:,} ids. The text is {text['tokens']:,} tokens: fertility = tokens/words "
        f"= {text['tokens']:,}/{text['words']:,} = {text['fertility']:.3f}; {text['bytes_per_token']:.3f} B a token."
    )
    yield (
        f"Sequences of s = {facts['sequence_length']:,} tokens, B = {facts['global_batch']:,} a step, stored as "
        f"{text['index_dtype']}: storage gives B·(s+1)·index = {facts['storage']['text'].split('=', 1)[1].strip()} a step."
    )


def _columns(tokens: list[dict[str, Any]], width: int = 78) -> Iterator[Any]:
    from rich.cells import cell_len
    from rich.text import Text

    above, below = Text(), Text()
    for token in tokens:
        drawn = shortened(token["text"], LETTERS)
        size = max(cell_len(drawn), len(str(token["id"])))
        if above.cell_len + size + 1 > width:
            yield above
            yield below
            above, below = Text(), Text()
        style = "bold white on red" if token["followed"] else COLOURS[token["token"] % len(COLOURS)]
        marked = f"[{drawn}]" if token["followed"] else drawn
        size = max(size, cell_len(marked))
        above.append(marked, style=style)
        above.append(" " * (size - cell_len(marked) + 1))
        below.append(f"{token['id']:<{size + 1}}", style="dim")
    yield above
    yield below
