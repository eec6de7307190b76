"""The verb ``dryrun``: the real framework, or a function of the user's own, without accelerators."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, Json, Parquet, Set


def dryrun(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[JOURNEY | FILE.py:FUNCTION]", help="A journey file, or a training function to run."),
    ] = None,
    rank: Annotated[
        list[int] | None,
        typer.Option("--rank", metavar="N", help="Run as this rank (may be repeated); default: one rank of each stage."),
    ] = None,
    world: Annotated[int, typer.Option("--world", metavar="N", help="Ranks of the world that a function runs in.")] = 8,
    ranks_per_node: Annotated[
        int, typer.Option("--ranks-per-node", metavar="N", help="What a function is told in LOCAL_WORLD_SIZE.")
    ] = 8,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Run the real framework of a journey as one rank, record what it sends, and compare with the prediction.

    Example: tokenwire dryrun --set plan.dialect=torchtitan --set plan.tp=1

    Example: tokenwire dryrun my_train.py:main --world 1024 --rank 17

    Exit status 1 where prediction and recording differ.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered
    from tokenwire.measure.dryrun.function import is_function, run_function
    from tokenwire.report.rooms.dryrun import compared, comparison_facts, show_calls, show_comparison

    if is_function(source):
        chosen = (rank or [0])[0]
        calls = run_function(str(source), chosen, world, ranks_per_node)
        facts = {"rank": chosen, "world": world, "calls": calls.to_dicts()}
        if not answered(lambda: calls, lambda: facts, json=json, csv=csv, parquet=parquet):
            show_calls(calls, chosen, world)
        return
    table = compared(read_journey(source, sets), rank)
    if not answered(lambda: table, lambda: comparison_facts(table), json=json, csv=csv, parquet=parquet):
        show_comparison(table)
    if not table["equal"].all():
        raise typer.Exit(1)
