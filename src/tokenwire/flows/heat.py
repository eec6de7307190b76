"""How hot the links are, tier by tier: how many are idle, how even the rest are, which is the worst."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenwire.fabric import TIERS, Fabric
from tokenwire.fabric.fabric import Floats, Ints

CURVE = 12
"""Points of the curve of a tier: links from the least to the most busy."""


def heat(fabric: Fabric, load: Ints) -> list[dict[str, Any]]:
    """Return a row a tier (and direction): how long its links need for their bytes at full rate.

    ``idle`` is the number of links without a byte; ``least_seconds`` to ``most_seconds`` are of the links in use; ``imbalance``
    is the busiest over their mean; ``curve`` are the seconds of every 12th part of all links, the least busy first.
    """
    seconds = load / fabric.rate
    out = []
    for code, tier in enumerate(TIERS):
        links = np.flatnonzero(fabric.tier == code)
        up = fabric.src[links] < fabric.dst[links]
        for way, here in (("up", links[up]), ("down", links[~up])):
            if here.size:
                out.append(_row(fabric, tier, way, here, seconds[here]))
    return out


def _row(fabric: Fabric, tier: str, way: str, links: Ints, seconds: Floats) -> dict[str, Any]:
    used = seconds[seconds > 0]
    most = int(links[int(seconds.argmax())])
    place = np.linspace(0, seconds.size - 1, CURVE).round().astype(np.int64)
    middle, high = (float(x) for x in np.quantile(used, [0.5, 0.95])) if used.size else (0.0, 0.0)
    return {
        "tier": tier, "direction": way, "links": int(links.size), "idle": int(links.size - used.size),
        "least_seconds": float(used.min(initial=np.inf)) if used.size else 0.0, "mean_seconds": float(used.mean()) if used.size else 0.0,
        "median_seconds": middle, "p95_seconds": high, "most_seconds": float(seconds.max()),
        "imbalance": float(used.max() / used.mean()) if used.size else 1.0,
        "busiest": f"{fabric.device_name(int(fabric.src[most]))}-{fabric.device_name(int(fabric.dst[most]))}" if used.size else "",
        "curve": np.sort(seconds)[place].tolist(),
    }  # fmt: skip


SHADES = " ▁▂▃▄▅▆▇█"


def curve_text(values: list[float], most: float) -> str:
    """Return a curve as block characters, each an eighth of ``most`` high; what is above 0 always shows.

    >>> curve_text([0.0, 0.01, 0.5, 1.0], 1.0)
    ' ▁▄█'
    """
    if most <= 0:
        return " " * len(values)
    return "".join(SHADES[0 if value <= 0 else max(1, round(8 * value / most))] for value in values)
