"""The ``[tokenizer]`` section of a journey file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from tokenwire.config import Section

Kind = str
"""A name in ``kinds.KINDS``."""


class TokenizerConfig(Section):
    """Which tokenizer: a ``kind``, the ``vocab_size`` to train to, or a ``file`` (then ``kind`` is ``file``).

    ``name`` is only for display. ``pattern`` splits text before a tiktoken rank file's merges; None takes the one that
    belongs to the file's name, else that of cl100k.
    """

    kind: Kind = "bpe"
    vocab_size: Annotated[int, Field(ge=1, le=2**22)] = 1000
    file: str | None = None
    name: str | None = None
    pattern: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _file_says_kind(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("file") is not None:
            if values.get("kind") not in (None, "file"):
                # A file laid over the built-in walk's kind (``--set tokenizer.file=...``) means the file.
                values = {**values, "kind": "file"}
            values.setdefault("kind", "file")
        return values
