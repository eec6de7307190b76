"""SentencePiece models from disk, run by ``sentencepiece``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenwire.errors import InputError, MissingExtra
from tokenwire.tokens.encoding import Encoding, encoding_of_byte_spans

# The first field of a ModelProto, its pieces, as protobuf writes it: number 1, a message (sentencepiece_model.proto).
_PIECES = b"\n"


@dataclass(frozen=True)
class SentencePiece:
    """A SentencePiece model. Most fold white space, so decoding loses line ends; the spans keep every place."""

    name: str
    model: Any
    kind: str = "file"
    lossless: bool = False

    @property
    def vocabulary_size(self) -> int:
        """Return the number of pieces."""
        return int(self.model.get_piece_size())

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text."""
        pieces = self.model.encode(text, return_type="proto").pieces
        spans = np.array([(piece.begin, piece.end) for piece in pieces], dtype=np.int64).reshape(-1, 2)
        return encoding_of_byte_spans([piece.id for piece in pieces], spans[:, 0].copy(), spans[:, 1].copy())

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        return str(self.model.decode(list(map(int, ids))))

    def token_text(self, token: int) -> str:
        """Return the piece: ``▁`` stands for a space."""
        return str(self.model.id_to_piece(token))

    def saved(self) -> bytes | None:
        """Return None: a SentencePiece model is not a tokenizer.json."""
        return None


def read_sentencepiece(data: bytes, name: str, where: str) -> SentencePiece:
    """Return the tokenizer of a SentencePiece model. Raises ``InputError`` where it is not one."""
    none = InputError(where, rule="is neither a tokenizer.json nor a tiktoken rank file nor a SentencePiece model")
    if not data.startswith(_PIECES):
        raise none
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtra(f"the SentencePiece model {name}", "vocabularies") from None
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(data)
        pieces = processor.get_piece_size()
    except (RuntimeError, ValueError, SystemError):
        pieces = 0
    if not pieces:
        raise none
    return SentencePiece(name, processor)
