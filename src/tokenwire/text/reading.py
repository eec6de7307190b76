"""Reading a text: the built-in canto, a file, or standard input."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

from tokenwire.errors import InputError
from tokenwire.files import read_limited
from tokenwire.text.config import TextConfig
from tokenwire.text.decoding import decoded
from tokenwire.text.markup import parsed
from tokenwire.text.places import select
from tokenwire.text.text import Text

LIMIT = 2**30
"""Bytes of the largest text that is read."""

BUILT_IN = {"inferno-1": "Inferno, canto I"}
"""Texts that ship with the package, by source name."""


def read_text(config: TextConfig | None = None) -> Text:
    """Return the text of a ``TextConfig`` (None: the built-in canto).

    Raises ``InputError`` for a missing file, an empty text, another encoding, or a place that is not there.

    >>> text = read_text()
    >>> len(text.verses), text.verse_text(text.verses[0])
    (136, 'Nel mezzo del cammin di nostra vita')
    """
    config = config or TextConfig()
    what = f"text {config.source!r}"
    if config.source in BUILT_IN and not Path(config.source).exists():
        name = BUILT_IN[config.source]
        data = (resources.files("tokenwire.text") / "data" / f"{config.source}.txt").read_bytes()
        content = data.decode("utf-8")
    else:
        name = "standard input" if config.source == "-" else Path(config.source).name
        data = _read(config.source, what)
        content = decoded(data, config.encoding, what=what)
    if not content.strip():
        raise InputError(what, rule="is empty: there is nothing to train on")
    if "\x00" in content[:4096]:
        raise InputError(
            what, rule=f"holds a NUL character at offset {content.index(chr(0)):,}: it is not text",
            nearest="--encoding utf-16",
        )  # fmt: skip
    body, verses, documents = parsed(content)
    if not verses:
        raise InputError(what, rule="has headings but no verses")
    text = Text(
        name=name, content=body, verses=verses, documents=documents, encoding=config.encoding, source=config.source,
        source_bytes=len(data),
    )  # fmt: skip
    return text if config.verse is None else replace(select(text, config.verse), byte_offset=0)


def _read(source: str, what: str) -> bytes:
    try:
        return read_limited(source, limit=LIMIT, what="text")
    except InputError as error:
        if error.rule == "no such file":
            raise InputError(what, rule="no such file", nearest=f"the built-in {', '.join(BUILT_IN)}, or a path") from None
        raise
