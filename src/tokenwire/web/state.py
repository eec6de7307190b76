"""What a page shows, as its address says it: the selection, the journey's overrides, the fields of the pages.

Everything is text until a page reads it; sizes are bounded here, meaning is checked where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from urllib.parse import parse_qsl, urlencode

from tokenwire.errors import InputError, unknown

LONGEST = 8_000
"""Characters of an address's query."""
LONGEST_VALUE = 2_000
MOST_VALUES = 32
LARGEST_NUMBER = 10**12

SELECTION = ("token", "tensor", "rank", "op", "link", "packet")
"""What can be selected, in the order of the walk."""


@dataclass(frozen=True)
class State:
    """One address.

    ``scale`` names a built-in journey ("" is the one that the explorer was started with), ``set`` are its overrides. ``token``
    counts in the whole text, ``tensor`` is a name, ``rank`` a rank, ``op`` a row of the step, ``link`` a link of the fabric,
    ``packet`` a packet of the token's message. The rest belongs to single pages: ``verse`` a place in the text, ``text`` what
    the visitor typed, ``beside`` tokenizers to compare with, ``find`` an id or a piece of text, ``group`` a process group,
    ``call``, ``algorithm``, ``ranks`` and ``bytes`` a collective of the visitor's own, ``fail`` devices that have failed,
    ``only`` a kind of traffic, ``exposed`` and ``mfu`` shares of a step, ``other`` and ``with_set`` the second journey.
    """

    scale: str = ""
    set: tuple[str, ...] = ()
    token: int | None = None
    tensor: str = ""
    rank: int | None = None
    op: int | None = None
    link: int | None = None
    packet: int | None = None
    verse: str = ""
    text: str = ""
    beside: tuple[str, ...] = ()
    find: str = ""
    group: str = ""
    call: str = ""
    algorithm: str = ""
    ranks: str = ""
    bytes: str = ""
    fail: tuple[str, ...] = ()
    only: str = ""
    exposed: str = ""
    mfu: str = ""
    other: str = ""
    with_set: tuple[str, ...] = ()
    zoom: str = ""

    @property
    def query(self) -> str:
        """Return the query of the address, with its question mark; "" where nothing is said.

        >>> State(token=7, set=("plan.tp=4",)).query
        '?set=plan.tp%3D4&token=7'
        """
        pairs: list[tuple[str, str]] = []
        for name in _KINDS:
            value = getattr(self, name)
            if isinstance(value, tuple):
                pairs += [(name, one) for one in value]
            elif value not in (None, ""):
                pairs.append((name, str(value)))
        return f"?{urlencode(pairs)}" if pairs else ""

    def href(self, page: str, **changes: object) -> str:
        """Return the address of a page, with what is different there.

        >>> State(token=7).href("packet", rank=3)
        '/packet?token=7&rank=3'
        """
        return f"/{page}{replace(self, **changes).query}"  # type: ignore[arg-type]

    def value(self, key: str) -> str:
        """Return the value of a field: one of these names, or ``set:plan.tp`` for what an override says ("" if none does)."""
        if key.startswith("set:"):
            return dict(part.split("=", 1) for part in self.set if "=" in part).get(key[4:], "")
        value = getattr(self, key)
        return ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)

    def changed(self, key: str, value: object) -> State:
        """Return the state with a field's new value, as a visitor typed it. Raises ``InputError`` for what cannot be one.

        >>> State().changed("set:plan.tp", "4").changed("token", " 7 ").query
        '?set=plan.tp%3D4&token=7'
        """
        if key.startswith("set:"):
            return replace(self, set=_overridden(self.set, key[4:], "" if value is None else str(value).strip()))
        kind = _KINDS.get(key)
        if kind is None:
            raise unknown("field", key[:40], _KINDS)
        if kind is tuple:
            given = value if isinstance(value, (list, tuple)) else str(value or "").split(",")
            return replace(self, **{key: _several(key, (str(one).strip() for one in given))})  # type: ignore[arg-type]
        text = "" if value is None else str(value)
        return replace(self, **{key: _number(key, text) if kind is int else _short(key, text)})  # type: ignore[arg-type]


_KINDS: dict[str, type] = {
    field.name: int if "int" in str(field.type) else tuple if "tuple" in str(field.type) else str for field in fields(State)
}


def read(query: str) -> State:
    """Return the state that a query says. Raises ``InputError`` for one that is too long, or has unknown or wrong parts.

    >>> read("?token=7&set=plan.tp%3D4") == State(token=7, set=("plan.tp=4",))
    True
    """
    if len(query) > LONGEST:
        raise InputError("the address", rule=f"has {len(query):,} characters: at most {LONGEST:,} are read")
    given: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=False, max_num_fields=4 * MOST_VALUES)
    except ValueError:
        raise InputError("the address", rule=f"has more than {4 * MOST_VALUES} parts") from None
    for name, value in pairs:
        if name not in _KINDS:
            raise unknown("part of the address", name[:40], _KINDS)
        given.setdefault(name, []).append(value)
    read: dict[str, object] = {}
    for name, values in given.items():
        kind = _KINDS[name]
        if kind is tuple:
            read[name] = _several(name, values)
        else:
            read[name] = _number(name, values[-1]) if kind is int else _short(name, values[-1])
    return State(**read)  # type: ignore[arg-type]


def _number(name: str, text: str) -> int | None:
    plain = text.strip().replace(",", "").removesuffix(".0")
    if not plain:
        return None
    if not (plain.isascii() and plain.isdigit()) or len(plain) > 12:
        raise InputError(f"{name} {text[:40]!r}", rule="must be a whole number from 0", nearest="0")
    return int(plain)


def _short(name: str, text: str) -> str:
    if len(text) > LONGEST_VALUE:
        raise InputError(name, rule=f"has {len(text):,} characters: at most {LONGEST_VALUE:,} are read")
    return text


def _several(name: str, values: Iterable[str]) -> tuple[str, ...]:
    out = tuple(dict.fromkeys(_short(name, value) for value in values if value))
    if len(out) > MOST_VALUES:
        raise InputError(name, rule=f"is said {len(out)} times: at most {MOST_VALUES} are read")
    return out


def _overridden(before: Sequence[str], key: str, value: str) -> tuple[str, ...]:
    # An override stays where it was first said: later ones may lean on it.
    out = [part for part in before if part.partition("=")[0].strip() != key]
    at = next((i for i, part in enumerate(before) if part.partition("=")[0].strip() == key), len(out))
    if value:
        out.insert(min(at, len(out)), _short(key, f"{key}={value}"))
    return _several("set", out)
