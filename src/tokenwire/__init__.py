"""tokenwire follows language-model training from words to bits on the wire.

>>> from tokenwire import Journey
>>> journey = Journey.read(None)          # the built-in walk: a verse of Dante, a small GPT, 2 nodes of 4 GPUs
>>> journey.model().parameters.total > 1_000_000
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenwire.journey import Journey

__all__ = ["Journey", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import tokenwire` and `tokenwire --help` stay instant.
    if name == "Journey":
        from tokenwire.journey import Journey

        return Journey
    raise AttributeError(f"module 'tokenwire' has no attribute {name!r}")
