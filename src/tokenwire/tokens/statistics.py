"""What tokenization did to a text, in the figures that later rooms multiply by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenwire.text import Text, words
from tokenwire.tokens.encoding import Encoding, Tokenizer


@dataclass(frozen=True)
class TokenStatistics:
    """Figures of one tokenization.

    ``fertility`` is tokens a word, ``bytes_per_token`` bytes of UTF-8 a token, ``used`` how many ids of the vocabulary
    occur, ``entropy_bits`` the entropy of one token drawn from the text, ``index_bytes`` the bytes of a stored id.
    """

    tokenizer: str
    kind: str
    tokens: int
    vocabulary_size: int
    bytes: int
    words: int
    fertility: float
    bytes_per_token: float
    used: int
    entropy_bits: float
    index_bytes: int
    index_dtype: str


def index_dtype(vocabulary_size: int) -> str:
    """Return the type that token ids are stored in on disk.

    Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py, DType.optimal_dtype: uint16 below 65,500 entries.

    >>> index_dtype(50257), index_dtype(128256)
    ('uint16', 'int32')
    """
    return "uint16" if vocabulary_size < 65_500 else "int32"


def statistics(text: Text, tokenizer: Tokenizer, encoding: Encoding) -> TokenStatistics:
    """Return the figures of a text's tokens."""
    count, size, word_count = len(encoding), len(text.data), len(words(text.content))
    times = np.bincount(encoding.ids) if count else np.zeros(1, dtype=np.int64)
    shares = times[times > 0] / max(count, 1)
    dtype = index_dtype(tokenizer.vocabulary_size)
    return TokenStatistics(
        tokenizer=tokenizer.name,
        kind=tokenizer.kind,
        tokens=count,
        vocabulary_size=tokenizer.vocabulary_size,
        bytes=size,
        words=word_count,
        fertility=count / word_count if word_count else 0.0,
        bytes_per_token=size / count if count else 0.0,
        used=int(np.count_nonzero(times)),
        entropy_bits=float(-(shares * np.log2(shares)).sum()) if len(shares) else 0.0,
        index_bytes=np.dtype(dtype).itemsize,
        index_dtype=dtype,
    )
