"""What every tokenizer offers, and what encoding gives: ids, each with its span of bytes in the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Encoding:
    """Tokens of a text: ``ids`` int32[n], and token i is bytes ``starts[i]`` to ``ends[i]`` (int64[n]) of its UTF-8."""

    ids: Ids
    starts: Offsets
    ends: Offsets

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.ids)


class Tokenizer(Protocol):
    """Text to ids and back. Ids lie in ``range(vocabulary_size)``."""

    @property
    def name(self) -> str:
        """Return what people call it."""

    @property
    def kind(self) -> str:
        """Return its kind, a name in ``kinds.KINDS``."""

    @property
    def vocabulary_size(self) -> int:
        """Return one more than the largest id: the rows that an embedding needs."""

    @property
    def lossless(self) -> bool:
        """Return whether ``decode`` gives back every text exactly (else only the spans do)."""

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; bytes that are not whole characters become U+FFFD."""

    def token_text(self, token: int) -> str:
        """Return a token as its vocabulary writes it."""

    def saved(self) -> bytes | None:
        """Return the tokenizer as the bytes of a tokenizer.json, or None where that format cannot hold it."""


def encoding_of(ids: Sequence[int] | Ids, lengths: npt.NDArray[np.int64]) -> Encoding:
    """Return the encoding of tokens that lie side by side, from the byte length of each vocabulary entry.

    >>> encoding_of([1, 0, 1], np.array([1, 3])).starts.tolist()
    [0, 3, 4]
    """
    array = np.asarray(ids, dtype=np.int32)
    ends = np.cumsum(lengths[array], dtype=np.int64)
    return Encoding(array, ends - lengths[array], ends)


def encoding_of_spans(text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> Encoding:
    """Return the encoding of tokens whose spans are known in characters.

    >>> encoding_of_spans("aè", [0, 1, 2], [(0, 1), (1, 2), (1, 2)]).ends.tolist()
    [1, 2, 3]
    """
    codepoints = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    widths = 1 + (codepoints > 0x7F) + (codepoints > 0x7FF) + (codepoints > 0xFFFF)
    to_byte = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
    pairs = to_byte[np.asarray(spans, dtype=np.int64).reshape(-1, 2)]
    return encoding_of_byte_spans(ids, pairs[:, 0], pairs[:, 1])


def encoding_of_byte_spans(ids: Sequence[int], starts: Offsets, ends: Offsets) -> Encoding:
    """Return the encoding of tokens whose spans are known in bytes.

    Tokens that are single bytes of one character (byte fallback) come with the same start, and all of them with its
    whole span or all but the last with an empty one; each then gets its own byte.

    >>> encoding_of_byte_spans([7, 8, 9], np.array([0, 0, 0]), np.array([0, 0, 3])).starts.tolist()
    [0, 1, 2]
    """
    # Spans never run backwards, whatever a tokenizer's rules made of the text.
    starts = np.maximum.accumulate(starts) if len(starts) else starts
    ends = np.maximum(ends, starts)
    first = np.flatnonzero(np.diff(starts, prepend=-1))
    sizes = np.diff(np.append(first, len(starts)))
    for low, size in zip(first[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        if ends[low : low + size].max() - starts[low] == size:
            starts[low : low + size] += np.arange(size)
            ends[low : low + size] = starts[low : low + size] + 1
    return Encoding(np.asarray(ids, dtype=np.int32), starts.astype(np.int64), ends.astype(np.int64))
