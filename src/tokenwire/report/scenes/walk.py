"""What a walk shows: a journey, others beside it, the verse on stage and the token to follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.report.terminal import visible

if TYPE_CHECKING:
    from tokenwire.journey import Journey
    from tokenwire.journey.placement import Placement
    from tokenwire.text import Text
    from tokenwire.tokens import Encoding

OPENING = 3
"""Verses shown where nothing was asked for: a terzina."""


@dataclass(frozen=True)
class Walk:
    """One walk. ``beside`` are journeys at other scales, by name; ``verse`` chooses what is shown of the text.

    ``token`` counts the tokens shown, from 0; None follows the first one that is a word.
    """

    journey: Journey
    beside: tuple[tuple[str, Journey], ...] = ()
    verse: str | None = None
    token: int | None = None

    @property
    def journeys(self) -> tuple[tuple[str, Journey], ...]:
        """Return the journeys shown side by side, the main one first."""
        return ((self.journey.model().architecture.name, self.journey), *self.beside)

    @cached_property
    def shown(self) -> Text:
        """Return the verses on stage: a part of the journey's text, with its place in it."""
        from tokenwire.text import opening, select

        text = self.journey.text()
        return select(text, self.verse) if self.verse is not None else opening(text, OPENING)

    @cached_property
    def tokens_shown(self) -> range:
        """Return which tokens of the text overlap the verses on stage."""
        import numpy as np

        encoding = self.journey.encoding()
        first, last = self.shown.byte_range
        start = int(np.searchsorted(encoding.ends, first, side="right"))
        stop = int(np.searchsorted(encoding.starts, last, side="left"))
        return range(start, stop)

    @cached_property
    def followed(self) -> int:
        """Return the token that is followed, as an index into the tokens of the whole text."""
        shown = self.tokens_shown
        if not shown:
            raise InputError("the verses shown", rule="hold no token")
        if self.token is None:
            return shown[min(1, len(shown) - 1)]
        if not 0 <= self.token < len(shown):
            raise InputError(
                f"--token {self.token}", rule=f"the verses shown have tokens 0 to {len(shown) - 1}",
                nearest=f"--token {min(max(self.token, 0), len(shown) - 1)}",
            )  # fmt: skip
        return shown[self.token]

    @cached_property
    def token_id(self) -> int:
        """Return the id of the token that is followed."""
        return int(self.journey.encoding().ids[self.followed])

    @cached_property
    def token_text(self) -> str:
        """Return the characters of the token that is followed (a lone byte shows as its hexadecimal value)."""
        return piece(self.journey.text().data, self.journey.encoding(), self.followed)

    @cached_property
    def placement(self) -> Placement:
        """Return where the followed token is worked on."""
        return self.journey.placement(self.followed)

    def notes(self) -> Iterator[str]:
        """Yield what a careful reader should know."""
        for name, journey in self.journeys:
            for note in journey.notes():
                yield f"{name}: {note}" if self.beside else note


def piece(text: bytes, encoding: Encoding, index: int) -> str:
    """Return the characters of a token of the text, white space made visible and broken characters as bytes."""
    data = text[int(encoding.starts[index]) : int(encoding.ends[index])]
    try:
        return visible(data.decode("utf-8"))
    except UnicodeDecodeError:
        return "".join(chr(b) if 0x21 <= b < 0x7F else f"<{b:02X}>" for b in data)
