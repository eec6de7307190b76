"""Tokens: text to ids and back, packed into sequences and batches.

In: a ``TokenizerConfig`` and the text to train on. Out: a ``Tokenizer`` (bytes, characters, words; BPE, WordPiece,
Unigram trained on the text; tokenizer.json, tiktoken or SentencePiece files; cl100k and o200k), and from it an
``Encoding``: ids with the span of each token in the text, in bytes of UTF-8. ``statistics`` says what tokenization did,
``pack`` cuts the tokens into sequences that know their documents, ``batches`` deals sequences to replicas and
micro-batches, ``bytes_read`` is what storage must deliver a step.
"""

from tokenwire.tokens.config import TokenizerConfig
from tokenwire.tokens.encoding import Encoding, Tokenizer
from tokenwire.tokens.kinds import build_tokenizer
from tokenwire.tokens.packing import Packing, batches, bytes_read, pack
from tokenwire.tokens.statistics import TokenStatistics, index_dtype, statistics

__all__ = [
    "Encoding",
    "Packing",
    "TokenStatistics",
    "Tokenizer",
    "TokenizerConfig",
    "batches",
    "build_tokenizer",
    "bytes_read",
    "index_dtype",
    "pack",
    "statistics",
]
