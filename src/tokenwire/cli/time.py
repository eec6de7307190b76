"""The verb ``time``: when it is said, and how long a step takes."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set


def time(
    journey: JourneyFile = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Write one step as a trace (JSON) for ui.perfetto.dev.")
    ] = None,
    plot: Plot = None,
    slow: Annotated[
        list[str] | None, typer.Option("--slow", metavar="RANK=SHARE", help="A rank computes slower, e.g. 3=10%.")
    ] = None,
    jitter: Annotated[
        str | None, typer.Option("--jitter", metavar="SHARE", help="How much each action varies (standard deviation).")
    ] = None,
    setting: Annotated[
        str | None, typer.Option("--setting", metavar="NAME", help="Measured runs to calibrate by, or none (usual: the plan's own).")
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="With the links behind the NICs that groups share (simulates every flow).")
    ] = False,
    wire: Annotated[bool, typer.Option("--wire", help="What NICs send in the step: bursts, rate, incast, over time.")] = False,
    attention: Annotated[
        str, typer.Option("--attention", metavar="KIND", help="flash, or unfused: scores are written to memory.")
    ] = "flash",
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """When it is said: how long a step takes, what it computes, what it waits for.

    Example: tokenwire time --set model.preset=llama-3.1-8b --set plan.tp=4 --trace step.json

    --csv and --parquet write the stages, with --wire the kinds of bursts.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered
    from tokenwire.report.rooms import time_wire
    from tokenwire.report.rooms.time import facts, show, timed, write_trace
    from tokenwire.report.rooms.time_plot import write_plot

    walk = read_journey(journey, sets)
    found = timed(walk, slow, attention, jitter, setting, network=network, whole=bool(trace or plot or wire) or not json)
    if trace:
        write_trace(found, trace, walk)
    if plot:
        write_plot(found, plot)
    seen = time_wire.on_wire(found, walk) if wire else ()
    if answered(
        lambda: time_wire.bursts(seen) if wire else found.table(),
        lambda: facts(found, walk) | ({"wire": time_wire.facts(seen)} if wire else {}), json=json, csv=csv, parquet=parquet,
    ):  # fmt: skip
        return
    if wire:
        time_wire.show(seen)
    else:
        show(found, walk)
