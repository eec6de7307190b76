"""Words: the text that is trained on.

In: a ``TextConfig`` (the built-in Inferno I, a file, or standard input; an encoding; a place in it). Out: a ``Text``:
its characters and the spans of its verses. Headings such as ``# Inferno, canto I`` are mark-up: they name the cantos
and are not part of what is trained on. ``select`` walks into a part (a cantica, a canto, some verses), ``opening``
takes the first verses, ``statistics`` counts, ``words`` is the one definition of a word.
"""

from tokenwire.text.config import TextConfig
from tokenwire.text.places import opening, select
from tokenwire.text.reading import read_text
from tokenwire.text.statistics import TextStatistics, statistics
from tokenwire.text.text import Text, Verse
from tokenwire.text.words import forms, types, words

__all__ = [
    "Text",
    "TextConfig",
    "TextStatistics",
    "Verse",
    "forms",
    "opening",
    "read_text",
    "select",
    "statistics",
    "types",
    "words",
]
