"""Tokenizers trained on the text by Hugging Face ``tokenizers``: BPE, WordPiece and Unigram, all over bytes.

All three see the text as GPT-2 does: split into words with the space before them, each byte of UTF-8 written as one
printable character (``ByteLevel``). So every text can be encoded, nothing is lost, and the byte length of a token is the
number of characters of its name. Training is deterministic: the same text gives the same tokenizer.json.

A word of more than ``LONGEST`` bytes (a key, a row of one letter) is cut, in training and in encoding alike, for both take a
time that grows with the square of a word or worse; the cut is written in tokenizer.json, so others cut where we do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.tokens.encoding import Encoding, encoding_of

CONTINUES = "##"
LONGEST = 512
"""Bytes of the longest word that is seen whole. Han characters without a stop between them are 170 to a word."""
UNKNOWN = {"wordpiece": "[UNK]", "unigram": "<unk>"}


@dataclass(frozen=True)
class ByteLevel:
    """A tokenizer whose tokens are byte strings written with GPT-2's printable characters."""

    name: str
    kind: str
    model: Any
    lossless: bool = True

    @property
    def vocabulary_size(self) -> int:
        """Return the number of ids."""
        return int(self.model.get_vocab_size())

    @cached_property
    def _names(self) -> list[str]:
        vocabulary = self.model.get_vocab()
        names = [""] * (max(vocabulary.values(), default=-1) + 1)
        for name, number in vocabulary.items():
            names[number] = name
        return names

    @cached_property
    def _lengths(self) -> npt.NDArray[np.int64]:
        marked = self.kind == "wordpiece"
        return np.array([len(_bare(name) if marked else name) for name in self._names], dtype=np.int64)

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text."""
        return encoding_of(self.model.encode(text, add_special_tokens=False).ids, self._lengths)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        from tokenizers.decoders import ByteLevel as Decoder

        names = [self._names[token] for token in ids]
        if self.kind == "wordpiece":
            names = [_bare(name) for name in names]
        return str(Decoder().decode(names)) if names else ""

    def token_text(self, token: int) -> str:
        """Return the token's name: ``Ġ`` stands for a space, ``Ċ`` for a line end."""
        return self._names[token]

    def saved(self) -> bytes | None:
        """Return the bytes of its tokenizer.json."""
        return str(self.model.to_str(pretty=True)).encode("utf-8")


def _bare(name: str) -> str:
    return name[len(CONTINUES) :] if name.startswith(CONTINUES) and len(name) > len(CONTINUES) else name


def train(kind: str, training_text: str, vocab_size: int) -> ByteLevel:
    """Return a tokenizer trained on the text to at most ``vocab_size`` tokens; a short text may give fewer.

    Raises ``InputError`` for a vocabulary smaller than the bytes need.
    """
    least = {"bpe": 256, "wordpiece": 513, "unigram": 257}[kind]
    if vocab_size < least:
        raise InputError(
            f"vocab_size = {vocab_size:,}", where="[tokenizer]",
            rule=f"a {kind} vocabulary over bytes has at least {least} entries", nearest=f"vocab_size = {least}",
        )  # fmt: skip
    model = _TRAINERS[kind](training_text, vocab_size)
    size = int(model.get_vocab_size())
    return ByteLevel(f"{kind} {size:,}", kind, model)


def _blank(model: Any) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Split(Regex(f".{{{LONGEST}}}"), "isolated")]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _bpe(text: str, vocab_size: int) -> Any:
    from tokenizers import models, trainers

    tokenizer = _blank(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=_alphabet(), show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def _wordpiece(text: str, vocab_size: int) -> Any:
    from tokenizers import Tokenizer, models, trainers

    # A byte inside a word is "##x". All 256 are put first, as if special: so nothing is unknown, and their numbers do not
    # depend on the order in which the trainer meets the words (it keeps them in a hash table).
    inside = [CONTINUES + letter for letter in _alphabet()]
    tokenizer = _blank(models.WordPiece(unk_token=UNKNOWN["wordpiece"]))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, initial_alphabet=_alphabet(), special_tokens=[UNKNOWN["wordpiece"], *inside],
        continuing_subword_prefix=CONTINUES, show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([text], trainer)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = [token for token in saved["added_tokens"] if token["content"] == UNKNOWN["wordpiece"]]
    saved["model"]["max_input_chars_per_word"] = 2**31
    return Tokenizer.from_str(json.dumps(saved))


def _unigram(text: str, vocab_size: int) -> Any:
    from tokenizers import Tokenizer, models, trainers

    tokenizer = _blank(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, initial_alphabet=_alphabet(), special_tokens=[UNKNOWN["unigram"]],
        unk_token=UNKNOWN["unigram"], show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([text], trainer)
    saved = json.loads(tokenizer.to_str())
    saved["model"]["vocab"] = _settled(saved["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(saved))


def _settled(vocabulary: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the pieces in an order, and with scores, that do not depend on the trainer's hash tables.

    The pieces themselves are the same in every run. The last digits of their scores are not (sums in another order), nor
    are those of the bytes that did not survive the training: they are put back just above the lowest score, 0.0001 apart,
    in the order of a hash table; here all of them get the lowest.
    """
    special, pieces = vocabulary[0], [(name, round(score, 6)) for name, score in vocabulary[1:]]
    lowest = min(score for _, score in pieces)
    put_back = lowest + 0.0001 * 256
    settled = [(name, lowest if len(name) == 1 and score <= put_back else score) for name, score in pieces]
    return [special, *sorted(settled, key=lambda piece: (-piece[1], piece[0]))]


_TRAINERS: dict[str, Callable[[str, int], Any]] = {"bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram}
