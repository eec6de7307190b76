"""The verb ``needs``: what the network must offer, and why."""

from typing import Annotated

import typer

from tokenwire.cli.options import JourneyFile, Json, Plot, Set


def needs(
    journey: JourneyFile = None,
    exposed: Annotated[
        str, typer.Option("--exposed", metavar="SHARE", help="Most of the step that may wait for the network.")
    ] = "10%",
    mfu: Annotated[
        str | None, typer.Option("--mfu", metavar="SHARE", help="Share of the peak that computing reaches (40%).")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="TIME", help='Time between checkpoints, e.g. "1800 s".')
    ] = None,
    efficiency: Annotated[
        str | None, typer.Option("--efficiency", metavar="SHARE", help="The least NIC for this share of an endless network's speed.")
    ] = None,
    largest: Annotated[bool, typer.Option("--largest", help="How large the cluster may grow.")] = False,
    plans: Annotated[bool, typer.Option("--plans", help="Which plans suit the cluster.")] = False,
    against: Annotated[
        list[str] | None, typer.Option("--against", metavar="KEY=VALUE", help="Beside the same with another value.")
    ] = None,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """What the network must offer, and why: bytes, bandwidth, messages, bisection, oversubscription, buffers, storage.

    Example: tokenwire needs --set plan.tp=4 --exposed 5%

    Other questions: --efficiency 90%, --largest, --plans, --against "cluster.nic_rate=100 Gb/s".
    --plot draws the rate of a NIC by --exposed, or with --efficiency the speed by the rate.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import print_json
    from tokenwire.report.charts import needs as charts
    from tokenwire.report.comparison import check_ending, write_plot
    from tokenwire.report.rooms import needs_by_time
    from tokenwire.report.rooms.needs import facts, picture
    from tokenwire.report.terminal import console
    from tokenwire.units import parse_share

    asked = {"--efficiency": efficiency, "--largest": largest, "--plans": plans, "--against": against}
    needs_by_time.only_one([name for name, value in asked.items() if value])
    if plot:
        needs_by_time.check_drawn(plot, {"--largest": largest, "--plans": plans, "--against": against})
        check_ending(plot)
    walk, most = read_journey(journey, sets), parse_share(exposed)
    if efficiency:
        found = needs_by_time.efficiency(walk, parse_share(efficiency))
        if plot:
            write_plot(charts.by_speed(found), plot)
        print_json(found) if json else needs_by_time.show_efficiency(found)
    elif largest:
        sizes = needs_by_time.growth(walk, most)
        print_json({"sizes": sizes}) if json else needs_by_time.show_growth(sizes, most)
    elif plans:
        suited = needs_by_time.plans(walk)
        print_json({"plans": suited}) if json else needs_by_time.show_plans(suited)
    elif against:
        both = needs_by_time.beside(walk, read_journey(journey, [*(sets or []), *against]))
        print_json({"networks": both}) if json else needs_by_time.show_beside(both)
    else:
        reached = None if mfu is None else parse_share(mfu)
        if plot:
            write_plot(charts.by_share(walk, reached), plot)
        own = walk.needs(exposed=most, mfu=reached)
        said = facts((*own, *needs_by_time.figures(walk, most, checkpoint)))
        if json:
            print_json(said)
            return
        for part in picture(said):
            console().print(part)
