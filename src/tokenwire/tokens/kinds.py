"""Which tokenizers there are, by the ``kind`` of a journey file."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from tokenwire.errors import InputError, unknown
from tokenwire.files import read_limited
from tokenwire.tokens import plain, ranks, trained
from tokenwire.tokens.config import TokenizerConfig
from tokenwire.tokens.encoding import Tokenizer

LIMIT = 2**28
"""Bytes of the largest tokenizer file that is read."""

Builder = Callable[[TokenizerConfig, str], Tokenizer]


def _trained(kind: str) -> Builder:
    return lambda config, text: trained.train(kind, text, config.vocab_size)


def _named(kind: str) -> Builder:
    return lambda config, text: ranks.named(kind)


def _file(config: TokenizerConfig, text: str) -> Tokenizer:
    if config.file is None:
        raise InputError('kind = "file"', where="[tokenizer]", rule="needs file = a path", nearest='file = "tokenizer.json"')
    data = read_limited(config.file, limit=LIMIT, what="tokenizer")
    return read_tokenizer(data, Path(config.file).name, f"tokenizer {config.file!r}", config.pattern)


KINDS: dict[str, Builder] = {
    "bytes": lambda config, text: plain.Bytes(),
    "characters": lambda config, text: plain.characters(text),
    "words": lambda config, text: plain.words(text),
    **{kind: _trained(kind) for kind in ("bpe", "wordpiece", "unigram")},
    **{kind: _named(kind) for kind in ranks.VOCABULARIES},
    "file": _file,
}
"""Builders by kind: a configuration and the training text to a tokenizer."""

_SYNONYMS = {"cl100k_base": "cl100k", "o200k_base": "o200k"}


def build_tokenizer(config: TokenizerConfig, training_text: str) -> Tokenizer:
    """Return the tokenizer of a configuration, trained on the text where its kind is trained.

    Kinds of other packages come in by the entry-point group ``tokenwire.tokenizers``. Raises ``InputError`` for an
    unknown kind, a file that is none, a vocabulary too small.

    >>> build_tokenizer(TokenizerConfig(kind="bytes"), "").encode("nel mezzo").ids.tolist()[:3]
    [110, 101, 108]
    """
    kind = _SYNONYMS.get(config.kind, config.kind)
    builder = KINDS.get(kind) or _from_entry_points(kind)
    if builder is None:
        raise unknown("kind", config.kind, KINDS, where="[tokenizer]")
    return builder(config, training_text)


def read_tokenizer(data: bytes, name: str, where: str, pattern: str | None = None) -> Tokenizer:
    """Return the tokenizer of a file's bytes, told apart by what they are: JSON, rank lines, or a binary model."""
    from tokenwire.tokens.huggingface import read_tokenizer_json
    from tokenwire.tokens.sentencepiece import read_sentencepiece

    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        raise InputError(where, rule="is empty")
    if head.startswith(b"{"):
        return read_tokenizer_json(data, name, where)
    first = head.split(b"\n", 1)[0].split()
    if len(first) == 2 and first[1].isdigit():
        return ranks.read_ranks(data, name, where, pattern)
    return read_sentencepiece(data, name, where)


def _from_entry_points(kind: str) -> Builder | None:
    for entry in entry_points(group="tokenwire.tokenizers", name=kind):
        builder: Builder = entry.load()
        return builder
    return None
