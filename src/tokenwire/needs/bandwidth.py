"""How fast the network must be, for at most a given share of the step spent waiting for it.

Symbols: B bytes of the busiest NIC in a step, headers included, t seconds that the step computes, c = B/R seconds that it
sends at rate R, x the share of the step in which nothing but communication happens.

Nothing overlaps:     the step takes t + c, of which c is exposed:      c/(t+c) = x  ->  R = B(1-x)/(x·t)
Everything overlaps:  the step takes max(t, c), of which c-t is exposed: (c-t)/c = x  ->  R = B(1-x)/t

These are bounds where t is the time that the step computes: with the t of an assumed MFU they hold at that MFU only. A step that the
time line makes longer needs less than either, and collective operations below their links' rate need more.
"""

from __future__ import annotations

import math

from tokenwire.figures import Figure
from tokenwire.units import format_bytes, format_quantity, format_seconds

_SOURCE = "tokenwire.needs.bandwidth"


def rate_without_overlap(B: float, t: float, x: float) -> float:
    """Return bytes/s where all communication is exposed.

    >>> rate_without_overlap(1e9, 1.0, 0.1)     # c = 1/9 s
    9000000000.0
    """
    return B * (1 - x) / (x * t)


def rate_with_overlap(B: float, t: float, x: float) -> float:
    """Return bytes/s where communication hides behind all of the computation.

    >>> rate_with_overlap(1e9, 1.0, 0.1)        # c = 1/0.9 s
    900000000.0
    """
    return B * (1 - x) / t


def bandwidth_figures(B: float, t: float, x: float, *, has: float) -> list[Figure]:
    """Return the two bounds for a NIC's rate; ``has`` is the rate (bytes/s) of the NIC that is there."""
    share, size, time = format_quantity(x, "%"), format_bytes(B), format_seconds(t)
    left = f"{1 - x:.3g}"
    bounds = (
        ("nothing overlaps", rate_without_overlap(B, t, x), "B(1-x)/(x·t)", f"{size}·{left}/({x:.3g}·{time})"),
        ("everything overlaps", rate_with_overlap(B, t, x), "B(1-x)/t", f"{size}·{left}/{time}"),
    )
    return [
        Figure(
            f"bandwidth a NIC needs for {share} exposed, if {how}", rate, "B/s", formula, values, _SOURCE,
            f"{_against(rate, has)}; a bound if the step computes for {time}",
        )
        for how, rate, formula, values in bounds
    ]  # fmt: skip


def _against(rate: float, has: float) -> str:
    if not has:
        return ""
    ratio = rate / has
    share = format_quantity(ratio, "%") + " of" if ratio < 1 else f"{ratio:,.{0 if ratio >= 100 else 1}f} times"
    return f"{share} the {format_quantity(has, 'B/s')} that its NIC has"


def bisection_figure(crossing: int, t: float, x: float) -> Figure:
    """Return the bandwidth between the two halves of the nodes that carries ``crossing`` bytes (one way) in time."""
    rate = rate_with_overlap(crossing, t, x)
    return Figure(
        f"bisection bandwidth for {format_quantity(x, '%')} exposed, if everything overlaps", rate, "B/s",
        "bytes from one half of the nodes to the other · (1-x)/t",
        f"{format_bytes(crossing)}·{1 - x:.3g}/{format_seconds(t)}", _SOURCE,
        "the halves are the first and the second half of the nodes in rank order; the direction with more bytes",
    )  # fmt: skip


def tolerated_oversubscription(nic_bytes: int, nics: int, up_bytes: int) -> float:
    """Return how many times less bandwidth a leaf may have upwards than to its NICs before its uplinks hold the step up.

    ``nic_bytes`` of the busiest NIC, ``nics`` on the leaf, ``up_bytes`` from the leaf to the spine, evenly over its
    uplinks. At r : 1 the uplinks take r · up_bytes/(nics·R) seconds and the NIC takes nic_bytes/R; more than ``nics`` : 1
    is less than one uplink of the NICs' rate, so that is the most.

    Without bytes upwards there is no limit.

    >>> tolerated_oversubscription(100, 32, 1600), tolerated_oversubscription(100, 32, 0)
    (2.0, inf)
    """
    return min(float(nics), nic_bytes * nics / up_bytes) if up_bytes else math.inf
