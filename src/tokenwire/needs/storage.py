"""What storage must offer: checkpoints written, tokens read."""

from __future__ import annotations

from tokenwire.figures import Figure
from tokenwire.tokens import index_dtype
from tokenwire.units import format_bytes, format_seconds

STATE = 14
"""Bytes a parameter of a checkpoint: 16-bit weights (2), fp32 weights and Adam's two moments (12)."""
EVERY = 1800.0
"""Seconds between checkpoints where nothing is said (assumed)."""
_BYTES = {"uint16": 2, "int32": 4}
"""Bytes of a stored id, by its type."""


def storage_figures(parameters: int, tokens: int, step: float, x: float, every: float = EVERY, *, vocabulary: int) -> tuple[Figure, ...]:
    """Return the bandwidth for checkpoints every ``every`` seconds that may hold the step up for a share ``x``, and for tokens.

    ``vocabulary``, in ids, decides how many bytes a stored id has.

    >>> [round(figure.value / 1e9, 3) for figure in storage_figures(10**9, 2**20, 1.0, 0.1, 100.0, vocabulary=128_256)]
    [14.0, 1.4, 0.14, 0.004]
    """
    kind = index_dtype(vocabulary)
    width = _BYTES[kind]
    size = STATE * parameters
    source = "tokenwire.needs.storage"
    return (
        Figure("a checkpoint", size, "B", "(2 + 12)·parameters", f"{STATE}·{parameters:,}", source,
               "weights in 16 bits, fp32 weights and two moments, written once by all replicas together"),
        Figure("bandwidth to storage, training waits for it", size / (x * every), "B/s", "checkpoint / (x · interval)",
               f"{format_bytes(size)}/({x:.3g}·{format_seconds(every)})", source, f"a checkpoint every {format_seconds(every)}"),
        Figure("bandwidth to storage, written beside training", size / every, "B/s", "checkpoint / interval",
               f"{format_bytes(size)}/{format_seconds(every)}", source, "done before the next one begins"),
        Figure("bandwidth of reading tokens", width * tokens / step, "B/s", "index · tokens a step / step",
               f"{width} B·{tokens:,}/{format_seconds(step)}", source, f"ids as {kind}, of all replicas together"),
    )  # fmt: skip
