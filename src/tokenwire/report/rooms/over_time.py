"""A step in time to look into: its events in a window, one by one or summed where they are many; the bytes of a NIC beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenwire.errors import InputError
from tokenwire.timeline.trace import events

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey
    from tokenwire.timeline import StepTime

ONE_BY_ONE = 2_500
"""Events up to which each is drawn."""
SLICES = 180
"""Slices of time into which more of them are summed, and bytes of a NIC are counted."""

_OF_PHASE = {"forward": ("forward",), "backward": ("backward", "backward for inputs", "backward for weights"), "gradients": ("gradients",),
             "optimizer": ("weights", "optimizer"), "data": ("forward",), "loss": ("backward", "backward for inputs")}  # fmt: skip


def frame(step: StepTime) -> pl.DataFrame:
    """Return the events of one rank of each stage: stage, kind, name, micro_batch, start, end (s)."""
    import polars as pl

    rows = [
        (one["pid"], one["name"] if one["tid"] else one["cat"], one["name"], one["ts"] / 1e6, (one["ts"] + one["dur"]) / 1e6)
        for one in events(step) if one["ph"] == "X"
    ]  # fmt: skip
    schema = {"stage": pl.Int64, "kind": pl.String, "name": pl.String, "start": pl.Float64, "end": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def window(zoom: str, end: float) -> tuple[float, float]:
    """Return the window that ``zoom`` says (``0.1-0.25``, seconds); all of the step for "".

    >>> window("", 2.0), window("0.5-1", 2.0)
    ((0.0, 2.0), (0.5, 1.0))
    """
    if not zoom:
        return 0.0, end
    low, dash, high = zoom.partition("-")
    try:
        first, last = float(low), float(high)
    except ValueError:
        first = last = float("nan")
    if not dash or not 0 <= first < last <= 1e9:
        raise InputError(f"zoom {zoom[:40]!r}", rule="must be two times in seconds, the later one last", nearest=f"0-{end:.3g}")
    return first, min(last, max(end, first * 1.0001))


def inside(all_events: pl.DataFrame, low: float, high: float) -> pl.DataFrame:
    """Return the events that are at least partly in a window."""
    import polars as pl

    return all_events.filter((pl.col("end") > low) & (pl.col("start") < high))


def summed(shown: pl.DataFrame, low: float, high: float) -> pl.DataFrame:
    """Return the events of a window summed: for each stage, kind and slice of time, the share of the slice that is spent on it.

    Columns stage, kind, start, end, share.
    """
    import polars as pl

    edges = np.linspace(low, high, SLICES + 1)
    out = []
    for (stage, kind), part in shown.group_by("stage", "kind", maintain_order=True):
        begun, ended = part["start"].to_numpy(), part["end"].to_numpy()
        # Time spent before each edge: events of one rank and kind do not overlap.
        spent = np.array([np.clip(edge - begun, 0.0, ended - begun).sum() for edge in edges])
        share = np.diff(spent) / np.diff(edges)
        used = np.flatnonzero(share > 1e-9)
        out.append(pl.DataFrame({"stage": [stage] * used.size, "kind": [kind] * used.size, "start": edges[used], "end": edges[used + 1], "share": np.minimum(share[used], 1.0)}))
    schema = {"stage": pl.Int64, "kind": pl.String, "start": pl.Float64, "end": pl.Float64, "share": pl.Float64}
    return pl.concat(out) if out else pl.DataFrame(schema=schema)


def nic(journey: Journey, all_events: pl.DataFrame, rank: int, low: float, high: float) -> pl.DataFrame:
    """Return what the NIC of a rank sends in each slice of a window: phase, start, end (s), bytes, rate (bytes/s).

    The bytes of a phase are spread evenly over the actions of that phase on the rank's stage: what is sent is exact, when is not.
    """
    import polars as pl

    traffic, plan, per_node = journey.traffic(), journey.plan(), journey.fabric().gpus_per_node
    plan.members("world", rank)
    sent: dict[str, int] = {}
    for kind in traffic.kinds:
        mine = (kind.pairs.src == rank) & (kind.pairs.dst // per_node != rank // per_node)
        sent[kind.phase] = sent.get(kind.phase, 0) + int(kind.bytes[mine].sum())
    edges = np.linspace(low, high, SLICES + 1)
    own = all_events.filter(pl.col("stage") == plan.stage_of(rank))
    out = []
    for phase, size in sent.items():
        actions = own.filter(pl.col("kind").is_in(_OF_PHASE.get(phase, ())))
        if phase == "gradients" and actions.is_empty():
            # Gradients that are hidden are sent while the last backward runs.
            actions = own.filter(pl.col("kind").str.starts_with("backward")).tail(1)
        if phase == "optimizer" and (actions["kind"] == "weights").any():
            actions = actions.filter(pl.col("kind") == "weights")
        length = float((actions["end"] - actions["start"]).sum())
        if not size or not length:
            continue
        begun, ended = actions["start"].to_numpy(), actions["end"].to_numpy()
        spent = np.array([np.clip(edge - begun, 0.0, ended - begun).sum() for edge in edges])
        carried = np.diff(spent) / length * size
        out.append(pl.DataFrame({"phase": [phase] * SLICES, "start": edges[:-1], "end": edges[1:], "bytes": carried, "rate": carried / np.diff(edges)}))
    schema = {"phase": pl.String, "start": pl.Float64, "end": pl.Float64, "bytes": pl.Float64, "rate": pl.Float64}
    return pl.concat(out) if out else pl.DataFrame(schema=schema)
