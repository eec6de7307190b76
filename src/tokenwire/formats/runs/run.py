"""One measured run: who published it, what was measured, and the journey that says the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenwire.errors import InputError

LIMIT = 2**28
"""Bytes of the largest table of runs that is read."""
Sections = dict[str, dict[str, Any]]
"""The sections of a journey file, as TOML would give them."""


class Unsaid(InputError):
    """A run that no journey file can say, with the argument that is the reason."""


@dataclass(frozen=True)
class Run:
    """One row of a table of runs.

    ``sections`` is empty where ``reasons`` says why the run cannot be represented. ``measured`` holds bytes and seconds by
    name (``allocated_bytes``, ``peak_bytes``, ``step_seconds``); ``assumed`` says in words what the row does not tell.
    """

    case: str
    kind: str
    platform: str
    variant: str
    sections: Sections = field(default_factory=dict, hash=False)
    software: Mapping[str, Any] = field(default_factory=dict, hash=False)
    measured: Mapping[str, float] = field(default_factory=dict, hash=False)
    assumed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return case and variant: the name of the row in its source."""
        return f"{self.case} {self.variant}".strip()

    @property
    def represented(self) -> bool:
        """Return whether a journey file says this run."""
        return not self.reasons
