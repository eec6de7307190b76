"""The same verse at the scale of real models: journeys on clusters that fit them."""

from __future__ import annotations

from collections.abc import Iterable

from tokenwire.errors import unknown
from tokenwire.journey.journey import Journey

SCALES: dict[str, str] = {
    "gpt2": "gpt2",
    "llama-3.1-8b": "llama-3.1-8b",
    "70b": "llama-3.1-70b",
    "405b": "llama-3.1-405b",
}
"""What ``--scale`` takes, and the journey in ``catalog/`` that it names."""

_ALIASES = {"8b": "llama-3.1-8b", "llama-3.1-70b": "70b", "llama-3.1-405b": "405b"}


def scale(name: str, overrides: Iterable[str] = ()) -> Journey:
    """Return the journey of a real model at its own scale; the text and tokenizer are those of the built-in walk.

    Raises ``InputError`` with the known names.
    """
    known = _ALIASES.get(name, name)
    if known not in SCALES:
        raise unknown("scale", name, SCALES, where="--scale")
    return Journey.read(None, overrides, base=SCALES[known])
