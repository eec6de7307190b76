"""The ``[text]`` section of a journey file."""

from __future__ import annotations

from pydantic import Field

from tokenwire.config import Section


class TextConfig(Section):
    """Which text: ``source`` is ``inferno-1`` (built in), a path, or ``-``; ``verse`` keeps only a part of it."""

    source: str = Field(default="inferno-1", min_length=1)
    verse: str | None = None
    encoding: str = "utf-8"
