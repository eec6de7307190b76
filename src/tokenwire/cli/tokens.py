"""The verb ``tokens``: tokenize, count, pack, batch; save a trained tokenizer."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set


def tokens(
    journey: JourneyFile = None,
    text: Annotated[str | None, typer.Option("--text", metavar="FILE", help="Read this text (- is stdin).")] = None,
    encoding: Annotated[str | None, typer.Option("--encoding", help="Encoding of the text, if not UTF-8.")] = None,
    verse: Annotated[str | None, typer.Option("--verse", metavar="PLACE", help="Show the tokens of this part.")] = None,
    save: Annotated[str | None, typer.Option("--save", metavar="FILE", help="Write the tokenizer.json.")] = None,
    plot: Plot = None,
    csv: Csv = None,
    parquet: Parquet = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """Tokens: tokenize the text, count, pack into sequences and batches.

    Example: tokenwire tokens --set tokenizer.kind=unigram --save tokenizer.json

    A file that is no .toml is read as a text. --csv and --parquet write one row a token: id, text, span in bytes.
    --plot draws how long the tokens of the whole text are, and into how many its words are cut.
    """
    from tokenwire.cli.options import journey_or_text, read_journey, with_text
    from tokenwire.cli.output import answered
    from tokenwire.report.charts.tokens import charts
    from tokenwire.report.comparison import check_ending, write_plot
    from tokenwire.report.rooms.tokens import facts, picture, save_tokenizer, table_of
    from tokenwire.report.terminal import console

    if plot:
        check_ending(plot)
    if text is None and journey is not None and journey != "-":
        read = journey_or_text(journey, sets, encoding)
    else:
        read = read_journey(journey, [*with_text(text, encoding), *(sets or [])])
    if save:
        save_tokenizer(read, save)
    if plot:
        lengths, pieces = charts(read)
        write_plot(lengths, plot, pieces)
    if not answered(lambda: table_of(read, verse), lambda: facts(read, verse), json=json, csv=csv, parquet=parquet):
        for piece in picture(facts(read, verse)):
            console().print(piece)
