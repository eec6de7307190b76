"""A small fabric: GPUs below, then NICs, leaves, spines and cores; a line for each pair of devices, as warm as it is loaded."""

from __future__ import annotations

import numpy as np

from tokenwire.fabric import Fabric
from tokenwire.fabric.fabric import Ints
from tokenwire.flows.heat_plot import colour
from tokenwire.report.page.drawings.ink import FAINT, RULE, box, hue, line, svg, text
from tokenwire.units import format_bytes

MOST = 120
"""Devices of the largest fabric that is drawn."""
_ROWS = ("core", "spine", "leaf", "nic", "gpu", "nvswitch")
WIDTH, _TALL, _LEFT = 760, 78, 80


def drawable(fabric: Fabric) -> bool:
    """Return whether a fabric is small enough to be drawn device by device."""
    return sum(count for _, count in fabric.kinds) <= MOST


def network(fabric: Fabric, load: Ints) -> str:
    """Return the devices row by row; ``load`` is bytes by link, of which both ways and parallel links are one line here."""
    starts = dict(zip((kind for kind, _ in fabric.kinds), np.cumsum([0, *(count for _, count in fabric.kinds)])[:-1], strict=True))
    counts = dict(fabric.kinds)
    rows = [kind for kind in _ROWS if counts.get(kind)] + [kind for kind, count in fabric.kinds if count and kind not in _ROWS]
    place: dict[int, tuple[float, float]] = {}
    for at, kind in enumerate(rows):
        for k in range(counts[kind]):
            place[int(starts[kind]) + k] = (_LEFT + (WIDTH - _LEFT) * (k + 0.5) / counts[kind], 24 + at * _TALL)
    between: dict[tuple[int, int], int] = {}
    for src, dst, size in zip(fabric.src.tolist(), fabric.dst.tolist(), load.tolist(), strict=True):
        pair = (min(src, dst), max(src, dst))
        between[pair] = between.get(pair, 0) + size
    most = max(between.values(), default=0) or 1
    parts = []
    for (a, b), size in sorted(between.items(), key=lambda item: item[1]):
        share = (size / most) ** 0.4 if size else 0.0
        said = f"{fabric.device_name(a)} and {fabric.device_name(b)}: {format_bytes(size)} both ways"
        parts.append(line(*place[a], *place[b], colour=colour(0.15 + 0.85 * share) if size else RULE, wide=1 + 3 * share, said=said))
    if "nic" in rows and "gpu" in rows:
        # A GPU and its NIC hang on the same PCIe switch; what passes there is what passes at the NIC.
        pairs = ((int(starts["gpu"]) + gpu, int(nic)) for gpu, nic in enumerate(fabric.nic_of.tolist()))
        parts += [line(*place[gpu], *place[nic], colour=FAINT) for gpu, nic in pairs if nic in place]
    for at, kind in enumerate(rows):
        parts.append(text(4, 28 + at * _TALL, kind, fill=FAINT))
        wide = min(46.0, (WIDTH - _LEFT) / counts[kind] - 4)
        for k in range(counts[kind]):
            x, y = place[int(starts[kind]) + k]
            parts.append(box(x - wide / 2, y - 12, wide, 24, fill=hue(at), said=fabric.device_name(int(starts[kind]) + k), corner=4))
            parts.append(text(x, y + 4, str(k), at="middle", fill="#ffffff", size=11))
    return svg(WIDTH, 24 + (len(rows) - 1) * _TALL + 24, "the fabric with the load of its links in one step", parts)
