"""What the network must offer, as pictures: the rate of a NIC by the share of the step that may wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.needs.bandwidth import rate_with_overlap, rate_without_overlap
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.rooms.needs_by_time import timed_of

if TYPE_CHECKING:
    from tokenwire.journey import Journey

SHARES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Shares of a step that are drawn."""
_GBIT = 1e9 / 8


def by_share(journey: Journey, mfu: float | None) -> Chart:
    """Return the rate that a NIC needs at each share: by the time line, the two bounds around it, and what the NIC has.

    Raises ``InputError`` where nothing leaves a node.
    """
    bound = next((one.value for one in journey.needs(exposed=0.1, mfu=mfu) if one.formula == "B(1-x)/t"), 0.0)
    if not bound:
        raise InputError("--plot of these needs", rule="has nothing to draw: no byte leaves a node", nearest="a plan on more nodes")
    # B/t: both bounds are in proportion to it.
    pace, timed, has = bound / rate_with_overlap(1.0, 1.0, 0.1), timed_of(journey), journey.config.cluster.facts.nic_rate
    lines: dict[str, list[float | None]] = {
        "if nothing overlaps": [rate_without_overlap(pace, 1.0, x) for x in SHARES],
        "if everything overlaps": [rate_with_overlap(pace, 1.0, x) for x in SHARES],
        "by the time line": [timed.least_rate(x) for x in SHARES],
        "its NIC has": [has] * len(SHARES),
    }
    series = tuple(Series(name, tuple(None if rate is None else rate / _GBIT for rate in rates)) for name, rates in lines.items())
    return Chart("Rate that a NIC needs", "lines", "share of the step that may wait for the network, %", "rate of a NIC, Gb/s",
                 tuple(f"{x * 100:g}" for x in SHARES), series, SHARES)  # fmt: skip


def by_speed(found: dict[str, Any]) -> Chart:
    """Return the efficiency at each NIC that can be bought; ``found`` is of ``needs_by_time.efficiency``."""
    rates = [one["nic_rate"] / _GBIT for one in found["speeds"]]
    series = (
        Series("T(∞)/T(R)", tuple(one["efficiency"] * 100 for one in found["speeds"])),
        Series("asked for", (found["wanted"] * 100,) * len(rates)),
    )
    return Chart("Speed of the step with each NIC, of that with an endless network", "lines", "rate of a NIC, Gb/s", "efficiency, %",
                 tuple(f"{rate:g}" for rate in rates), series, tuple(rates), log_y=False)  # fmt: skip
