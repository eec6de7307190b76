"""Counting words: types and tokens, Zipf's and Heaps's laws.

Zipf: the frequency of the r-th most frequent type is C / r^alpha. Heaps: a text of n words has K * n^beta types. Both
are least squares on the logarithms (the field's usual quick fit), Zipf over all ranks, Heaps over 50 points spaced
evenly in log n; ``r2`` says how well the line holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenwire.text.text import Text
from tokenwire.text.words import forms, words


@dataclass(frozen=True)
class PowerLaw:
    """``y = scale * x**exponent`` with its coefficient of determination (of the logarithms)."""

    exponent: float
    scale: float
    r2: float


@dataclass(frozen=True)
class TextStatistics:
    """Counts of a text; ``zipf`` and ``heaps`` are None where there are too few types for a line."""

    bytes: int
    characters: int
    verses: int
    stanzas: int
    cantos: int
    words: int
    types: int
    once: int
    mean_word_characters: float
    most_common: tuple[tuple[str, int], ...]
    zipf: PowerLaw | None
    heaps: PowerLaw | None


def statistics(text: Text, most_common: int = 10) -> TextStatistics:
    """Return the counts of a text.

    >>> from tokenwire.text import read_text
    >>> counted = statistics(read_text())
    >>> counted.verses, counted.stanzas, counted.words
    (136, 46, 945)
    """
    spans = words(text.content)
    ordered_forms = forms(text.content, spans)
    counts = Counter(ordered_forms)
    ordered = counts.most_common()
    return TextStatistics(
        bytes=len(text.data),
        characters=len(text.content),
        verses=len(text.verses),
        stanzas=len({(verse.canto, verse.stanza) for verse in text.verses}),
        cantos=len({verse.canto for verse in text.verses if verse.canto}),
        words=len(spans),
        types=len(counts),
        once=sum(1 for _, count in ordered if count == 1),
        mean_word_characters=sum(end - start for start, end in spans) / len(spans) if spans else 0.0,
        most_common=tuple(ordered[:most_common]),
        zipf=zipf([count for _, count in ordered]),
        heaps=heaps(ordered_forms),
    )


def zipf(frequencies: list[int]) -> PowerLaw | None:
    """Return the fit of descending frequencies against their ranks; the exponent is positive.

    >>> fit = zipf([1000 // rank for rank in range(1, 11)])
    >>> round(fit.exponent, 2), round(fit.r2, 3)
    (1.0, 1.0)
    """
    ranks = np.arange(1, len(frequencies) + 1, dtype=float)
    fit = _line(ranks, np.asarray(frequencies, dtype=float))
    return fit and PowerLaw(-fit.exponent, fit.scale, fit.r2)


def heaps(read: Sequence[str], points: int = 50) -> PowerLaw | None:
    """Return the fit of the number of types against the number of words read, for words in their order.

    >>> fit = heaps([str(n) for n in range(100)])    # every word is new
    >>> round(fit.exponent, 3)
    1.0
    """
    grown = growth(read)
    if len(grown) < 3:
        return None
    at = np.array(sorted({int(count) for count in np.geomspace(1, len(grown), points)}))
    return _line(at.astype(float), np.asarray(grown, dtype=float)[at - 1])


def growth(read: Sequence[str]) -> list[int]:
    """Return the number of types among the first word, the first two, and so on.

    >>> growth(["nel", "mezzo", "nel"])
    [1, 2, 2]
    """
    seen: set[str] = set()
    grown = []
    for form in read:
        seen.add(form)
        grown.append(len(seen))
    return grown


def _line(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> PowerLaw | None:
    if len(x) < 3 or np.all(y == y[0]):
        return None
    log_x, log_y = np.log(x), np.log(y)
    slope, intercept = np.polyfit(log_x, log_y, 1)
    rest = log_y - (slope * log_x + intercept)
    return PowerLaw(float(slope), float(np.exp(intercept)), float(1 - rest.var() / log_y.var()))
