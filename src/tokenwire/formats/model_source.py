"""What a person means by a model: the name of a preset, a ``config.json``, a folder with one, or a journey file."""

from __future__ import annotations

import json
from pathlib import Path

from tokenwire.errors import InputError, unknown
from tokenwire.model import presets


def journey_overrides(source: str | None) -> tuple[str | None, list[str]]:
    """Return the journey file to read and the overrides that a model's name or file stands for.

    >>> journey_overrides("gpt2"), journey_overrides("my.toml"), journey_overrides(None)
    ((None, ['model.preset="gpt2"']), ('my.toml', []), (None, []))
    """
    if source is None or source == "-" or source.lower().endswith(".toml"):
        return source, []
    if source.lower() in presets():
        return None, [f"model.preset={json.dumps(source.lower())}"]
    if source.lower().endswith(".json") or "/" in source or _exists(source):
        return None, [f"model.config={json.dumps(source)}"]
    raise unknown("model preset (and no such file)", source[:80], presets())


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):
        raise InputError(
            f"model {source[:80]!r}", rule="is neither a preset nor the path of a file"
        ) from None
