"""Flows as pictures: what each kind takes on its own, how busy each tier is over time, what jobs and late ranks cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.errors import InputError
from tokenwire.flows import heat_plot
from tokenwire.flows.reading_flows import Asked
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.svg import svg
from tokenwire.units import format_seconds

MOST_KINDS = 6
"""Kinds of which the use over time is drawn: those that take longest."""


def drawings(asked: Asked) -> list[tuple[str, str]]:
    """Return the heat of all kinds' flows on the links, and the time of each kind, as SVG with captions."""
    rows, failed = asked.facts["kinds"], asked.facts["failed"]
    chart = kinds(rows, failed)
    load = sum((kind.link_bytes for kind in asked.kinds[1:]), start=asked.kinds[0].link_bytes)
    title = f"Heat of {asked.facts['cluster']}, the kinds of a step together{_without(failed)}"
    return [
        (heat_plot.svg(asked.kinds[0].fabric, load, title), "A cell a link, its colour the time of its bytes at full rate."),
        (svg(chart), "All flows of a kind begin together and share the links max-min fairly."),
    ]


def _without(failed: Sequence[str]) -> str:
    return f", without {', '.join(failed)}" if failed else ""


def kinds(rows: Sequence[dict[str, Any]], failed: Sequence[str]) -> Chart:
    """Return the time of each kind beside its bound, or beside its time without the failure; rows of ``contention.compared``."""
    beside = ("without the failure", "healthy_seconds") if failed else ("the busiest link alone", "bound_seconds")
    return _times(f"Each kind of a step on its own{_without(failed)}", rows, (("sharing the links", "seconds"), beside))


def late(rows: Sequence[dict[str, Any]], ranks: Mapping[int, float]) -> Chart:
    """Return the time of the largest call of each kind when all ranks come in time, and when some are late; rows of ``late_facts``."""
    said = ", ".join(f"rank {rank} by {format_seconds(seconds)}" for rank, seconds in ranks.items())
    return _times(f"The largest call of each kind, step by step; late: {said}", rows, (("in time", "in_time_seconds"), ("late", "seconds")))


def jobs(told: dict[str, Any]) -> Chart:
    """Return the seconds of each job alone and among the others; of ``reading_mix.mix_facts``."""
    rows = [{**one, "op": "job", "group": one["name"], "phase": ""} for one in told["jobs"]]
    return _times("Jobs that share a fabric, one step's communication each", rows, (("alone", "alone_seconds"), ("together", "seconds")))


def over_time(told: Sequence[dict[str, Any]]) -> list[Chart]:
    """Return how busy the links of each tier are while a kind runs, a chart a kind; of ``reading_late.over_time_facts``."""
    _some(told)
    longest = sorted(told, key=lambda kind: -kind["seconds"])[:MOST_KINDS]
    return [_use(kind) for kind in told if any(kind is one for one in longest)]


def _use(kind: dict[str, Any]) -> Chart:
    rows = kind["utilisation"]
    tiers = dict.fromkeys(row["tier"] for row in rows)
    unit, scale = _unit(kind["seconds"])
    # The mean of a stretch stands in its middle.
    first = [row for row in rows if row["tier"] == next(iter(tiers))]
    middles = [(row["start"] + row["seconds"] / 2) / scale for row in first]
    series = tuple(Series(tier, tuple(row["utilisation"] * 100 for row in rows if row["tier"] == tier)) for tier in tiers)
    return Chart(f"Use of the links: {kind['op']} {kind['group']}, {kind['phase']}", "lines", f"time, {unit}", "use of the links that carry it, %",
                 tuple(f"{x:.3g}" for x in middles), series, tuple(middles), log_y=False, log_x=False)  # fmt: skip


def _times(title: str, rows: Sequence[dict[str, Any]], named: Sequence[tuple[str, str]]) -> Chart:
    _some(rows)
    unit, scale = _unit(max(row[key] for row in rows for _, key in named))
    places = tuple(", ".join(filter(None, (f"{row['op']} {row['group']}", row["phase"]))) for row in rows)
    series = tuple(Series(name, tuple(row[key] / scale for row in rows)) for name, key in named)
    return Chart(title, "bars", "", f"time, {unit}", places, series, log_y=False)


def _some(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        raise InputError("--plot of these flows", rule="has nothing to draw: nothing is sent", nearest="a plan of more than one GPU")


def _unit(seconds: float) -> tuple[str, float]:
    return next(((name, scale) for name, scale in (("s", 1.0), ("ms", 1e-3)) if seconds >= scale), ("us", 1e-6))
