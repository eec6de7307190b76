"""Tokenizers without training: bytes, characters, words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenwire.errors import InputError
from tokenwire.tokens.encoding import Encoding, encoding_of

# A word with the space before it and an elision's apostrophe; punctuation with the space before it; other white space.
_WORD = re.compile(r" ?[\w]+[’']?| ?[^\s\w]+|\s")


@dataclass(frozen=True)
class Bytes:
    """Each byte of UTF-8 is a token; 256 ids.

    >>> Bytes().encode("è").ids.tolist(), Bytes().decode([195, 168])
    ([195, 168], 'è')
    """

    name: str = "bytes"
    kind: str = "bytes"
    vocabulary_size: int = 256
    lossless: bool = True

    def encode(self, text: str) -> Encoding:
        """Return one token a byte."""
        ids = np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32)
        return encoding_of(ids, np.ones(256, dtype=np.int64))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of bytes."""
        return bytes(int(token) for token in ids).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        """Return a printable ASCII character as itself, another byte as ``<0xC3>``."""
        return chr(token) if 0x21 <= token < 0x7F else f"<0x{token:02X}>"

    def saved(self) -> bytes | None:
        """Return None: there is nothing to save."""
        return None


@dataclass(frozen=True)
class Pieces:
    """A vocabulary of the pieces that occur in the training text, numbered by code point: characters or words."""

    name: str
    kind: str
    pieces: tuple[str, ...]
    lossless: bool = True

    @property
    def vocabulary_size(self) -> int:
        """Return the number of different pieces."""
        return len(self.pieces)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces)}

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text. Raises ``InputError`` for a piece that was not in the training text."""
        try:
            ids = [self._ids[piece] for piece in _CUTS[self.kind](text)]
        except KeyError as error:
            raise InputError(
                f"{self.kind[:-1]} {error.args[0]!r}"[:80], where="[tokenizer]",
                rule=f"is not among the {len(self.pieces):,} {self.kind} of the text the vocabulary was made from",
                nearest='kind = "bpe"',
            ) from None  # fmt: skip
        return encoding_of(ids, np.array([len(piece.encode("utf-8")) for piece in self.pieces], dtype=np.int64))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        return "".join(self.pieces[token] for token in ids)

    def token_text(self, token: int) -> str:
        """Return the piece."""
        return self.pieces[token]

    def saved(self) -> bytes | None:
        """Return None: a word-level tokenizer.json would not keep white space."""
        return None


def characters(training_text: str) -> Pieces:
    """Return the tokenizer whose tokens are the characters of the text.

    >>> characters("selva oscura").vocabulary_size
    10
    """
    return Pieces("characters", "characters", tuple(sorted(set(training_text))))


def words(training_text: str) -> Pieces:
    """Return the tokenizer whose tokens are the words of the text, each with the space before it.

    >>> tokenizer = words("nel mezzo del cammin")
    >>> [tokenizer.token_text(token) for token in tokenizer.encode("del mezzo").ids]
    Traceback (most recent call last):
        ...
    tokenwire.errors.InputError: [tokenizer] word 'del': is not among the 4 words of the text the vocabulary was made from; nearest that works: kind = "bpe"
    """
    return Pieces("words", "words", tuple(sorted(set(_WORD.findall(training_text)))))


_CUTS: dict[str, Callable[[str], Iterable[str]]] = {"characters": list, "words": _WORD.findall}
