"""One measured run: who published it, what was measured, and the journey that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenwire.formats.megatron_arguments import Sections

DATA = Path(__file__).resolve().parent / "data"
"""The tables of measured runs; their README names each source."""
LIMIT = 2**28
"""Bytes of the largest table of runs that is read."""


@dataclass(frozen=True)
class Run:
    """One row of a table of runs.

    ``sections`` is empty where ``reasons`` gives why the run cannot be represented. ``measured`` holds bytes and seconds by
    name (``allocated_bytes``, ``peak_bytes``, ``step_seconds``); ``assumed`` lists in words what the row does not tell;
    ``inferred`` names the measured values from which an input of the run was inferred: the run counts in no statistic of them.
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
    inferred: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return case and variant: the name of the row in its source."""
        return f"{self.case} {self.variant}".strip()

    @property
    def represented(self) -> bool:
        """Return whether a journey file describes this run."""
        return not self.reasons
