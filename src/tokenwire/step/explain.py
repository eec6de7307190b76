"""A step in words: stages that say the same taken together, totals, and the derivation of each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError, closest
from tokenwire.units import ITEM_BYTES, counted, format_bytes, format_count

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.plan import Plan

_SAID = ("op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes", "what", "layers")


def alike(operations: pl.DataFrame) -> list[tuple[tuple[int, ...], pl.DataFrame]]:
    """Return stages that say exactly the same, in order: (stages, rows of the first of them)."""
    classes: dict[Any, tuple[list[int], pl.DataFrame]] = {}
    for (stage,), rows in operations.group_by("stage", maintain_order=True):
        assert isinstance(stage, int)
        said = tuple(rows.select(_SAID).iter_rows())
        classes.setdefault(said, ([], rows))[0].append(stage)
    return [(tuple(stages), rows) for stages, rows in classes.values()]


def stages_text(stages: tuple[int, ...]) -> str:
    """Return stages in words.

    >>> stages_text((0,)), stages_text((1, 2, 3)), stages_text((1, 3, 4))
    ('stage 0', 'stages 1–3', 'stages 1, 3–4')
    """
    parts, start = [], 0
    for i in range(1, len(stages) + 1):
        if i == len(stages) or stages[i] != stages[i - 1] + 1:
            first, last = stages[start], stages[i - 1]
            parts.append(str(first) if first == last else f"{first}–{last}")
            start = i
    return f"stage{'s' if len(stages) > 1 else ''} {', '.join(parts)}"


def as_json(operations: pl.DataFrame) -> dict[str, Any]:
    """Return ``{"stages": [{"stage": 0, "ops": [...]}]}``, for one rank of each stage."""
    out: list[dict[str, Any]] = []
    for (stage,), rows in operations.group_by("stage", maintain_order=True):
        out.append({"stage": stage, "ops": rows.drop("stage").to_dicts()})
    return {"stages": out}


def of_stage(operations: pl.DataFrame, stage: int, stages: int) -> pl.DataFrame:
    """Return the rows of one stage. Raises ``InputError`` for a stage that the plan has not."""
    import polars as pl

    if not 0 <= stage < stages:
        raise InputError(f"--stage {stage}", rule=f"the plan has stages 0 to {stages - 1}",
                         nearest=f"--stage {min(max(stage, 0), stages - 1)}")  # fmt: skip
    return operations.filter(pl.col("stage") == stage)


def of_group(operations: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the rows of a group or of a parallelism, or all. Raises ``InputError`` with the names that there are."""
    import polars as pl

    if name == "all":
        return operations
    known = sorted({*operations["group"], *operations["parallelism"]})
    if name not in known:
        raise InputError(f"--explain {name}", rule=f"nothing is said there; groups and parallelisms of this step are "
                         f"{', '.join(known) or 'none'}", nearest=closest(name, known) or "all")  # fmt: skip
    return operations.filter((pl.col("group") == name) | (pl.col("parallelism") == name))


def derivations(operations: pl.DataFrame, numbers: list[int]) -> Iterator[str]:
    """Yield a paragraph a row: what is said, the formula with its values, why, and where the rule comes from."""
    for number, row in zip(numbers, operations.iter_rows(named=True), strict=True):
        yield derivation(number, row)


def derivation(number: int, row: dict[str, Any]) -> str:
    """Return the paragraph of one row of the step table."""
    size = ITEM_BYTES[row["dtype"]]
    size_text = f"{size:g}"
    where = f"stage {row['stage']}, {row['phase']}"
    peer = f" with stage {row['peer']}" if row["peer"] is not None and row["op"] in ("send", "recv") else ""
    times = f"{row['count']:,} × a step" + (f" ({row['layers']} layers)" if row["layers"] else "")
    put_in = "" if row["values"].replace(",", "") == str(row["elements"]) else f"{row['values']} = "
    formula = f"{row['formula']} = {put_in}" if row["formula"] and row["formula"] != row["values"] else ""
    exact, short = f"{format_count(row['bytes'])} B", format_bytes(row["bytes"])
    lines = [
        f"{number}  {row['op']} on {row['group']} ({row['group_size']:,} ranks){peer}: {row['what']}",
        f"   {where}, {times}",
        f"   {formula}{counted(row['elements'], 'element')} of {row['dtype']}",
        f"   × {size_text} B = {exact}{f' ({short})' if short != exact else ''} a call,"
        f" {format_bytes(row['bytes'] * row['count'])} a step",
        f"   why: {row['why']}",
        f"   source: {row['source']}",
    ]
    return "\n".join(lines)


HEAD = ("row", "call", "group", "times", "a call", "dtype", "what")
"""The head of the printed table."""
NUMBERS = ("row", "times", "a call")
"""Its columns of numbers."""


def tables(numbered: pl.DataFrame, plan: Plan) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Yield (title, rows) for each class of equal stages; ``numbered`` has the row numbers as the column ``row``."""
    per_stage = plan.world // plan.pp
    for stages, rows in alike(numbered):
        said = sum(size * count for size, count in rows.select("bytes", "count").iter_rows())
        ranks = per_stage * len(stages)
        title = f"One rank of {stages_text(stages)} ({ranks:,} ranks), one step: {format_bytes(said)} in {{}} calls"
        calls = int(rows["count"].sum())
        yield title.format(format_count(calls)), list(_by_phase(rows))


def _by_phase(rows: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    columns = ("row", "op", "group", "group_size", "count", "bytes", "dtype", "what")
    for (phase,), part in rows.group_by("phase", maintain_order=True):
        yield ("", str(phase).upper(), "", "", "", "", "")
        for number, op, group, size, count, size_bytes, dtype, what in part.select(columns).iter_rows():
            yield (number, op, f"{group} ×{size:,}", f"{count:,}", format_bytes(size_bytes), dtype, what)


def one(numbered: pl.DataFrame, number: int) -> str:
    """Return the derivation of row ``number``. Raises ``InputError`` for a number that is not there."""
    if not 0 <= number < len(numbered):
        last = len(numbered) - 1
        raise InputError(f"--why {number}", rule=f"the step has rows 0 to {last}" if last >= 0 else "the step has no rows",
                         nearest=f"--why {min(max(number, 0), last)}" if last >= 0 else "")  # fmt: skip
    return derivation(number, numbered.row(number, named=True))
