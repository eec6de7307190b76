"""The verb ``model``: layers, tensors, parameters and FLOPs of a model."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, Json, Parquet, Plot, Set


def model(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A preset, a Hugging Face config.json (or its folder), or a journey file (TOML); none: the built-in walk.",
        ),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option("--sequence-length", metavar="S", min=1, help="Tokens of a sequence, for the FLOPs."),
    ] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="List every tensor with its shape and how it is cut.")
    ] = False,
    plot: Plot = None,
    csv: Csv = None,
    parquet: Parquet = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """Model: layers, tensors, exact parameters and FLOPs a token.

    Example: tokenwire model llama-3.1-405b --json

    --csv and --parquet write one row a tensor: name, part, layer, shape, elements, split, split_dim.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import answered
    from tokenwire.formats.model_source import journey_overrides
    from tokenwire.model.words import tensor_table
    from tokenwire.report.rooms.model import facts, picture
    from tokenwire.report.terminal import console

    file, overrides = journey_overrides(source)
    journey = read_journey(file, [*overrides, *(sets or [])])
    described = journey.model()
    if sequence_length is None and not overrides:
        sequence_length = journey.config.training.sequence_length
    found = facts(described, sequence_length=sequence_length, tensors=tensors)
    if plot:
        from tokenwire.report.plots import write_scene

        write_scene("model", journey, plot)
    if not answered(lambda: tensor_table(described.architecture), lambda: found, json=json, csv=csv, parquet=parquet):
        for part in picture(found):
            console().print(part)
