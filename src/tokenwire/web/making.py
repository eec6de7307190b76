"""Making a page for an address: from what is kept, at once, or later; and its tables as CSV."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.web.journeys import Journeys, Kept
from tokenwire.web.parts.still import stilled
from tokenwire.web.rooms import ROOMS, fields_of, page_of
from tokenwire.web.state import State
from tokenwire.web.view import View
from tokenwire.web.work import Running, Stopped, Work

if TYPE_CHECKING:
    import polars as pl

KEPT = 24
"""Pages that are kept."""
PATIENCE = 1.5
"""Seconds after which a visitor is told that work is going on."""

LONGEST = 60.0
"""Seconds that a download may take."""

INSIDE = "Something went wrong inside the explorer; where it runs, its terminal says what."


@dataclass(frozen=True)
class Made:
    """A page: its parts and its tables; or the ``error`` in one line, or ``running`` for so many seconds."""

    parts: list[Any]
    tables: dict[str, pl.DataFrame]
    error: str = ""
    running: float | None = None


class Pages:
    """Pages by address. What is kept depends on nothing but the address and what the explorer was started with."""

    def __init__(self, journeys: Journeys) -> None:
        self.journeys, self.work = journeys, Work()
        self._kept: Kept[Made] = Kept(KEPT)

    def page(self, name: str, state: State, patience: float = PATIENCE) -> Made:
        """Return a page, or what is wrong with it, or that it is being made."""
        key = (name, state.query)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        try:
            made = self.work.result(key, lambda: self._make(name, state), patience)
        except InputError as error:
            return Made([], {}, error=str(error))
        except Stopped:
            return Made([], {}, error="It was stopped.")
        except Exception:
            traceback.print_exc(file=sys.stderr)
            return Made([], {}, error=INSIDE)
        if isinstance(made, Running):
            return Made([], {}, running=made.seconds)
        found: Made = made
        return self._kept.put(key, found)

    def stop(self, name: str, state: State) -> None:
        """Stop making a page."""
        self.work.stop((name, state.query))

    def fields(self, name: str, state: State) -> list[Any]:
        """Return a page's fields; none where not even they can be made."""
        try:
            return fields_of(name)(View(name, state, self.journeys))
        except Exception:  # what is wrong is said by the page itself
            return []

    def csv(self, name: str, table: str, state: State) -> str:
        """Return a table of a page as CSV. Raises ``InputError`` for one that is not there."""
        made = self.page(name, state, patience=LONGEST)
        if made.error or made.running is not None:
            raise InputError(f"table {table[:40]}", rule=made.error or "is not made yet: try again in a moment")
        frame = made.tables.get(table)
        if frame is None:
            raise InputError(f"table {table[:40]!r}", rule=f"the page has {', '.join(made.tables)}")
        return frame.write_csv()

    def bounded(self, name: str, state: State, function: Callable[[], Any]) -> Any:
        """Return what ``function`` returns, as one of the few pieces of work that go on at a time. Raises ``InputError`` for too many."""
        made = self.work.result((name, state.query), function, LONGEST)
        if isinstance(made, Running):
            self.work.stop((name, state.query))
            raise InputError(name, rule=f"takes longer than {LONGEST:.0f} s", nearest="the command line")
        return made

    def _make(self, name: str, state: State) -> Made:
        view = View(name, state, self.journeys)
        return Made(stilled(page_of(name)(view)), view.tables)


def exists(name: str) -> bool:
    """Return whether there is such a page."""
    return name in ROOMS
