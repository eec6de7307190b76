"""The verb ``flows``: who is in whose way on the links, and what a failure does."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, NoPxn, Parquet, Plot, Protocol, Seed, Set


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
    protocol: Protocol = "Simple",
    late: Annotated[
        list[str] | None, typer.Option("--late", metavar="RANK=TIME", help='A rank comes late, e.g. "3=1 ms" (may be repeated).')
    ] = None,
    over_time: Annotated[bool, typer.Option("--over-time", help="How busy the links are from start to end.")] = False,
    job: Annotated[
        list[str] | None, typer.Option("--job", metavar="JOURNEY", help="Another job on the same fabric (may be repeated).")
    ] = None,
    start: Annotated[
        list[str] | None, typer.Option("--start", metavar="JOB=TIME", help='When a job starts, e.g. "1=5 ms" (the first is job 0).')
    ] = None,
    placement: Annotated[str, typer.Option("--placement", help="Nodes of several jobs: packed or interleaved.")] = "packed",
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Who is in whose way: each kind of communication of a step, all its flows at once, sharing links max-min fairly.

    Example: tokenwire flows dante.toml --fail leaf3

    --csv and --parquet write every flow with its time; with --over-time the use of each tier in each stretch of time.
    --late runs the largest call of each kind step by step, each transfer waiting for what it passes on.
    --plot draws what is asked: the heat of the links and each kind's time, or the links over time, late ranks, jobs.
    --job runs whole steps of several jobs beside each other, kind after kind, and says what they cost each other.
    """
    from dataclasses import replace

    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered, print_table
    from tokenwire.errors import InputError
    from tokenwire.fabric import without
    from tokenwire.flows import reading_flows, reading_late, stepwise, traffic
    from tokenwire.report.charts import flows as charts
    from tokenwire.report.comparison import write_plot
    from tokenwire.report.drawn import check_ending, write_drawings

    if plot:
        check_ending(plot)
    walk = read_journey(journey, sets)
    if job:
        from tokenwire.flows import reading_jobs, reading_mix

        walks = [walk, *(read_journey(other, None) for other in job)]
        shared = reading_jobs.together(
            [journey or "built-in", *job], [(one.step(), one.plan()) for one in walks], walk.config.cluster, placement, seed=seed,
            pxn=not no_pxn, protocol=protocol,
        )  # fmt: skip
        runs = reading_mix.mix(shared, start or [], fail or [], only or [])
        if plot:
            write_plot(charts.jobs(reading_mix.mix_facts(runs)), plot)
        if not answered(lambda: reading_mix.mix_table(runs), lambda: reading_mix.mix_facts(runs), json=json, csv=csv, parquet=parquet):
            for title, columns, right, rows in reading_mix.mix_tables(runs, shared.fabric.name):
                print_table(rows, columns, right=right, title=title)
        return
    if start or placement != "packed":
        raise InputError("--start" if start else f"--placement {placement[:40]}", rule="is for several jobs", nearest="--job other.toml")
    found = traffic(walk.step(), walk.plan(), walk.fabric(), seed=seed, pxn=not no_pxn, protocol=protocol)
    if late is not None and late:
        ranks = stepwise.late_ranks(late, walk.plan().world)
        failing = replace(found, fabric=without(found.fabric, fail)) if fail else found
        facts = stepwise.late_facts(failing, ranks, only or [])
        if plot:
            write_plot(charts.late(facts, ranks), plot)
        late_named = [{"rank": rank, "seconds": seconds} for rank, seconds in ranks.items()]
        if not answered(
            lambda: reading_late.late_frame(facts), lambda: {"late": late_named, "kinds": facts}, json=json, csv=csv, parquet=parquet
        ):  # fmt: skip
            title, columns, right, lines = reading_late.late_table(facts, ranks)
            print_table(lines, columns, right=right, title=title)
        return
    if over_time:
        recorded = reading_late.recorded(found, fail or [], only or [])
        if plot:
            first, *below = charts.over_time(reading_late.over_time_facts(recorded))
            write_plot(first, plot, *below)
        if not answered(
            lambda: reading_late.over_time_table(recorded), lambda: {"kinds": reading_late.over_time_facts(recorded)},
            json=json, csv=csv, parquet=parquet,
        ):  # fmt: skip
            for title, columns, right, lines in reading_late.over_time_tables(recorded):
                print_table(lines, columns, right=right, title=title)
        return
    asked = reading_flows.flows(found, fail or [], only or [], seeds)
    if plot:
        write_drawings(plot, "Flows of one step", charts.drawings(asked))
    if not answered(lambda: asked.table, lambda: asked.facts, json=json, csv=csv, parquet=parquet):
        for title, columns, right, rows in reading_flows.tables(asked):
            print_table(rows, columns, right=right, title=title)
