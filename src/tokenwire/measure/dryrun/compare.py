"""Predicted and recorded side by side: every kind of call of one rank, equal or not.

Calls are matched by what they are: operation, members of the group, phase, elements, dtype (and, for sends and receives, the
stage at the other end). What is predicted under several names (attention, feed-forward) is one kind of call here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenwire.measure.dryrun.record import group_names

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.plan import Plan

KEYS = ("op", "group", "group_size", "phase", "elements", "dtype", "bytes", "peer")
"""What makes two calls of one kind."""


def compare(
    predicted: pl.DataFrame, recorded: pl.DataFrame, plan: Plan, rank: int, outside: Iterable[str] = ()
) -> pl.DataFrame:
    """Return ``KEYS`` with the counts ``predicted`` and ``recorded`` (0: not at all), ``equal``, and ``what`` it is.

    ``predicted`` is the step table of all stages, ``recorded`` the calls of ``rank``. Rows whose source begins with one of
    ``outside`` (the training script around a library that is run) have ``equal`` null. Rows with a difference come first.
    """
    import polars as pl

    names = group_names(plan, rank)
    canonical = {name: names[members] for name in plan.group_names() if (members := _members(plan, name, rank)) in names}
    here = predicted.filter(pl.col("stage") == plan.stage_of(rank)).with_columns(pl.col("group").replace(canonical))
    here = here.with_columns(pl.any_horizontal(pl.lit(False), *[pl.col("source").str.starts_with(x) for x in outside]).alias("outside"))
    here = here.filter(pl.col("group").is_in([name for name in canonical.values() if plan.group_size(name) > 1] or [""]))
    keys = [key for key in KEYS if key in recorded.columns]
    said = here.group_by([*keys, "outside"], maintain_order=True).agg(
        pl.col("count").sum().alias("predicted"), pl.col("what").unique(maintain_order=True).str.join("; ")
    )
    # What is said once, before any step, counts only where it is predicted.
    once = pl.lit(bool(outside)) & (pl.col("phase") == "setup")
    heard = recorded.with_columns(pl.col("group").replace(canonical)).group_by(keys, maintain_order=True).agg(
        pl.col("count").sum().alias("recorded")
    )  # fmt: skip
    heard = heard.with_columns(once.alias("outside"))
    joined = said.join(heard, on=[*keys, "outside"], how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
    counted = joined.with_columns(pl.col("predicted").fill_null(0), pl.col("recorded").fill_null(0), pl.col("what").fill_null(""))
    is_equal = pl.when(pl.col("outside")).then(None).otherwise(pl.col("predicted") == pl.col("recorded"))
    out = counted.with_columns(is_equal.cast(pl.Boolean).alias("equal"))
    ordered = out.select(*keys, "predicted", "recorded", "equal", "what")
    return ordered.sort(pl.col("equal"), nulls_last=True, maintain_order=True)


def _members(plan: Plan, name: str, rank: int) -> tuple[int, ...]:
    return tuple(int(member) for member in plan.members(name, rank))
