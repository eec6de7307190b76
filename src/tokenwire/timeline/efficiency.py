"""Which share of the peak a kernel reaches: measured at its shape, read off near shapes, or by a generic curve.

The generic curve of a product of m x k by k x n on P processors, with e the best share that was ever seen on that GPU:

    share = e · m/⌈m⌉ · n/⌈n⌉ · w/⌈w⌉ · k/(k + 128),      ⌈x⌉ x rounded up to tiles of 128,  w = tiles / P (waves)

(NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization; the last term, the start of a tile's sum,
is assumed). Attention: share = e · s/(s + 1024) of the products under the causal mask, assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from tokenwire.timeline.accelerator import Accelerator

How = Literal["measured", "near", "generic"]
TILE, START, RAMP = 128, 128, 1024
NEAR = 1.5
"""Farthest shape that is read off, as a distance of logarithms to base 2 over all sizes."""
LAYOUTS = {"forward": "TN", "input": "NN", "weight": "NT"}


@lru_cache(maxsize=4096)
def matmul_share(gpu: Accelerator, phase: str, m: int, k: int, n: int) -> tuple[float, How]:
    """Return the share of the peak of an m x k by k x n product, and how it is known.

    >>> from tokenwire.timeline.accelerator import accelerator
    >>> matmul_share(accelerator("B200"), "forward", 4096, 8192, 10240)
    (0.6452, 'measured')
    """
    if gpu.tables is not None:
        table = gpu.tables.matmul.get(LAYOUTS[phase], {})
        found = _read_off(table, (m, k, n))
        if found is not None:
            return found
    return generic_share(gpu, m, k, n), "generic"


@lru_cache(maxsize=4096)
def grouped_share(gpu: Accelerator, phase: str, groups: int, m: int, k: int, n: int) -> tuple[float, How]:
    """Return the share of ``groups`` products at once (experts), each m x k by k x n."""
    if gpu.tables is not None:
        found = _read_off(gpu.tables.grouped.get(phase, {}), (groups, m, *((n, k) if phase == "input" else (k, n))))
        if found is not None:
            return found
    return generic_share(gpu, m, k, n, groups), "generic"


@lru_cache(maxsize=1024)
def attention_share(gpu: Accelerator, backward: bool, s: int, heads: int, kv: int, d: int, d_v: int) -> tuple[float, How]:
    """Return the share of the peak for the causal half of the s² scores, and how it is known."""
    if gpu.tables is not None:
        table = {shape: both[backward] for shape, both in gpu.tables.attention.items()}
        found = _read_off(table, (s, heads, kv, d, d_v))
        if found is not None:
            # The tables count all scores; half of them are computed.
            return found[0] / 2, found[1]
    return gpu.attention[backward] * s / (s + RAMP), "generic"


def generic_share(gpu: Accelerator, m: int, k: int, n: int, groups: int = 1) -> float:
    """Return the generic curve at a shape.

    >>> from tokenwire.timeline.accelerator import accelerator
    >>> round(generic_share(accelerator("A100 SXM"), 4096, 4096, 4096), 3)      # 0.869 · 1024/1080 · 4096/4224
    0.799
    """
    rows, columns = -(-m // TILE), -(-n // TILE)
    waves = groups * rows * columns / gpu.processors
    whole = m / (rows * TILE) * n / (columns * TILE) * waves / math.ceil(waves)
    return gpu.matmul * whole * k / (k + START)


def _read_off(table: Mapping[Any, float], shape: tuple[int, ...]) -> tuple[float, How] | None:
    """Return the share at a shape, else the mean of up to 4 near ones, nearer ones weighing more (1/d²)."""
    if shape in table:
        return table[shape], "measured"
    near = []
    for key, share in table.items():
        d = math.sqrt(sum(math.log2(a / b) ** 2 for a, b in zip(key, shape, strict=True)))
        if d <= NEAR:
            near.append((d, share))
    if not near:
        return None
    near = sorted(near)[:4]
    total = sum(d**-2 for d, _ in near)
    return sum(d**-2 * share for d, share in near) / total, "near"
