"""The verb ``memory``: what stands in a GPU's memory, when it is most, and whether it fits."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set


def memory(
    journey: JourneyFile = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Another GPU than the cluster's, e.g. H200.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="What the framework runs with, e.g. transformer_impl=local."),
    ] = None,
    reserve: Annotated[
        str, typer.Option("--reserve", metavar="SHARE", help="Share of the memory that must stay free.")
    ] = "5%",
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="KIND", help="Derive each part: weights, activations ... or all.")
    ] = None,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """What stands in a GPU's memory: parts, peak and its moment by stage; whether it fits, and what would make it.

    Example: tokenwire memory --set model.preset=llama-3.1-8b --set plan.tp=4 --gpu H100

    --csv and --parquet write one row a part.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered
    from tokenwire.report.comparison import check_ending, write_plot
    from tokenwire.report.rooms import memory as room
    from tokenwire.report.terminal import console, folded
    from tokenwire.units import parse_share

    if plot:
        check_ending(plot)
    found = room.found(read_journey(journey, sets), option, gpu, parse_share(reserve, zero=True))
    if plot:
        write_plot(room.chart(found), plot)
    if answered(found.memory.table, lambda: room.facts(found), json=json, csv=csv, parquet=parquet):
        return
    if explain is not None:
        for line in room.derivations(found, explain):
            console().print(folded(line))
    else:
        room.show(found)
