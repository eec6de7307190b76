"""Dry runs to read: prediction and recording side by side, and the calls of a user's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenwire.report.terminal import console, table
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey


def compared(journey: Journey, ranks: list[int] | None) -> pl.DataFrame:
    """Return the comparison of the ranks asked for (one of each stage where none is), with the column ``rank`` before it."""
    import polars as pl

    from tokenwire.measure.dryrun import check, default_ranks

    arch, plan = journey.model().architecture, journey.plan()
    frames = [
        check(arch, plan, rank).select(pl.lit(rank).alias("rank"), pl.all()) for rank in ranks or default_ranks(plan)
    ]  # fmt: skip
    return pl.concat(frames, how="diagonal")


def comparison_facts(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the comparison as plain facts: ``equal`` and the rows by rank."""
    parts = rows.partition_by("rank", as_dict=True, include_key=False, maintain_order=True)
    return {
        "equal": bool(rows["equal"].all()),
        "ranks": [
            {"rank": rank, "equal": bool(part["equal"].all()), "ops": part.to_dicts()} for (rank,), part in parts.items()
        ],
    }  # fmt: skip


def show_comparison(rows: pl.DataFrame) -> None:
    """Print the comparison, a table a rank, differences first."""
    parts = rows.partition_by("rank", as_dict=True, include_key=False, maintain_order=True)
    for (rank,), part in parts.items():
        lines = [
            ({True: "=", False: "≠"}.get(row["equal"], ""), row["op"], f"{row['group']} ({row['group_size']})", row["phase"],
             f"{row['predicted']:,}", f"{row['recorded']:,}", format_bytes(row["bytes"]), row["dtype"])
            for row in part.iter_rows(named=True)
        ]  # fmt: skip
        console().print(table(
            lines, ("", "call", "group", "phase", "predicted", "run", "bytes each", "dtype"),
            right=("predicted", "run", "bytes each"), title=f"rank {rank}: calls in one step",
        ))  # fmt: skip
    different = int((~rows["equal"]).sum())
    verdict = "equal: every call" if not different else f"different: {different} of {rows.height} kinds of call"
    console().print(f"{verdict}, in count, size, dtype, group and phase")
    if rows["equal"].null_count():
        phases = ", ".join(rows.filter(rows["equal"].is_null())["phase"].unique(maintain_order=True))
        console().print(f"without a sign: not part of what is run here ({phases})")


def show_calls(calls: pl.DataFrame, rank: int, world: int) -> None:
    """Print what a function of the user's own would send, and the total."""
    lines = [
        (row["op"], f"{row['group']} ({row['group_size']:,})", row["phase"], f"{row['count']:,}", f"{format_bytes(row['bytes'])}",
         row["dtype"], row["site"].split(":")[-1])
        for row in calls.iter_rows(named=True)
    ]  # fmt: skip
    console().print(table(
        lines, ("call", "group", "phase", "count", "bytes each", "dtype", "by"), right=("count", "bytes each"),
        title=f"rank {rank} of {world:,}: what it would send",
    ))  # fmt: skip
    total = int((calls["count"] * calls["bytes"]).sum()) if calls.height else 0
    console().print(f"{int(calls['count'].sum()) if calls.height else 0:,} calls on {format_bytes(total)} of full tensors")
