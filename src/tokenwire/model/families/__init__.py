"""Model families: each module reads the configurations of some ``model_type`` values of Hugging Face.

In: ``Fields`` (a ``config.json``). Out: an ``Architecture``. A family registers with ``@family("llama", ...)``; a package
outside registers the same way in a module named by an entry point of the group ``tokenwire.model_families``. Defaults for
missing keys are those of the configuration classes of huggingface/transformers 5 (``configuration_<family>.py``), shapes
those of its ``modeling_<family>.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from tokenwire.errors import InputError, closest
from tokenwire.model.architecture import Architecture
from tokenwire.model.fields import Fields

Reader = Callable[[Fields], Architecture]

_READERS: dict[str, Reader] = {}


def family(*model_types: str) -> Callable[[Reader], Reader]:
    """Register a reader for some values of ``model_type``."""

    def register(reader: Reader) -> Reader:
        for name in model_types:
            _READERS[name] = reader
        return reader

    return register


def known_families() -> tuple[str, ...]:
    """Return every ``model_type`` that can be read.

    >>> "llama" in known_families()
    True
    """
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_READERS))


def reader_of(model_type: str, where: str = "") -> Reader:
    """Return the reader of a family. Raises ``InputError`` that says how to describe an unknown model by its fields."""
    if model_type not in _READERS:
        known_families()
    if model_type not in _READERS:
        _load_entry_points()
    if model_type in _READERS:
        return _READERS[model_type]
    near = closest(model_type, _READERS)
    raise InputError(
        f"unknown model_type {model_type[:60]!r}", where=where,
        rule="describe the model by its fields under [model]: hidden_size, layers, heads, kv_heads, feed_forward, gated, "
        "vocabulary_size ...",
        nearest=f"model_type {near!r}" if near else "",
    )  # fmt: skip


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for entry in entry_points(group="tokenwire.model_families"):
        entry.load()
