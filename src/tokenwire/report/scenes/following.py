"""The walk that follows any token of a text: the verses around it are those on stage."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tokenwire.report.scenes.walk import OPENING, Walk

if TYPE_CHECKING:
    from tokenwire.journey import Journey


def following(journey: Journey, token: int | None, verse: str | None = None) -> Walk:
    """Return the walk that follows token ``token`` of the whole text, on the verses of a place where the token is in them.

    Raises ``InputError`` for a token or place that is not there.

    >>> from tokenwire.journey import Journey
    >>> walk = following(Journey.read(None), 700)
    >>> walk.followed, walk.shown.name
    (700, 'Inferno I 56-58')
    """
    stroll = Walk(journey, verse=verse)
    if token is None:
        return stroll
    journey.placement(token)
    if token not in stroll.tokens_shown:
        stroll = Walk(journey, verse=_around(journey, token))
    shown = stroll.tokens_shown
    # The line end after the last verse is in no verse: the token before it is followed.
    return Walk(journey, verse=stroll.verse, token=min(max(token, shown.start), shown.stop - 1) - shown.start)


def _around(journey: Journey, token: int) -> str:
    text = journey.text()
    byte = int(journey.encoding().starts[token])
    character = len(text.data[:byte].decode("utf-8", "ignore"))
    at = max(bisect_right([verse.start for verse in text.verses], character) - 1, 0)
    canto = text.verses[at].canto
    last = at
    while last + 1 < len(text.verses) and text.verses[last + 1].canto == canto and last - at < OPENING - 1:
        last += 1
    first = at
    while first > 0 and text.verses[first - 1].canto == canto and last - first < OPENING - 1:
        first -= 1
    return f"{canto} {text.verses[first].number}-{text.verses[last].number}".strip()
