"""What a tokenizer made of a text, as pictures: how long its tokens are, and into how many each word is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenwire.errors import InputError
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.text import words

if TYPE_CHECKING:
    from tokenwire.fabric.fabric import Ints
    from tokenwire.journey import Journey

MOST = 16
"""Lengths that have a bar of their own; what is longer shares the last."""


def charts(journey: Journey) -> tuple[Chart, Chart]:
    """Return the lengths of the tokens and the pieces of the words, as shares. Raises ``InputError`` for a text without words."""
    encoding, counted, text = journey.encoding(), journey.tokens(), journey.text()
    if not counted.words or not counted.tokens:
        raise InputError(f"--plot of {text.name}"[:120], rule="has no words to draw", nearest="a text with words")
    whose = f"{counted.tokenizer} on {text.name}"
    lengths, pieces = encoding.ends - encoding.starts, pieces_of_words(text.content, encoding.starts, encoding.ends)
    return (
        _shares(f"How long tokens are: {whose}, {counted.bytes_per_token:.2f} B a token", "bytes of a token", "share of the tokens, %", lengths),
        _shares(f"Into how many tokens a word is cut: {whose}, {counted.fertility:.2f} tokens a word", "tokens with a piece of the word",
                "share of the words, %", pieces),
    )  # fmt: skip


def pieces_of_words(content: str, starts: Ints, ends: Ints) -> Ints:
    """Return for each word of a text how many tokens (spans in bytes of UTF-8, in order) have a piece of it.

    >>> pieces_of_words("è qui", np.array([0, 2, 4]), np.array([2, 4, 6])).tolist()
    [1, 2]
    """
    spans = np.array(words(content), dtype=np.int64).reshape(-1, 2)
    letters = np.frombuffer(content.encode("utf-32-le"), dtype="<u4")
    # Bytes of UTF-8 before each character.
    before = np.concatenate([[0], np.cumsum(1 + (letters >= 0x80) + (letters >= 0x800) + (letters >= 0x10000))])
    first = np.searchsorted(ends, before[spans[:, 0]], side="right")
    last = np.searchsorted(starts, before[spans[:, 1]], side="left")
    return np.asarray(last - first)


def _shares(title: str, x_title: str, y_title: str, values: Ints) -> Chart:
    counts = np.bincount(np.minimum(values, MOST))
    first = int(np.flatnonzero(counts)[0])
    places = tuple(f"{n} and more" if n == MOST else str(n) for n in range(first, len(counts)))
    shares = Series(y_title, tuple((counts[first:] / counts.sum() * 100).tolist()))
    return Chart(title, "bars", x_title, y_title, places, (shares,), log_y=False)
