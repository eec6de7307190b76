"""The verb ``text``: read a text, choose a part of it, count."""

from sys import stdout
from typing import Annotated

import typer

from tokenwire.cli.options import Json, Plot, Set


def text(
    source: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="A text file, - for standard input, or a journey file (.toml).")
    ] = None,
    verse: Annotated[
        str | None, typer.Option("--verse", metavar="PLACE", help='Only this part, e.g. "Inferno III 1-9".')
    ] = None,
    encoding: Annotated[str | None, typer.Option("--encoding", help="Encoding of the text, if not UTF-8.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the text itself.")] = False,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """Words: read a text, choose a canto or verses, count words and types, fit Zipf's and Heaps's laws.

    Example: tokenwire text commedia.txt --verse "Paradiso XXXIII"

    --plot draws both laws: what was counted, and the fitted line.
    """
    from tokenwire.cli.options import journey_or_text
    from tokenwire.cli.output import print_json
    from tokenwire.report.charts.words import charts
    from tokenwire.report.comparison import check_ending, write_plot
    from tokenwire.report.rooms.words import facts, picture
    from tokenwire.report.terminal import console, harmless
    from tokenwire.text import select

    if plot:
        check_ending(plot)
    read = journey_or_text(source, sets, encoding).text()
    part = select(read, verse) if verse is not None else read
    if plot:
        zipf, heaps = charts(part)
        write_plot(zipf, plot, heaps)
    if json:
        print_json(facts(part))
    elif show:
        shown = harmless(part.content) if stdout.isatty() else part.content
        print(shown, end="" if part.content.endswith("\n") else "\n")
    else:
        for piece in picture(facts(part)):
            console().print(piece)
