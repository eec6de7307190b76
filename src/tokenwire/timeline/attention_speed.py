"""How fast attention is that was measured alone by precision, tokens, width of heads and window: ``catalog/attention.toml``.

Between lengths that were measured the speed is read off along log s. Heads of less than 128 numbers under a whole causal mask were not
measured: exponentials, of which there are as many a head whatever its width, bound them, and half the width has 0.6 of the speed (cuDNN on
GB300: 1,210 of 1,950 TFLOP/s forward, pytorch/helion, pull request 3463; on H200: 336 of 591 forward, 289 of 474 backward, the source of
the catalog). In 8 bits a backward under a window takes the seconds of the whole causal mask, which the catalog's rows show: it leaves out
no block of scores.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from typing import NamedTuple

from tokenwire.timeline.accelerator import Accelerator
from tokenwire.timeline.efficiency import How, attention_share
from tokenwire.units import parse_flops

CHIPS = {"gb200": "gb200", "gb300": "gb300", "b300": "gb300"}
"""GPUs, and whose measurements stand for theirs: B300 and GB300 are one chip."""
WIDE, NARROW, SHARE = 128, 64, 0.6
"""Width of heads that were measured, half of it, and the speed of the latter over that of the former."""
WINDOW = 128
"""The window that was measured."""
EIGHT_BITS = 0.81
"""Share of the 8-bit peak that attention in 8 bits reaches, over its share of the 16-bit peak in 16: 1.2 of 1.979 PFLOP/s over 740 of 989
TFLOP/s on H100 (Shah et al. 2024, FlashAttention-3, abstract); where nothing was measured."""


class Shape(NamedTuple):
    """What attention is over: tokens s, heads, KV heads, width of queries and keys, of values, and the window (0: none)."""

    s: int
    heads: int
    kv: int
    d: int
    d_v: int
    window: int = 0


def attention_speed(gpu: Accelerator, precision: str, backward: bool, shape: Shape) -> tuple[float, How]:
    """Return the FLOP/s of attention for the products that its mask leaves, and how it is known; precision: bf16, fp8, mxfp8 or fp32.

    >>> from tokenwire.timeline.accelerator import accelerator
    >>> speed, how = attention_speed(accelerator("GB300"), "bf16", False, Shape(4096, 64, 8, 128, 128))
    >>> round(speed / 1e12), how
    (1703, 'measured')
    """
    eight = precision in ("fp8", "mxfp8")
    peak = gpu.peak("fp32" if precision == "fp32" else "bf16")
    found = None if precision == "fp32" else _share(CHIPS.get(gpu.kind, ""), precision, backward, shape)
    if found is not None:
        return peak * found[0], found[1]
    share, how = attention_share(gpu, backward, shape.s, shape.heads, shape.kv, shape.d, shape.d_v)
    return share * (gpu.peak("fp8") * EIGHT_BITS if eight else peak), how


def seen(s: int, window: int | None) -> float:
    """Return the tokens that a token sees on average under a causal mask.

    >>> seen(4096, None), seen(4096, 128)
    (2048.0, 126.0)
    """
    return s / 2 if not window or window >= s else window * (1 - window / (2 * s))


@cache
def _share(chip: str, precision: str, backward: bool, shape: Shape) -> tuple[float, How] | None:
    """Return the share of the 16-bit peak; None where nothing near was measured."""
    window = shape.window if shape.window < shape.s else 0
    found = _between(_lines(chip, precision, shape.d, shape.d_v, window), shape.s, backward)
    if found is not None or window or max(shape.d, shape.d_v) >= WIDE:
        return found
    if precision != "bf16" and not backward:
        return _share(chip, "bf16", backward, shape)
    windowed = _between(_lines(chip, precision, shape.d, shape.d_v, WINDOW), shape.s, backward)
    if precision != "bf16" and windowed is not None:
        return windowed[0] * seen(shape.s, None) / seen(shape.s, WINDOW), "near"
    wide = _between(_lines(chip, precision, WIDE, WIDE, 0), shape.s, backward)
    return (wide[0] * _narrower(max(shape.d, shape.d_v)), "near") if wide else None


def _narrower(d: int) -> float:
    """Return the speed of heads of d < 128 numbers over that of 128."""
    return SHARE * d / NARROW if d < NARROW else SHARE + (1 - SHARE) * (d - NARROW) / (WIDE - NARROW)


@cache
def _lines(chip: str, precision: str, d: int, d_v: int, window: int) -> tuple[tuple[int, float, float], ...]:
    """Return (tokens, forward, backward) of the rows with these widths and window, as shares of the 16-bit peak."""
    text = (resources.files("tokenwire.timeline") / "catalog" / "attention.toml").read_text("utf-8")
    facts = tomllib.loads(text).get(chip, {"rows": (), "peak": "1 TFLOP/s"})
    peak = parse_flops(facts["peak"]) / 1e12
    rows = (row for row in facts["rows"] if [row[0], *row[2:5]] == [precision, d, d_v, window])
    return tuple(sorted((row[1], row[5] / peak, row[6] / peak) for row in rows))


def _between(lines: tuple[tuple[int, float, float], ...], s: int, backward: bool) -> tuple[float, How] | None:
    """Return the share at s tokens, along log s between those measured; at the ends what was measured there."""
    if not lines:
        return None
    known = {tokens: both[backward] for tokens, *both in lines}
    if s in known:
        return known[s], "measured"
    below, above = (
        max((t for t in known if t < s), default=min(known)),
        min((t for t in known if t > s), default=max(known)),
    )
    if s < below or s > above:
        return known[below if s < below else above], "near"
    part = math.log(s / below) / math.log(above / below)
    return known[below] * (1 - part) + known[above] * part, "near"
