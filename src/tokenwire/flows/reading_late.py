"""Late ranks and links over time, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.fabric import without
from tokenwire.flows.contention import Kind, kinds
from tokenwire.flows.heat import curve_text
from tokenwire.flows.over_time import rates, utilisation
from tokenwire.flows.reading import Table
from tokenwire.flows.traffic import Traffic
from tokenwire.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import polars as pl

STRETCHES = 16
"""Stretches of time that are shown."""


def late_table(rows: Sequence[dict[str, Any]], late: dict[int, float]) -> Table:
    """Return what late ranks do to one call of each kind."""
    who = ", ".join(f"rank {rank} by {format_seconds(seconds)}" for rank, seconds in late.items()) or "nobody"
    lines = [
        (f"{row['op']} {row['group']}", row["phase"], format_bytes(row["bytes"]), format_seconds(row["in_time_seconds"]),
         format_seconds(row["seconds"]), format_seconds(row["delay_seconds"]), f"{row['ranks_held_up']:,}")
        for row in rows
    ]  # fmt: skip
    columns = ["kind", "phase", "tensor", "in time", "late", "costs", "held up"]
    return f"The largest call of each kind, step by step; late: {who}", columns, columns[2:], lines


def late_frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Return the same for a file: a row a kind."""
    import polars as pl

    return pl.DataFrame(rows)


def recorded(traffic: Traffic, failed: Sequence[str], only: Sequence[str]) -> list[Kind]:
    """Return the kinds with their rates over time."""
    fabric = without(traffic.fabric, failed) if failed else traffic.fabric
    return list(kinds(traffic, fabric, only, record=True))


def over_time_table(found: Sequence[Kind]) -> pl.DataFrame:
    """Return how busy each tier is in each of 16 stretches of time, kind by kind; see ``over_time.utilisation``."""
    import polars as pl

    parts = [
        utilisation(kind.ways, kind.shared, STRETCHES).with_columns(pl.lit(getattr(kind, name)).alias(name) for name in ("op", "group", "phase"))
        for kind in found
    ]  # fmt: skip
    schema = {"tier": pl.String, "start": pl.Float64, "seconds": pl.Float64, "bytes": pl.Float64, "utilisation": pl.Float64,
              **dict.fromkeys(("op", "group", "phase"), pl.String)}  # fmt: skip
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def over_time_facts(found: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return for each kind: makespan, when the first and last flow end, changes of rates, and the stretches of time."""
    return [
        {"op": kind.op, "group": kind.group, "phase": kind.phase, "seconds": kind.shared.makespan, "rate_changes": rates(kind.shared).height,
         "first_seconds": float(kind.ended.min()), "median_seconds": float(np.median(kind.ended)),
         "utilisation": utilisation(kind.ways, kind.shared, STRETCHES).to_dicts()}
        for kind in found
    ]  # fmt: skip


def over_time_tables(found: Sequence[Kind]) -> Iterator[Table]:
    """Yield how busy the links in use of each tier are while each kind runs."""
    rows = []
    for kind in found:
        table = utilisation(kind.ways, kind.shared, STRETCHES)
        for i, tier in enumerate(table["tier"].unique(maintain_order=True)):
            own = table.filter(table["tier"] == tier)["utilisation"].to_list()
            rows.append((f"{kind.op} {kind.group}" if i == 0 else "", kind.phase if i == 0 else "", tier,
                         format_seconds(kind.shared.makespan) if i == 0 else "", f"{sum(own) / len(own) * 100:.0f} %",
                         curve_text(own, 1.0)))  # fmt: skip
    columns = ["kind", "phase", "tier", "takes", "mean", "start to end"]
    yield "Use of the links that carry anything, over time", columns, ["takes", "mean"], rows
