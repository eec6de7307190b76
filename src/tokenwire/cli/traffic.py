"""The verb ``traffic``: who sends how much to whom in a step, by class of ranks, tier and link."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, NoPxn, Parquet, Seed, Set


def traffic(
    journey: JourneyFile = None,
    links: Annotated[bool, typer.Option("--links", help="The load on every link rather than the bytes by class.")] = False,
    transfers: Annotated[bool, typer.Option("--transfers", help="Every pair of GPUs that talks.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="N", help="Lines to print of links or transfers.")] = 20,
    algorithm: Annotated[
        list[str] | None, typer.Option("--algorithm", metavar="OP=A", help="E.g. all_reduce=tree (may be repeated).")
    ] = None,
    seed: Seed = 0,
    no_pxn: NoPxn = False,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Who talks to whom: bytes of one training step by class of ranks, by tier and on every link.

    Example: tokenwire traffic dante.toml --links --csv links.csv

    --csv and --parquet write the bytes by class; with --links or --transfers, those.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import print_json, print_table, write_table
    from tokenwire.flows import reading, traffic

    walk = read_journey(journey, sets)
    chosen = reading.algorithms(algorithm)
    found = traffic(walk.step(), walk.plan(), walk.fabric(), algorithms=chosen, seed=seed, pxn=not no_pxn)
    what = reading.table_named(links=links, transfers=transfers)
    if csv or parquet:
        write_table(getattr(found, what), csv=csv, parquet=parquet)
    elif json:
        print_json(reading.facts(found, what))
    else:
        for title, columns, right, rows in reading.tables(found, what, top):
            print_table(rows, columns, right=right, title=title)
