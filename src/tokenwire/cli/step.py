"""The verb ``step``: every communication of one training step, by stage, with its derivation."""

from typing import TYPE_CHECKING, Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set

if TYPE_CHECKING:
    from tokenwire.journey import Journey


def step(
    journey: JourneyFile = None,
    stage: Annotated[int | None, typer.Option("--stage", metavar="N", help="Only this pipeline stage.")] = None,
    explain: Annotated[
        str | None,
        typer.Option("--explain", metavar="GROUP", help="Derive each row of a group (tp, dp, pp ...), or all."),
    ] = None,
    why: Annotated[int | None, typer.Option("--why", metavar="N", help="Derive row N (numbered as printed).")] = None,
    routing: Annotated[
        int | None, typer.Option("--routing", metavar="SEED", help="Where experts' tokens go, with one draw of routing.")
    ] = None,
    skew: Annotated[float, typer.Option("--skew", help="Draw: how unequally liked experts are; 0: equally.")] = 0.0,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Say what each rank says in one training step: every collective with its group, count, size and dtype.

    Example: tokenwire step --set plan.tp=4 --explain tp

    Example: tokenwire step --set model.preset=mixtral-8x7b --set plan.ep=2 --routing 1

    Sizes are of the full tensor of one call: what all_gather puts out, what reduce_scatter takes in.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered, print_table
    from tokenwire.errors import InputError
    from tokenwire.report.terminal import folded
    from tokenwire.step import explain as words

    trip = read_journey(journey, sets)
    if skew and routing is None:
        raise InputError(f"--skew {skew:g}", rule="is for a draw of routing", nearest="--routing 1")
    if routing is not None:
        _routing(trip, routing, skew, json=json, csv=csv, parquet=parquet)
        return
    plan, operations = trip.plan(), trip.step().with_row_index("row")
    if plot:
        from tokenwire.report.plots import write_scene

        write_scene("step", trip, plot)
    numbered = operations if stage is None else words.of_stage(operations, stage, plan.pp)
    if why is not None:
        print(folded(words.one(operations, why)))
        return
    if explain is not None:
        numbered = words.of_group(numbered, explain)
    rows = numbered.drop("row")
    if answered(lambda: rows, lambda: words.as_json(rows), json=json, csv=csv, parquet=parquet):
        return
    if explain is not None:
        for paragraph in words.derivations(rows, numbered["row"].to_list()):
            print(folded(paragraph), end="\n\n")
    elif rows.is_empty():
        print("Nothing is said: every group of this plan has one rank.")
    else:
        for title, table in words.tables(numbered, plan):
            print_table(table, words.HEAD, right=words.NUMBERS, title=title)
        for note in plan.notes:
            print(f"Note: {note}.")


def _routing(trip: "Journey", seed: int, skew: float, *, json: bool, csv: str | None, parquet: str | None) -> None:
    from tokenwire.cli.output import answered, print_table
    from tokenwire.step.routing import of_plan, words

    routed = of_plan(trip.model().architecture, trip.plan(), trip.config.cluster.facts.gpus_per_node, seed=seed, skew=skew)
    if answered(routed.table, lambda: {"routing": routed.as_dict()}, json=json, csv=csv, parquet=parquet):
        return
    print_table(words.copies_rows(routed), words.COPIES_HEAD, right=words.COPIES_HEAD[1:], title=words.title(routed))
    print_table(words.volume_rows(routed), words.ROWS_HEAD, right=words.ROWS_HEAD[1:])
    for remark in words.remarks(routed):
        print(remark)
