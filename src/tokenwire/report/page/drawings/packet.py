"""A frame from its first byte to its last: the layers in their order, as wide as they are long where there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.report.page.drawings.ink import FAINT, box, hue, svg, text

WIDTH = 760
_TALL = 54


def frame(fields: Sequence[Mapping[str, Any]]) -> str:
    """Return the layers of a packet (its fields with ``layer``, ``bit_offset``, ``bit_length``), bytes written in each.

    The payload, far longer than all else, is drawn shorter than it is and says its true length.
    """
    layers: dict[str, int] = {}
    for field in fields:
        layers[field["layer"]] = layers.get(field["layer"], 0) + int(field["bit_length"])
    sizes = {layer: bits // 8 for layer, bits in layers.items()}
    wide = {layer: 62.0 + 3.2 * min(size, 44) if layer == "payload" else 46.0 + 1.6 * size for layer, size in sizes.items()}
    scale = WIDTH / sum(wide.values())
    parts, x, at = [], 0.0, 0
    for number, (layer, size) in enumerate(sizes.items()):
        long = wide[layer] * scale
        parts += [
            box(x, 0, long - 2, _TALL, fill=hue(number), said=f"{layer}: bytes {at} to {at + size - 1}", corner=3),
            text(x + long / 2 - 1, 24, layer, at="middle", fill="#ffffff", bold=True, size=12 if len(layer) * 7.4 < long else 10),
            text(x + long / 2 - 1, 41, f"{size:,} B", at="middle", fill="#ffffff", size=11),
            text(x + 1, _TALL + 15, f"{at:,}", size=10, fill=FAINT),
        ]  # fmt: skip
        x, at = x + long, at + size
    return svg(WIDTH, _TALL + 20, "layers of one frame, with the byte at which each begins", parts)
