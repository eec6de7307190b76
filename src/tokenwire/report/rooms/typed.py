"""Tokenizers side by side, a text that somebody typed, and looking for a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenwire.errors import InputError
from tokenwire.report.scenes.walk import piece
from tokenwire.text.markup import parsed
from tokenwire.text.text import Text
from tokenwire.tokens import Encoding, Tokenizer, TokenizerConfig, build_tokenizer, statistics

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey

MOST_FOUND = 500
"""Places of a token that are listed."""


class Piece(NamedTuple):
    """A token of a text: its ``id``, its ``text`` with white space as signs, and its span in bytes of UTF-8."""

    id: int
    text: str
    start: int
    end: int


def pieces(text: Text, encoding: Encoding) -> Iterator[Piece]:
    """Yield the tokens of a text; parts of a character show as their bytes."""
    for index, id_ in enumerate(encoding.ids.tolist()):
        yield Piece(id_, piece(text.data, encoding, index), int(encoding.starts[index]), int(encoding.ends[index]))


def text_of(typed: str) -> Text:
    """Return what somebody typed as a text."""
    content, verses, documents = parsed(typed)
    return Text("typed", content, verses, documents)


def beside(journey: Journey, kinds: Sequence[str], text: Text) -> list[dict[str, Any]]:
    """Return for the journey's tokenizer and others by kind: figures on the whole text, and the ``pieces`` of ``text``.

    Others are trained on the journey's text, to its vocabulary, where their kind is trained. A tokenizer that cannot be had has
    an ``error`` instead.
    """
    own, config = journey.config.tokenizer, journey.config.tokenizer
    out = [_figures(journey, journey.tokenizer(), text, config.name or own.kind)]
    for kind in kinds:
        if kind == "file":
            out.append({"kind": kind, "error": "a file is given when the explorer starts"})
            continue
        try:
            other = build_tokenizer(TokenizerConfig(kind=kind, vocab_size=config.vocab_size), journey.text().content)
        except InputError as error:
            out.append({"kind": kind[:40], "error": str(error)})
        else:
            out.append(_figures(journey, other, text, kind))
    return out


def _figures(journey: Journey, tokenizer: Tokenizer, text: Text, kind: str) -> dict[str, Any]:
    whole = journey.text()
    counted = statistics(whole, tokenizer, tokenizer.encode(whole.content))
    shown = list(pieces(text, tokenizer.encode(text.content)))
    return {
        "kind": kind, "tokenizer": counted.tokenizer, "vocabulary_size": counted.vocabulary_size, "tokens": counted.tokens,
        "fertility": counted.fertility, "bytes_per_token": counted.bytes_per_token, "shown": len(shown), "pieces": shown, "error": "",
    }  # fmt: skip


def found(journey: Journey, what: str) -> pl.DataFrame:
    """Return where a token occurs, by its id or (a part of) its text: ``token`` in the text, id, text, start (bytes).

    Raises ``InputError`` for an id that the vocabulary has not, or a text that no token has.
    """
    import numpy as np
    import polars as pl

    encoding, tokenizer, data = journey.encoding(), journey.tokenizer(), journey.text().data
    if what.strip().isdigit():
        wanted = int(what.strip()[:12])
        if wanted >= tokenizer.vocabulary_size:
            raise InputError(f"id {wanted:,}", rule=f"the vocabulary has ids 0 to {tokenizer.vocabulary_size - 1:,}",
                             nearest=str(tokenizer.vocabulary_size - 1))  # fmt: skip
        ids = {wanted}
    else:
        looked_for = what.replace("␣", " ").encode("utf-8")
        first = {int(id_): index for index, id_ in reversed(list(enumerate(encoding.ids.tolist())))}
        ids = {id_ for id_, at in first.items() if looked_for in data[int(encoding.starts[at]) : int(encoding.ends[at])]}
        if not ids:
            raise InputError(f"{what[:40]!r}", rule="is in no token of this text: tokens are pieces of words", nearest="fewer letters")
    places = np.flatnonzero(np.isin(encoding.ids, list(ids)))[:MOST_FOUND]
    texts = [piece(data, encoding, index) for index in places.tolist()]
    return pl.DataFrame({"token": places.tolist(), "id": encoding.ids[places].tolist(), "text": texts, "start": encoding.starts[places].tolist()},
                        schema={"token": pl.Int64, "id": pl.Int64, "text": pl.String, "start": pl.Int64})  # fmt: skip
