"""The mark-up of the Commedia: ``# Inferno, canto I`` before each canto, one verse a line, stanzas apart.

A text without such headings is plain: each line that is not empty is a verse, and lines of white space part stanzas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokenwire.text.text import Verse

_HEADING = re.compile(r"^#[ \t]*([^\W\d_]+),?[ \t]+canto[ \t]+([IVXLC]+)[ \t]*$", re.IGNORECASE)


def parsed(raw: str) -> tuple[str, tuple[Verse, ...], tuple[tuple[int, int], ...]]:
    r"""Return content without headings, its verses, and the spans of its documents (cantos).

    >>> content, verses, documents = parsed("# Inferno, canto I\n\nNel mezzo\ndel cammin\n")
    >>> content, verses[1], documents
    ('Nel mezzo\ndel cammin\n', Verse(number=2, start=10, end=20, canto='Inferno I', stanza=1), ((0, 21),))
    """
    sections = list(_sections(raw))
    if len(sections) == 1 and not sections[0][0]:
        # A plain text is kept to the last character, so that a round trip gives back the file.
        return raw, tuple(_verses(raw, 0, "")), ((0, len(raw)),) if raw else ()
    content: list[str] = []
    verses: list[Verse] = []
    documents: list[tuple[int, int]] = []
    position = 0
    for canto, body in sections:
        part = body.strip("\n")
        if not part:
            continue
        if content:
            # An empty line between cantos; it belongs to the one before.
            content.append("\n")
            position += 1
            documents[-1] = (documents[-1][0], position)
        part += "\n"
        verses.extend(_verses(part, position, canto))
        documents.append((position, position + len(part)))
        content.append(part)
        position += len(part)
    return "".join(content), tuple(verses), tuple(documents)


def _sections(raw: str) -> Iterator[tuple[str, str]]:
    canto, start, position = "", 0, 0
    for line in raw.splitlines(keepends=True) if "#" in raw else ():
        heading = _HEADING.match(line.rstrip("\n")) if line.startswith("#") else None
        if heading:
            if raw[start:position].strip():
                yield canto, raw[start:position]
            canto = f"{heading.group(1).capitalize()} {heading.group(2).upper()}"
            start = position + len(line)
        position += len(line)
    yield canto, raw[start:]


def _verses(body: str, offset: int, canto: str) -> Iterator[Verse]:
    number, stanza, gap, position = 0, 0, True, offset
    for line in body.split("\n"):
        if line.strip():
            number += 1
            stanza += gap
            gap = False
            yield Verse(number, position, position + len(line), canto, stanza)
        else:
            gap = True
        position += len(line) + 1
