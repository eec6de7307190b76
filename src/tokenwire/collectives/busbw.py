"""Algorithm and bus bandwidth, as nccl-tests print them.

algbw = S/t; busbw = algbw · factor, so that for a ring without in-network reduction busbw is what the busiest link carries.

Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md. A size there is of the full tensor, as here.
"""

from __future__ import annotations

from tokenwire.collectives.algorithm import default_algorithm


def busbw_factor(op: str, n: int) -> float:
    """Return busbw over algbw for a group of n.

    >>> busbw_factor("all_reduce", 8), busbw_factor("all_gather", 8), busbw_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    default_algorithm(op)  # raises for an unknown operation
    if n <= 1:
        return 1.0
    return {"all_reduce": 2 * (n - 1) / n, "all_gather": (n - 1) / n, "reduce_scatter": (n - 1) / n,
            "all_to_all": (n - 1) / n, "all_to_allv": (n - 1) / n}.get(op, 1.0)  # fmt: skip


def algbw(size_bytes: int, seconds: float) -> float:
    """Return S/t in bytes/s (0 where no time passes)."""
    return size_bytes / seconds if seconds > 0 else 0.0


def busbw(op: str, n: int, size_bytes: int, seconds: float) -> float:
    """Return the bus bandwidth in bytes/s.

    >>> busbw("all_reduce", 4, 100, 1.0)
    150.0
    """
    return algbw(size_bytes, seconds) * busbw_factor(op, n)
