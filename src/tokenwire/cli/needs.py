"""The verb ``needs``: what the network must offer, and why."""

from typing import Annotated

import typer

from tokenwire.cli.options import JourneyFile, Json, Set


def needs(
    journey: JourneyFile = None,
    exposed: Annotated[
        str, typer.Option("--exposed", metavar="SHARE", help="Most of the step that may wait for the network.")
    ] = "10%",
    mfu: Annotated[
        str | None, typer.Option("--mfu", metavar="SHARE", help="Share of the peak that computing reaches (40%).")
    ] = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """What the network must offer, and why: bytes, bandwidth, messages, bisection, oversubscription.

    Example: tokenwire needs --set plan.tp=4 --exposed 5%
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import print_json
    from tokenwire.report.rooms.needs import facts, picture
    from tokenwire.report.terminal import console
    from tokenwire.units import parse_share

    most, reached = parse_share(exposed), None if mfu is None else parse_share(mfu)
    found = facts(read_journey(journey, sets).needs(exposed=most, mfu=reached))
    if json:
        print_json(found)
    else:
        for part in picture(found):
            console().print(part)
