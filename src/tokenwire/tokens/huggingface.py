"""Any tokenizer.json of Hugging Face ``tokenizers``, as it is: its own normaliser, splitter, model and special tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tokenwire.errors import InputError
from tokenwire.tokens.encoding import Encoding, encoding_of_spans


@dataclass(frozen=True)
class HuggingFace:
    """A tokenizer read from a tokenizer.json; special tokens are never added to a text."""

    name: str
    model: Any
    byte_level: bool
    kind: str = "file"

    @property
    def lossless(self) -> bool:
        """Return whether decoding gives every text back: byte-level without a normaliser."""
        return self.byte_level

    @cached_property
    def vocabulary_size(self) -> int:
        """Return one more than the largest id, added tokens included."""
        vocabulary = self.model.get_vocab(with_added_tokens=True)
        return max(vocabulary.values(), default=-1) + 1

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text."""
        encoded = self.model.encode(text, add_special_tokens=False)
        if self.byte_level:
            names = np.array([_bytes_of(name, self._added) for name in encoded.tokens], dtype=np.int64)
            if int(names.sum()) == len(text.encode("utf-8")):
                ends = np.cumsum(names)
                return Encoding(np.asarray(encoded.ids, dtype=np.int32), ends - names, ends)
        return encoding_of_spans(text, encoded.ids, encoded.offsets)

    @cached_property
    def _added(self) -> frozenset[str]:
        return frozenset(token.content for token in self.model.get_added_tokens_decoder().values())

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, special tokens written out."""
        return str(self.model.decode(list(map(int, ids)), skip_special_tokens=False))

    def token_text(self, token: int) -> str:
        """Return the token's name in the file."""
        return self.model.id_to_token(token) or f"<{token}>"

    def saved(self) -> bytes | None:
        """Return the bytes of its tokenizer.json."""
        return str(self.model.to_str(pretty=True)).encode("utf-8")


def _bytes_of(name: str, added: frozenset[str]) -> int:
    # An added token is written as it is; another has one character a byte.
    return len(name.encode("utf-8")) if name in added else len(name)


def read_tokenizer_json(data: bytes, name: str, where: str) -> HuggingFace:
    """Return the tokenizer of a tokenizer.json. Raises ``InputError`` where it is not one."""
    from tokenizers import Tokenizer

    try:
        model = Tokenizer.from_buffer(data)
        layout = json.loads(data)
    except BaseException as error:  # a panic of the library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        reason = " ".join(str(error).split())[:120]
        raise InputError(where, rule=f"is not a tokenizer.json ({reason})") from None
    # Truncation and padding settings of the file would cut or lengthen the text.
    model.no_truncation()
    model.no_padding()
    return HuggingFace(name, model, _is_byte_level(layout))


def _is_byte_level(layout: dict[str, Any]) -> bool:
    def kinds(part: Any) -> set[str]:
        if not isinstance(part, dict):
            return set()
        inner = part.get("pretokenizers") or part.get("decoders") or []
        prefix = {"prefix"} if part.get("type") == "ByteLevel" and part.get("add_prefix_space") else set()
        return {str(part.get("type"))} | prefix | {kind for one in inner for kind in kinds(one)}

    splits = kinds(layout.get("pre_tokenizer"))
    return "ByteLevel" in splits and "prefix" not in splits and layout.get("normalizer") is None
