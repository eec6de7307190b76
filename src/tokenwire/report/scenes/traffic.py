"""Who talks to whom: bytes between GPUs, by parallelism, inside nodes and over the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    from tokenwire.journey import Journey

MATRIX = 16
"""GPUs of the largest matrix that is drawn."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return sums by parallelism and medium at each scale, totals, and for a small cluster the matrix of bytes."""
    return {"journeys": [_traffic(name, journey) for name, journey in walk.journeys]}


def _traffic(name: str, journey: Journey) -> dict[str, Any]:
    import polars as pl

    traffic, per_node = journey.traffic(), journey.fabric().gpus_per_node
    inside = pl.col("src") // per_node == pl.col("dst") // per_node
    rows = (
        traffic.transfers.lazy()
        .group_by("parallelism", inside.alias("inside"))
        .agg(pl.col("bytes").sum())
        .sort("bytes", descending=True)
        .collect()
    )
    world = journey.plan().world
    by: dict[str, dict[str, int]] = {}
    for parallelism, is_inside, size in rows.iter_rows():
        by.setdefault(parallelism, {"nvlink": 0, "network": 0})["nvlink" if is_inside else "network"] += int(size)
    out: dict[str, Any] = {"name": name, "gpus": world, "by": by, "totals": traffic.totals, "matrix": []}
    if world <= MATRIX:
        sums = traffic.transfers.group_by("src", "dst").agg(pl.col("bytes").sum())
        matrix = [[0] * world for _ in range(world)]
        for src, dst, size in sums.iter_rows():
            matrix[src][dst] = int(size)
        out["matrix"] = matrix
    return out


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the matrix and the sums."""
    from rich.text import Text

    main = facts["journeys"][0]
    if main["matrix"]:
        yield ""
        yield Text("bytes a step from GPU (row) to GPU (column)", style="italic")
        yield from _matrix(main["matrix"])
    for one in facts["journeys"]:
        per_gpu = one["gpus"]
        rows = [
            (name, format_bytes(size["nvlink"] / per_gpu), format_bytes(size["network"] / per_gpu), format_bytes(sum(size.values())))
            for name, size in one["by"].items()
        ]
        totals = one["totals"]
        rows.append(("all", format_bytes(totals["nvlink_bytes"] / per_gpu), format_bytes(totals["network_bytes"] / per_gpu),
                     format_bytes(totals["sent_bytes"])))  # fmt: skip
        yield table(rows, ["demanded by", "NVLink, a GPU", "network, a GPU", "all GPUs"],
                    right=["NVLink, a GPU", "network, a GPU", "all GPUs"],
                    title=f"{one['name']}: sent in a step, mean over {one['gpus']:,} GPUs")  # fmt: skip
        yield (
            f"sent = received = {totals['sent_bytes']:,} B; of each token's step {format_bytes(totals['network_bytes_per_token'])} "
            f"cross the network ({totals['tokens']:,} tokens a step)."
        )


def _matrix(matrix: list[list[int]]) -> Iterator[Any]:
    from rich.text import Text

    most = max(map(max, matrix)) or 1
    width = 5 if len(matrix) > 8 else 8
    yield Text(" " * 6 + "".join(f"{column:>{width}}" for column in range(len(matrix))), style="dim")
    for number, row in enumerate(matrix):
        line = Text(f"{number:>4}  ", style="dim")
        for size in row:
            shown = "·" if not size else format_bytes(size).replace(" ", "").removesuffix("B") if width < 8 else format_bytes(size)
            share = size / most
            style = "dim" if not size else "bold red" if share > 0.5 else "yellow" if share > 0.01 else "cyan"
            line.append(f"{shown:>{width}}"[:width], style=style)
        yield line
