"""The verb ``flows``: who is in whose way on the links, and what a failure does."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, NoPxn, Parquet, Seed, Set


def flows(
    journey: JourneyFile = None,
    fail: Annotated[
        list[str] | None, typer.Option("--fail", metavar="DEVICE", help="Take away leaf3, nic5 or leaf3-spine1 (may be repeated).")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this group, phase or parallelism, e.g. dp.")
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="How the time varies over N seeds of the hash.")] = 0,
    no_pxn: NoPxn = False,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Who is in whose way: each kind of communication of a step, all its flows at once, sharing links max-min fairly.

    Example: tokenwire flows dante.toml --fail leaf3

    --csv and --parquet write every flow with its time.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import print_json, print_table, write_table
    from tokenwire.flows import reading_flows, traffic

    walk = read_journey(journey, sets)
    found = traffic(walk.step(), walk.plan(), walk.fabric(), seed=seed, pxn=not no_pxn)
    asked = reading_flows.flows(found, fail or [], only or [], seeds)
    if csv or parquet:
        write_table(asked.table, csv=csv, parquet=parquet)
    elif json:
        print_json(asked.facts)
    else:
        for title, columns, right, rows in reading_flows.tables(asked):
            print_table(rows, columns, right=right, title=title)
