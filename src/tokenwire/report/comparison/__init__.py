"""Design choices side by side: tokenizer, width, parallelization.

In: a ``Journey``. Out: a ``Comparison``: a table of all numbers, the formulas behind them, what to notice, and a ``Chart``
that ``write_plot`` draws as HTML, SVG or PNG.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from tokenwire.errors import InputError, unknown
from tokenwire.report.comparison.comparison import Comparison
from tokenwire.report.comparison.picture import picture
from tokenwire.report.comparison.plots import write_plot
from tokenwire.report.drawn import check_ending

if TYPE_CHECKING:
    from tokenwire.journey import Journey

__all__ = ["COMPARISONS", "Comparison", "check_ending", "check_name", "compare", "picture", "write_plot"]

COMPARISONS: dict[str, str] = {
    "tokenizers": "bytes sent per word, by tokenizer and method",
    "width": "bytes sent per token, by hidden size and method",
    "parallelism": "bytes of a step by method, on a fixed number of GPUs",
}
"""What can be compared. Each is the module of that name with a function ``compare_NAME(journey, gpus)``."""

MOST = 4096
"""The most GPUs of a comparison of pure methods."""


def check_name(name: str) -> str:
    """Return the name of a comparison. Raises ``InputError`` with the known names."""
    if name not in COMPARISONS:
        raise unknown("comparison", name, COMPARISONS)
    return name


def compare(name: str, journey: Journey, gpus: int) -> Comparison:
    """Return the comparison ``name`` of a journey over ``gpus`` GPUs.

    Raises ``InputError`` for an unknown name, fewer than two GPUs, or a method that cannot be planned at all.
    """
    check_name(name)
    if name != "parallelism" and not 2 <= gpus <= MOST:
        raise InputError(f"--gpus {gpus}", rule=f"a pure method is compared over 2 to {MOST:,} GPUs", nearest=f"--gpus {min(max(gpus, 2), MOST)}")
    module = import_module(f"tokenwire.report.comparison.{name}")
    function: Callable[[Journey, int], Comparison] = getattr(module, f"compare_{name}")
    return function(journey, gpus)
