"""The verb ``collective``: one collective, its transfers, its time."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, Json, Parquet


def collective(
    op: Annotated[str, typer.Argument(metavar="OP", help="all_reduce, all_gather, reduce_scatter, all_to_all ...")],
    ranks: Annotated[int, typer.Option("--ranks", "-n", metavar="N", help="Ranks of the group.")] = 8,
    size: Annotated[
        str, typer.Option("--bytes", "-b", metavar="SIZE", help="Bytes of the full tensor of one call, e.g. 256MiB.")
    ] = "256 MiB",
    topology: Annotated[
        str, typer.Option("--topology", metavar="T", help="ring, switch, mesh, torus2d or torus3d.")
    ] = "switch",
    link: Annotated[str, typer.Option("--link", metavar="RATE", help="Rate of a link, one way.")] = "400 Gb/s",
    latency: Annotated[str, typer.Option("--latency", metavar="TIME", help="Latency of a link.")] = "500 ns",
    chunks: Annotated[int, typer.Option("--chunks", metavar="K", help="Pieces of the message that pipeline.")] = 1,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", metavar="A", help="ring, bidirectional, tree, halving_doubling ...")
    ] = None,
    transfers: Annotated[bool, typer.Option("--transfers", help="Show every transfer, step by step.")] = False,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """How it is said: one collective as transfers between ranks, with its time and bus bandwidth.

    Example: tokenwire collective all_reduce --ranks 1024 --bytes 256MiB --topology ring --link "50 GiB/s" --latency
    "500 ns" --chunks 4

    --csv and --parquet write the transfers.
    """
    from tokenwire.cli.output import print_json, print_table, write_table
    from tokenwire.collectives import reading

    asked = reading.read(op, algorithm, ranks, size, topology, link, latency, chunks)
    if csv or parquet:
        write_table(reading.transfer_frame(asked), csv=csv, parquet=parquet)
        return
    facts = reading.facts(asked, with_transfers=transfers)
    if json:
        print_json(facts)
        return
    rows, right = reading.rows(facts)
    print_table(rows, ["what", "value"], right=right, title=facts["name"])
    print(facts["derivation"])
    if facts["because"]:
        print(f"  {facts['because']}")
    print(f"  source: {facts['source']}")
    if transfers:
        shown = [list(row.values()) for row in facts["transfers"][: reading.SHOWN]]
        print_table(shown, list(reading.COLUMNS), right=list(reading.COLUMNS))
        if len(facts["transfers"]) > reading.SHOWN:
            print(f"... {len(facts['transfers']):,} transfers in all: --csv FILE or --json has them")
