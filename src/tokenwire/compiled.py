"""Compiling functions of arrays to machine code, kept beside the package where that can be written.

An installed package may lie in a folder that its user may not write, and the user may have no home: then there is no
place to keep what was compiled, and numba refuses to compile at all when it is asked to keep it. Then each run compiles
anew instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Return ``function`` compiled at its first call, and kept for later runs where there is a place for it.

    >>> from tokenwire.fabric.fivetuple import flow_label
    >>> compiled(flow_label)(2, 3) == flow_label(2, 3)
    True
    """
    try:
        return njit(function, cache=True)
    except RuntimeError:
        return njit(function)
