"""The one definition of a word, and of a type.

A word is a run of characters without white space that holds at least one letter or digit: what ``wc -w`` counts, less
the dashes and quotation marks that stand alone. A type is a word without the punctuation around it, in lower case
(casefolded): ``«Vita,`` and ``vita`` are one type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

_RUN = re.compile(r"\S+")
_ALNUM = re.compile(r"[^\W_]")
# Punctuation around a word; an apostrophe at its end marks an elision and belongs to it.
_AROUND = re.compile(r"^[\W_]+|[^\w’']+$")


def words(content: str) -> list[tuple[int, int]]:
    """Return the character span of every word, in order.

    >>> text = "Tant’è amara - che poco"
    >>> [text[a:b] for a, b in words(text)]
    ['Tant’è', 'amara', 'che', 'poco']
    """
    return [match.span() for match in _RUN.finditer(content) if _is_word(match.group())]


def forms(content: str, spans: Sequence[tuple[int, int]] | None = None) -> list[str]:
    """Return the type of every word, in order; ``spans`` are its words where they are known already.

    >>> forms("«Vita, vita; ch’i’ - l’")
    ['vita', 'vita', 'ch’i’', 'l’']
    """
    form = cache(_form)
    return [form(content[start:end]) for start, end in (words(content) if spans is None else spans)]


def types(content: str) -> Counter[str]:
    """Return how often each type occurs.

    >>> types("Vita, vita; ch’i’ vita").most_common(2)
    [('vita', 3), ('ch’i’', 1)]
    """
    return Counter(forms(content))


def _is_word(run: str) -> bool:
    # Most runs begin with a letter; the search is for those that do not.
    return run[0].isalnum() or _ALNUM.search(run) is not None


def _form(word: str) -> str:
    if not (word[0].isalnum() and word[-1].isalnum()):
        word = _AROUND.sub("", word)
    return word.casefold()
