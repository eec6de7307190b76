"""The verb ``plan``: who holds what."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set


def plan(
    journey: JourneyFile = None,
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="N", help="What rank N holds, and the groups it is in.")
    ] = None,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Show who holds what: sizes, the rank grid, process groups, stages, and the shards of one rank.

    Example: tokenwire plan --set plan.tp=4 --set plan.pp=1 --rank 5
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered, print_json, print_table
    from tokenwire.plan import holdings
    from tokenwire.plan import tables as words

    trip = read_journey(journey, sets)
    resolved = trip.plan()
    if plot:
        from tokenwire.report.plots import write_scene

        write_scene("plan", trip, plot)
    if rank is not None or csv or parquet:
        held = holdings(trip.model().architecture, resolved, rank or 0)
        facts = {**words.rank_facts(resolved, rank or 0), "holds": held.to_dicts()}
        if answered(lambda: held, lambda: facts, json=json, csv=csv, parquet=parquet):
            return
        for title, head, rows, right in words.rank_tables(resolved, rank or 0, held):
            print_table(rows, head, right=right, title=title)
        return
    if json:
        print_json(words.facts(resolved))
        return
    for title, head, rows, right in words.plan_tables(resolved):
        print_table(rows, head, right=right, title=title)
    for note in resolved.notes:
        print(f"Note: {note}.")
