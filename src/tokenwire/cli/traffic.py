"""The verb ``traffic``: who sends how much to whom in a step, by class of ranks, tier and link."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, NoPxn, Parquet, Plot, Protocol, Seed, Set


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
    protocol: Protocol = "Simple",
    heat: Annotated[bool, typer.Option("--heat", help="How hot the links are, by tier.")] = False,
    plot: Plot = None,
    job: Annotated[
        list[str] | None, typer.Option("--job", metavar="JOURNEY", help="Another job on the same fabric (may be repeated).")
    ] = None,
    placement: Annotated[str, typer.Option("--placement", help="Nodes of several jobs: packed or interleaved.")] = "packed",
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Who talks to whom: bytes of one training step by class of ranks, by tier and on every link.

    Example: tokenwire traffic dante.toml --links --csv links.csv

    --csv and --parquet write the bytes by class; with --links or --transfers, those. --plot draws the heat of
    every link. With --job the fabric is that of the first journey, with nodes enough for all jobs.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered, print_table
    from tokenwire.flows import heat_plot, reading, reading_jobs, traffic
    from tokenwire.flows.heat import heat as heat_facts
    from tokenwire.report.drawn import check_ending, write_drawings

    if plot:
        check_ending(plot)
    walk = read_journey(journey, sets)
    chosen = reading.algorithms(algorithm)
    if job:
        walks = [walk, *(read_journey(other, None) for other in job)]
        shared = reading_jobs.together(
            [journey or "built-in", *job], [(one.step(), one.plan()) for one in walks], walk.config.cluster, placement,
            algorithms=chosen, seed=seed, pxn=not no_pxn, protocol=protocol,
        )  # fmt: skip
        if plot:
            title = f"{len(walks)} jobs on {shared.fabric.name}"
            write_drawings(plot, title, [(heat_plot.svg(shared.fabric, shared.link_bytes.sum(axis=0), title), "")])
        facts = reading_jobs.jobs_facts
        if not answered(lambda: shared.links, lambda: facts(shared, links=links), json=json, csv=csv, parquet=parquet):
            for title, columns, right, rows in reading_jobs.jobs_tables(shared, top):
                print_table(rows, columns, right=right, title=title)
        return
    found = traffic(walk.step(), walk.plan(), walk.fabric(), algorithms=chosen, seed=seed, pxn=not no_pxn, protocol=protocol)
    what = reading.table_named(links=links, transfers=transfers)
    if plot:
        title = f"Heat of {found.fabric.name}, one step"
        write_drawings(plot, title, [(heat_plot.svg(found.fabric, found.link_bytes, title), "")])
    if answered(
        lambda: getattr(found, what),
        lambda: {**reading.facts(found, what), **({"heat": heat_facts(found.fabric, found.link_bytes)} if heat else {})},
        json=json, csv=csv, parquet=parquet,
    ):  # fmt: skip
        return
    if heat:
        title, columns, right, rows = reading_jobs.heat_table(found.fabric, found.link_bytes)
        print_table(rows, columns, right=right, title=title)
    else:
        for title, columns, right, rows in reading.tables(found, what, top):
            print_table(rows, columns, right=right, title=title)
