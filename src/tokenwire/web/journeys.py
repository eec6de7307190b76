"""The journeys that are looked at: read for an address, kept while they are asked for, and never a file from an address."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from tokenwire.errors import InputError, unknown
from tokenwire.journey import SCALES, Journey, JourneyConfig
from tokenwire.web.state import State

KEPT = 8
"""Journeys that are kept."""
MOST_GPUS = 1 << 17
"""GPUs of the largest cluster that the explorer opens; the command line takes more."""

FILE_KEYS = ("text.source", "text.encoding", "tokenizer.file", "tokenizer.pattern", "model.config", "cluster.file")
"""Keys that name a file of the machine, or say how one is read: only who starts the explorer may give them."""

T = TypeVar("T")


class Kept(Generic[T]):
    """Results by key, the least lately asked for forgotten. Safe for several threads; two may make the same one at once."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._held: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """Return what is kept under a key, or None."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: Hashable, value: T) -> T:
        """Keep a value and return it."""
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return value


class Journeys:
    """Journeys by (scale, overrides), over the file and overrides that the explorer was started with."""

    def __init__(self, file: str | None = None, sets: Sequence[str] = ()) -> None:
        if file == "-":
            raise InputError("explore -", rule="reads its journey anew for each change: it needs a file", nearest="a path")
        self.file, self.sets = file, tuple(sets)
        self._kept: Kept[Journey] = Kept(KEPT)
        self._own = _files(Journey.read(file, self.sets).config)

    def of(self, state: State) -> Journey:
        """Return the journey of an address. Raises ``InputError`` for an override that is wrong or names a file."""
        return self.at(state.scale, state.set)

    def beside(self, state: State) -> Journey:
        """Return the second journey of an address: that of its ``other`` scale, with its own overrides."""
        return self.at(state.other, state.with_set)

    def at(self, scale: str, sets: tuple[str, ...]) -> Journey:
        """Return a journey by the name of its scale ("" is the explorer's own) and its overrides."""
        return self._kept.get((scale, sets)) or self._kept.put((scale, sets), self._read(scale, sets))

    def _read(self, scale: str, sets: tuple[str, ...]) -> Journey:
        for override in sets:
            key = override.partition("=")[0].strip()
            if key in FILE_KEYS:
                raise InputError(key, rule="is given when the explorer starts, not in a page",
                                 nearest=f"tokenwire explore --set {key}=...")  # fmt: skip
        if scale and scale not in SCALES:
            raise unknown("journey", scale[:40], SCALES)
        read = Journey.read(None, sets, base=SCALES[scale]) if scale else Journey.read(self.file, [*self.sets, *sets])
        files = _files(read.config)
        if any(name not in (None, *self._own, *_BUILT_IN) for name in files):
            raise InputError("a file", rule="is given when the explorer starts, not in a page")
        world = read.config.cluster.world
        if world > MOST_GPUS:
            raise InputError(f"{world:,} GPUs", where="[cluster]", rule=f"the explorer opens at most {MOST_GPUS:,}",
                             nearest=f"cluster.gpus = {MOST_GPUS}")  # fmt: skip
        return read


_BUILT_IN = ("inferno-1",)


def _files(config: JourneyConfig) -> tuple[str | None, ...]:
    return config.text.source, config.tokenizer.file, config.model.config, config.cluster.file
