"""Places in a text: ``Inferno``, ``Inferno III``, ``Inferno III 1-9``, ``Paradiso 33 142``, or plain ``1-9``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tokenwire.errors import InputError, closest
from tokenwire.text.text import Text, Verse

_PLACE = re.compile(
    r"^\s*(?:(?P<cantica>[^\W\d_]{2,}?)(?:,|\s|$))?\s*(?:canto\s+)?"
    r"(?:(?P<roman>[IVXLC]+)(?=\s|,|:|$))?[\s,:]*(?P<numbers>\d+(?:\s*[-–]\s*\d+)?(?:[\s,:]+\d+(?:\s*[-–]\s*\d+)?)?)?\s*$",
    re.IGNORECASE,
)
_EXAMPLE = '"Inferno III 1-9"'


def opening(text: Text, verses: int) -> Text:
    """Return the first ``verses`` verses of a text."""
    return _part(text, text.verses[:verses], text.name)


def select(text: Text, place: str) -> Text:
    """Return a part of the text: a cantica, a canto, or a range of verses (first and last included).

    Canti are counted in Roman or, after the cantica, Arabic numerals; verses from 1 in each canto. Raises
    ``InputError`` where the text does not have it.
    """
    cantica, canto, span = _read(place)
    verses = _in_canto(text, place, cantica, canto)
    if span is None:
        return _part(text, verses, place)
    cantos = {verse.canto for verse in verses}
    if len(cantos) > 1:
        raise _error(place, f"verses are counted in each canto, and this names {len(cantos)} cantos", _EXAMPLE)
    first, last = span
    count = verses[-1].number
    if not 1 <= first <= last <= count:
        fits = f"{min(max(min(first, last), 1), count)}-{min(max(first, last, 1), count)}"
        named = f"{next(iter(cantos))} {fits}".strip()
        raise _error(place, f"{next(iter(cantos)) or text.name} has verses 1 to {count:,}", f'"{named}"')
    return _part(text, [verse for verse in verses if first <= verse.number <= last], place)


def _read(place: str) -> tuple[str, str, tuple[int, int] | None]:
    match = _PLACE.match(place) if len(place) <= 100 else None
    if not match or not place.strip():
        raise _error(place[:100], "is not a place", _EXAMPLE)
    cantica, roman = (match["cantica"] or ""), (match["roman"] or "").upper()
    if cantica and not roman and re.fullmatch(r"[IVXLC]+", cantica, re.IGNORECASE):
        cantica, roman = "", cantica.upper()
    numbers = re.findall(r"\d+(?:\s*[-–]\s*\d+)?", match["numbers"] or "")
    if cantica and not roman and numbers:
        if re.search(r"[-–]", numbers[0]):
            raise _error(place, "needs a canto before its verses", f'"{cantica} I {numbers[0]}"')
        roman = _roman(int(numbers.pop(0)))
    if len(numbers) > 1:
        raise _error(place, "has one number too many", _EXAMPLE)
    if not numbers:
        return cantica.capitalize(), roman, None
    first, *rest = (int(number) for number in re.findall(r"\d+", numbers[0]))
    return cantica.capitalize(), roman, (first, rest[0] if rest else first)


def _in_canto(text: Text, place: str, cantica: str, canto: str) -> Sequence[Verse]:
    if not text.verses:
        raise _error(place, f"the text {text.name!r} has no verses", "")
    wanted = f"{cantica} {canto}".strip()
    if not wanted:
        return text.verses
    found = [verse for verse in text.verses if _is_in(verse.canto, cantica, canto)]
    if not found:
        known = list(dict.fromkeys(verse.canto for verse in text.verses if verse.canto))
        if not known:
            raise _error(place, f"the text {text.name!r} has no cantos, only verses 1 to {len(text.verses):,}", '"1-3"')
        cantiche = list(dict.fromkeys(name.split()[0] for name in known))
        listed = known if len(known) <= 3 else cantiche
        near = closest(wanted, known) or closest(cantica, cantiche) or known[0]
        raise _error(place, f"the text {text.name!r} has {', '.join(listed)}, not {wanted}", f'"{near}"')
    return found


def _is_in(name: str, cantica: str, canto: str) -> bool:
    have_cantica, _, have_canto = name.partition(" ")
    return (not cantica or have_cantica == cantica) and (not canto or have_canto == canto)


def _part(text: Text, verses: Sequence[Verse], name: str) -> Text:
    if not verses:
        return replace(text, name=name, content="", verses=(), documents=())
    start, end = verses[0].start, verses[-1].end
    moved = tuple(verse._replace(start=verse.start - start, end=verse.end - start) for verse in verses)
    documents = tuple((max(a, start) - start, min(b, end) - start) for a, b in text.documents if a < end and b > start)
    before = len(text.content[:start].encode("utf-8"))
    return replace(
        text, name=name, content=text.content[start:end], verses=moved, documents=documents,
        byte_offset=text.byte_offset + before,
    )  # fmt: skip


def _roman(number: int) -> str:
    if not 1 <= number <= 399:
        return str(number)
    out = ""
    for value, letters in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        count, number = divmod(number, value)
        out += letters * count
    return out


def _error(place: str, rule: str, nearest: str) -> InputError:
    return InputError(f"verse {place!r}", rule=rule, nearest=nearest)
