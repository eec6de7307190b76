"""A step on the wire to read: what the NIC of a GPU of each stage sends, how often, how long, and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenwire.report.rooms.time_gantt import some_stages
from tokenwire.report.terminal import console, table
from tokenwire.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey
    from tokenwire.timeline import StepTime
    from tokenwire.timeline.on_wire import Signature

BLOCKS = " ▁▂▃▄▅▆▇█"


def on_wire(step: StepTime, journey: Journey) -> tuple[Signature, ...]:
    """Return the signature of each stage."""
    from tokenwire.timeline import accelerator_of
    from tokenwire.timeline.on_wire import signatures

    facts = journey.config.cluster.facts
    return signatures(step, journey.plan(), journey.calls(), facts, accelerator_of(facts))


def facts(found: tuple[Signature, ...]) -> list[dict[str, Any]]:
    """Return the signatures as plain facts, with their bursts."""
    return [{**one.facts(), "bursts": one.table().to_dicts() if one.bursts else []} for one in found]


def bursts(found: tuple[Signature, ...]) -> pl.DataFrame:
    """Return a row a stage and kind of call that leaves the node."""
    import polars as pl

    tables = [one.table() for one in found if one.bursts]
    return pl.concat(tables) if tables else pl.DataFrame({"stage": []}, schema={"stage": pl.Int64})


def show(found: tuple[Signature, ...]) -> None:
    """Print what the NICs do: the kinds of calls of the busiest stage, a row a stage, and the rate over time."""
    busiest = max(found, key=lambda one: one.bytes)
    if not busiest.bytes:
        console().print("no byte leaves a node: all GPUs that talk to each other share one")
        return
    rows = [
        (f"{one.op} {one.group}", one.phase, format_count(one.calls), format_bytes(one.bytes), format_seconds(one.seconds),
         format_rate(one.rate), format_bytes(one.message), f"{one.incast}")
        for one in sorted(busiest.bursts, key=lambda one: -one.calls * one.bytes)[:12]
    ]  # fmt: skip
    columns = ("call", "phase", "calls", "bytes", "burst", "rate", "message", "from")
    title = f"Stage {busiest.stage}: what one NIC sends to other nodes (of one call)"
    console().print(table(rows, columns, right=columns[2:], title=title))
    lines = []
    for one in some_stages(found):
        said = one.facts()
        lines.append((f"{one.stage}", format_bytes(one.bytes), format_rate(said["mean_rate"]), format_rate(said["peak_rate"]),
                      f"{said['duty_cycle']:.0%}".replace("%", " %"), format_count(round(said["messages_per_second"])),
                      f"{said['incast_degree']}", f"{said['queue_pairs']}"))  # fmt: skip
    columns_ = ("stage", "bytes", "mean", "peak", "busy", "messages/s", "incast", "QPs")
    console().print(table(lines, columns_, right=columns_, title="By stage (a NIC, over the step)"))
    most = max(float(one.series.max()) for one in found)
    for one in some_stages(found):
        console().print(f"stage {one.stage:>3} " + "".join(BLOCKS[min(8, -(-int(8 * x) // max(int(most), 1)))] for x in one.series))
    step = format_seconds(busiest.step)
    console().print(" " * 10 + "0 s" + step.rjust(len(busiest.series) - 3))
    console().print(f"a full block: {format_rate(most / busiest.interval)} over {format_seconds(busiest.interval)}")
