"""Reading the fields of a configuration that others wrote: each with its type, its limits and one clear error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.errors import InputError

LARGEST = 2**40
"""The largest size that is believed."""
MOST_LAYERS = 100_000
"""The largest number of layers that is believed."""


class Fields:
    """The keys of a Hugging Face ``config.json`` (or of a preset), read by name; several names mean the first that is there.

    A key that is missing or null takes the default; a default of None means that the key must be there.

    >>> Fields({"n_embd": 768}, "config.json").size("hidden_size", "n_embd")
    768
    >>> Fields({"n_embd": -1}, "config.json").size("n_embd")
    Traceback (most recent call last):
        ...
    tokenwire.errors.InputError: config.json n_embd = -1: must be a whole number from 1 to 1,099,511,627,776
    """

    def __init__(self, values: Mapping[str, Any], where: str = "", of: Fields | None = None) -> None:
        self._values, self.where = values, where
        self._read: set[str] = of._read if of else set()
        self._sections: list[tuple[str, Fields]] = of._sections if of else []

    def having(self, values: Mapping[str, Any]) -> Fields:
        """Return the fields with some of other values; what is read of them counts as read of these."""
        return Fields({**self._values, **values}, self.where, self)

    def value(self, name: str) -> Any:
        """Return a value as it stands, of whatever type, None where the key is missing."""
        self._read.add(name)
        return self._values.get(name)

    def unread(self) -> dict[str, Any]:
        """Return the keys that nothing has asked for, with their values."""
        own = {name: value for name, value in self._values.items() if name not in self._read}
        return own | {
            f"{name}.{key}": value for name, part in self._sections for key, value in part.unread().items()
        }

    def has(self, *names: str) -> bool:
        """Return whether one of the keys is there and not null."""
        return self._find(names)[1] is not None

    def given(self, name: str) -> bool:
        """Return whether the key is there, even as null."""
        self._read.add(name)
        return name in self._values

    def size(self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """Return a whole number within limits."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise InputError(
                    f"{names[0]} is missing", where=self.where, rule="this family has no default for it"
                )
            return default
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name, value, f"must be a whole number from {least} to {most:,}")
        return value

    def optional_size(self, *names: str, least: int = 1) -> int | None:
        """Return a whole number, or None where the key is missing or null."""
        return self.size(*names, least=least) if self.has(*names) else None

    def flag(self, *names: str, default: bool) -> bool:
        """Return true or false."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "must be true or false")
        return value

    def number(self, *names: str, default: float) -> float:
        """Return a positive finite number."""
        name, value = self._find(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
            raise self.wrong(name, value, "must be a positive number")
        return float(value)

    def word(self, *names: str, default: str) -> str:
        """Return a short string."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 200:
            raise self.wrong(name, value, "must be a short string")
        return value

    def words(self, *names: str) -> list[str] | None:
        """Return a list of short strings, or None."""
        return self._list(names, lambda v: isinstance(v, str) and len(v) <= 64, "a list of short strings")

    def sizes(self, *names: str) -> list[int] | None:
        """Return a list of whole numbers of at least 0, or None."""
        return self._list(
            names,
            lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= LARGEST,
            "a list of whole numbers",
        )

    def sizes_by_layer(self, name: str, layers: int, default: int) -> list[int]:
        """Return a size for each of ``layers`` layers: a list of as many, or one for all."""
        if not isinstance(self.value(name), list):
            return [self.size(name, default=default)] * layers
        found = self.sizes(name) or []
        if len(found) != layers or 0 in found:
            raise self.wrong(
                name, found, f"must be one size, or one of at least 1 for each of the {layers} layers"
            )
        return found

    def section(self, *names: str) -> Fields:
        """Return the fields of a nested mapping (empty where it is missing)."""
        name, value = self._find(names)
        if value is None:
            return Fields({}, self.where)
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "must be a mapping")
        part = Fields(value, f"{self.where} {name}.".strip())
        self._sections.append((name, part))
        return part

    def layers(self, *names: str, default: int | None = None) -> int:
        """Return the number of layers."""
        return self.size(*(names or ("num_hidden_layers",)), default=default, most=MOST_LAYERS)

    def wrong(self, name: str, value: Any, rule: str, nearest: str = "") -> InputError:
        """Return the error for a value that breaks a rule."""
        shown = (
            repr(value)
            if not isinstance(value, (dict, list))
            else f"a {'list' if isinstance(value, list) else 'mapping'}"
        )
        return InputError(f"{name} = {shown[:60]}", where=self.where, rule=rule, nearest=nearest)

    def _find(self, names: Sequence[str]) -> tuple[str, Any]:
        # All names count as read: they are one field.
        self._read.update(names)
        for name in names:
            if self._values.get(name) is not None:
                return name, self._values[name]
        return names[0], None

    def _list(self, names: Sequence[str], right: Any, kind: str) -> list[Any] | None:
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MOST_LAYERS or not all(right(item) for item in value):
            raise self.wrong(name, value, f"must be {kind}")
        return list(value)
