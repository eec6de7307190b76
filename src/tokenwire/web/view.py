"""What a page is made from: the state of its address, the journey that this names, and the tables that it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tokenwire.report.scenes.following import following
from tokenwire.report.scenes.walk import piece
from tokenwire.web.journeys import Journeys
from tokenwire.web.state import State

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey
    from tokenwire.report.scenes import Walk


@dataclass
class View:
    """One look at one page. ``tables`` are filled by the page as it is made: the data of all that it shows, by name."""

    page: str
    state: State
    journeys: Journeys
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)

    @cached_property
    def journey(self) -> Journey:
        """Return the journey. Raises ``InputError`` for overrides that are wrong."""
        return self.journeys.of(self.state)

    @cached_property
    def walk(self) -> Walk:
        """Return the walk that follows the selected token (none selected: the second token of the text)."""
        return following(self.journey, self.state.token, self.state.verse or None)

    def here(self, **changes: object) -> str:
        """Return the address of this page with something else selected."""
        return self.state.href(self.page, **changes)

    def piece(self, token: int) -> str:
        """Return the characters of a token of the text."""
        return piece(self.journey.text().data, self.journey.encoding(), token)
