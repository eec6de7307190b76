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

from tokenwire.errors import InputError, edits
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
    near = _misspelt(model_type)
    raise InputError(
        f"unknown model_type {model_type[:60]!r}", where=where,
        rule="describe its architecture by hand under [model]: hidden_size, layers, heads, kv_heads, head_dim, feed_forward, gated, norm, "
        "positions, qkv_bias, qk_norm, window, tied_embeddings, vocabulary_size; experts: experts, active_experts, expert_feed_forward, "
        "shared_experts, dense_layers; latent attention: q_lora_rank, kv_lora_rank; hybrids: layer_pattern, state_heads",
        nearest=f"model_type {near!r}" if near else "",
    )  # fmt: skip


def _misspelt(model_type: str) -> str:
    """Return the one family whose name is at most two edits away, of four letters an edit: another name is another architecture.

    >>> _ = known_families()
    >>> _misspelt("lama"), _misspelt("deepseek-v3"), _misspelt("nemotrn-nas"), _misspelt("olm3x"), _misspelt("gpt5")
    ('llama', 'deepseek_v3', 'nemotron-nas', '', '')
    """
    name = model_type[:60]
    # Names that differ by a number are different models.
    same = [known for known in _READERS if _digits(known) == _digits(name) and abs(len(known) - len(name)) <= 2]
    near = sorted((edits(name, known), known) for known in same)
    if not near or near[0][0] > min(2, len(name) // 4):
        return ""
    # A part more, as in nemotron-x, is a name of its own.
    parts = [len(one.replace("-", "_").split("_")) for one in (name, near[0][1])]
    return near[0][1] if near[0][0] == 1 or parts[0] == parts[1] else ""


def _digits(name: str) -> str:
    return "".join(letter for letter in name if letter.isdigit())


def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for entry in entry_points(group="tokenwire.model_families"):
        entry.load()
