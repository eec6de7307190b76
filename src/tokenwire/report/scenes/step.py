"""What is said in a step: every communication of a rank, by phase, and how much it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table
from tokenwire.units import format_bytes

ROWS = 14
"""Rows drawn: the largest; ``tokenwire step`` prints all of them."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the operations of the first stage at each scale, and sums by parallelism."""
    import polars as pl

    out = []
    for name, journey in walk.journeys:
        rows = journey.step().with_row_index("row").with_columns(step_bytes=pl.col("bytes") * pl.col("count"))
        first = rows.filter(pl.col("stage") == 0)
        by = first.group_by("parallelism", maintain_order=True).agg(pl.col("count").sum(), pl.col("step_bytes").sum())
        keep = ["row", "op", "group", "group_size", "phase", "count", "elements", "dtype", "bytes", "step_bytes", "parallelism",
                "what", "formula", "values", "why"]  # fmt: skip
        out.append({"name": name, "stages": journey.plan().pp, "ops": first.select(keep).to_dicts(), "by": by.to_dicts()})
    return {"journeys": out}


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the largest operations, one derived, and the sums."""
    steps = facts["journeys"]
    main = steps[0]
    if not main["ops"]:
        yield "\nNothing is said: every group of this plan has one rank."
    else:
        largest = sorted(main["ops"], key=lambda op: -op["step_bytes"])[:ROWS]
        rows = [
            (op["row"], op["phase"], op["op"], f"{op['group']} ×{op['group_size']:,}", f"{op['count']:,}", format_bytes(op["bytes"]),
             op["dtype"], op["what"])
            for op in sorted(largest, key=lambda op: op["row"])
        ]  # fmt: skip
        more = len(main["ops"]) - len(rows)
        title = f"{main['name']}: a rank of stage 0 in one step" + (f" (the largest {len(rows)}, {more} more)" if more > 0 else "")
        yield table(rows, ["row", "phase", "call", "group", "times", "a call", "dtype", "what"],
                    right=["row", "times", "a call"], title=title)  # fmt: skip
        op = max(main["ops"], key=lambda op: op["step_bytes"])
        yield (
            f"Row {op['row']}: {op['formula']} = {op['values']} = {op['elements']:,} elements of {op['dtype']} = "
            f"{format_bytes(op['bytes'])}, {op['count']:,} times: {op['why']}."
        )
    if len(steps) > 1:
        kinds = list(dict.fromkeys(by["parallelism"] for step in steps for by in step["by"]))
        held = [{by["parallelism"]: by["step_bytes"] for by in step["by"]} for step in steps]
        names = [step["name"] for step in steps]
        yield table([(kind, *[format_bytes(h[kind]) if kind in h else "-" for h in held]) for kind in kinds],
                    ["tensors, by who asks", *names], right=names, title="full tensors of all calls of a rank of stage 0")  # fmt: skip
    yield "Sizes are of the full tensor of a call; groups of one say nothing."
