"""The verb ``compare``: design choices side by side."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set


def compare(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="tokenizers, width or parallelism.")],
    journey: JourneyFile = None,
    text: Annotated[str | None, typer.Option("--text", metavar="FILE", help="Read this text (- is stdin).")] = None,
    encoding: Annotated[str | None, typer.Option("--encoding", help="Encoding of the text, if not UTF-8.")] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="GPUs (8; parallelism: the whole cluster).")
    ] = None,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Design choices side by side: what a tokenizer, a width or a method of parallelization asks of the network.

    Example: tokenwire compare tokenizers --text commedia.txt --plot words.html
    """
    from tokenwire.cli.options import read_journey, with_text
    from tokenwire.cli.output import answered
    from tokenwire.report.comparison import check_ending, check_name, picture, write_plot
    from tokenwire.report.comparison import compare as compared
    from tokenwire.report.terminal import console

    check_name(what)
    if plot:
        check_ending(plot)
    of_cluster = [f"cluster.gpus={gpus}"] if gpus is not None and what == "parallelism" else []
    read = read_journey(journey, [*with_text(text, encoding), *(sets or []), *of_cluster])
    result = compared(what, read, gpus if gpus is not None else 8)
    if plot:
        write_plot(result.chart, plot)
    if not answered(lambda: result.frame, lambda: result, json=json, csv=csv, parquet=parquet):
        for part in picture(result):
            console().print(part)
