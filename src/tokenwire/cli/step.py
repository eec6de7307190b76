"""The verb ``step``: every communication of one training step, by stage, with its derivation."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Set


def step(
    journey: JourneyFile = None,
    stage: Annotated[int | None, typer.Option("--stage", metavar="N", help="Only this pipeline stage.")] = None,
    explain: Annotated[
        str | None,
        typer.Option("--explain", metavar="GROUP", help="Derive each row of a group (tp, dp, pp ...), or all."),
    ] = None,
    why: Annotated[int | None, typer.Option("--why", metavar="N", help="Derive row N (numbered as printed).")] = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Say what each rank says in one training step: every collective with its group, count, size and dtype.

    Example: tokenwire step --set plan.tp=4 --explain tp

    Sizes are of the full tensor of one call: what all_gather puts out, what reduce_scatter takes in.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import print_json, print_table, write_table
    from tokenwire.step import explain as words

    trip = read_journey(journey, sets)
    plan, operations = trip.plan(), trip.step().with_row_index("row")
    numbered = operations if stage is None else words.of_stage(operations, stage, plan.pp)
    if why is not None:
        print(words.one(operations, why))
        return
    if explain is not None:
        numbered = words.of_group(numbered, explain)
    rows = numbered.drop("row")
    if write_table(rows, csv=csv, parquet=parquet):
        return
    if json:
        print_json(words.as_json(rows))
    elif explain is not None:
        for paragraph in words.derivations(rows, numbered["row"].to_list()):
            print(paragraph, end="\n\n")
    elif rows.is_empty():
        print("Nothing is said: every group of this plan has one rank.")
    else:
        for title, table in words.tables(numbered, plan):
            print_table(table, words.HEAD, right=words.NUMBERS, title=title)
        for note in plan.notes:
            print(f"Note: {note}.")
