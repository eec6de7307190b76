"""What a text is: its characters, and where its verses stand in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Verse(NamedTuple):
    """One verse (in a plain text: one line that is not empty): ``content[start:end]``, without its line end.

    ``number`` counts from 1 inside its canto, ``canto`` is ``"Inferno I"`` (``""`` in a plain text), ``stanza`` counts
    from 1 inside the canto.
    """

    number: int
    start: int
    end: int
    canto: str
    stanza: int


@dataclass(frozen=True)
class Text:
    """A text, or a part of one.

    ``content`` is what is trained on, ``verses`` its verses as character spans, ``documents`` the character spans of
    its cantos (a plain text is one document). ``encoding`` is that of the file, ``source_bytes`` the file's size.
    ``byte_offset`` is where this part begins in the text that it was selected from, in bytes of UTF-8.
    """

    name: str
    content: str
    verses: tuple[Verse, ...]
    documents: tuple[tuple[int, int], ...]
    encoding: str = "utf-8"
    source: str = ""
    source_bytes: int = 0
    byte_offset: int = field(default=0)

    @cached_property
    def data(self) -> bytes:
        """Return the content as UTF-8: what tokenizers count in."""
        return self.content.encode("utf-8")

    @property
    def byte_range(self) -> tuple[int, int]:
        """Return where this part stands in the text it was selected from: first byte, and the byte after its last."""
        return self.byte_offset, self.byte_offset + len(self.data)

    def verse_text(self, verse: Verse) -> str:
        """Return the characters of a verse."""
        return self.content[verse.start : verse.end]
