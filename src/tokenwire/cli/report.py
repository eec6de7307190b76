"""The verb ``report``: the whole journey as one page."""

from typing import Annotated

import typer

from tokenwire.cli.options import JourneyFile, Set


def report(
    journey: JourneyFile = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it (- is stdout).")] = "report.html",
    text: Annotated[str | None, typer.Option("--text", metavar="FILE", help="Read this text (- is stdin).")] = None,
    encoding: Annotated[str | None, typer.Option("--encoding", help="Encoding of the text, if not UTF-8.")] = None,
    verse: Annotated[str | None, typer.Option("--verse", metavar="PLACE", help='What to show, e.g. "Inferno III 1-9".')] = None,
    token: Annotated[int | None, typer.Option("--token", metavar="N", help="Follow the N-th token shown (from 0) to the wire.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Charts that zoom: plotly's script inside, 5 MB more.")] = False,
    sets: Set = None,
) -> None:
    """Write the whole journey as one HTML page that opens without a network: every room with its tables and drawings.

    Example: tokenwire report --set plan.tp=4 --output walk.html
    """
    from tokenwire.cli.options import read_journey, with_text
    from tokenwire.report.page import check_page, page, write_page
    from tokenwire.report.scenes import Walk

    check_page(output)
    read = read_journey(journey, [*with_text(text, encoding), *(sets or [])])
    write_page(page(Walk(read, verse=verse, token=token), interactive=interactive), output)
