"""The verb ``collective``: one collective, its transfers, its time; or what NCCL picks for it on a real cluster."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, Json, Parquet


def collective(
    op: Annotated[str, typer.Argument(metavar="OP", help="all_reduce, all_gather, reduce_scatter, all_to_all ...")],
    ranks: Annotated[int | None, typer.Option("--ranks", "-n", metavar="N", help="Ranks of the group (8).")] = None,
    size: Annotated[
        str | None, typer.Option("--bytes", "-b", metavar="SIZE", help="Bytes of the full tensor of one call (256 MiB).")
    ] = None,
    matrix: Annotated[
        str | None,
        typer.Option("--matrix", metavar="FILE", help="CSV for all_to_allv: bytes, a row a sender, a column a receiver."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", metavar="T", help="ring, switch (default), mesh, torus2d, torus3d; or a cluster: its name or file (.toml; .xml of NCCL)."
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="RATE", help="Rate of a link, one way (400 Gb/s); of a cluster's NICs.")
    ] = None,
    latency: Annotated[str | None, typer.Option("--latency", metavar="TIME", help="Latency of a link (500 ns).")] = None,
    chunks: Annotated[int | None, typer.Option("--chunks", metavar="K", help="Pieces of the message that pipeline (1).")] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", metavar="A", help="ring, tree, halving_doubling ...; nccl: what NCCL picks.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="A-B", help="On a cluster: many sizes, e.g. 8B-8GiB, each twice the last.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE", help="On a cluster: type of an element.")] = "fp32",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="On a cluster: NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS."),
    ] = None,
    sharp: Annotated[bool, typer.Option("--sharp", help="On a cluster: switches of the network add (CollNet).")] = False,
    plot: Annotated[str | None, typer.Option("--plot", metavar="FILE", help="On a cluster: busbw by size, .svg, .html or .png.")] = None,
    transfers: Annotated[bool, typer.Option("--transfers", help="Show every transfer, step by step.")] = False,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """How it is said: one collective as transfers between ranks, with its time and bus bandwidth.

    Example: tokenwire collective all_reduce --ranks 1024 --bytes 256MiB --topology ring --link "50 GiB/s" --latency
    "500 ns" --chunks 4

    Uneven: tokenwire collective all_to_allv --matrix bytes.csv --algorithm pxn

    What NCCL picks: tokenwire collective all_reduce --topology dgx-h100-superpod --ranks 64 --sizes 8B-8GiB

    --csv and --parquet write the transfers, or the table of sizes.
    """
    from tokenwire.report.rooms.collective import is_cluster

    if is_cluster(topology, algorithm):
        _on_a_cluster(op, topology, algorithm, ranks, sizes or size, link, dtype, env or [], sharp, plot, json, csv, parquet,
                      {"--latency": latency, "--chunks": chunks, "--transfers": transfers or None, "--matrix": matrix})  # fmt: skip
        return
    _on_links(op, topology, algorithm, ranks, size, matrix, link, latency, chunks, transfers, json, csv, parquet,
              {"--sizes": sizes, "--env": env, "--plot": plot, "--sharp": sharp or None})  # fmt: skip


def _refuse(given: dict[str, object | None], rule: str, nearest: str) -> None:
    from tokenwire.errors import InputError

    for option, value in given.items():
        if value is not None:
            raise InputError(option, rule=rule, nearest=nearest)


def _on_links(
    op: str, topology: str | None, algorithm: str | None, ranks: int | None, size: str | None, matrix: str | None, link: str | None,
    latency: str | None, chunks: int | None, transfers: bool, json: bool, csv: str | None, parquet: str | None, foreign: dict[str, object | None],
) -> None:  # fmt: skip
    from tokenwire.cli.output import answered, print_table
    from tokenwire.collectives import reading
    from tokenwire.report.rooms.collective import check_topology
    from tokenwire.report.terminal import folded

    check_topology(topology)
    _refuse(foreign, "is for a cluster", "--topology dgx-h100-superpod")
    asked = reading.read(op, algorithm, ranks, size, topology or "switch", link or "400 Gb/s", latency or "500 ns",
                         1 if chunks is None else chunks, matrix)  # fmt: skip
    if answered(
        lambda: reading.transfer_frame(asked), lambda: reading.facts(asked, with_transfers=transfers), json=json, csv=csv, parquet=parquet
    ):  # fmt: skip
        return
    facts = reading.facts(asked, with_transfers=transfers)
    rows, right = reading.rows(facts)
    print_table(rows, ["what", "value"], right=right, title=facts["name"])
    print(folded(facts["derivation"]))
    if facts["because"]:
        print(folded(f"  {facts['because']}"))
    print(folded(f"  source: {facts['source']}"))
    if transfers:
        shown = [list(row.values()) for row in facts["transfers"][: reading.SHOWN]]
        print_table(shown, list(reading.COLUMNS), right=list(reading.COLUMNS))
        if len(facts["transfers"]) > reading.SHOWN:
            print(f"... {len(facts['transfers']):,} transfers in all: --csv FILE or --json has them")


def _on_a_cluster(
    op: str, topology: str | None, algorithm: str | None, ranks: int | None, sizes: str | None, link: str | None, dtype: str, env: list[str],
    sharp: bool, plot: str | None, json: bool, csv: str | None, parquet: str | None, foreign: dict[str, object | None],
) -> None:  # fmt: skip
    from tokenwire.cli.output import answered
    from tokenwire.collectives.reading import DEFAULT_RANKS, DEFAULT_SIZE
    from tokenwire.report.comparison import check_ending, write_plot
    from tokenwire.report.rooms import collective as room
    from tokenwire.report.terminal import console

    _refuse(foreign, "is for a small topology: NCCL has its own", "--topology switch, or without it")
    if plot:
        check_ending(plot)
    asked = room.read(op, topology, algorithm, DEFAULT_RANKS if ranks is None else ranks, sizes or DEFAULT_SIZE, link, dtype, env, sharp)
    if plot:
        write_plot(room.chart(asked), plot)
    if answered(lambda: room.frame(asked), lambda: room.facts(asked), json=json, csv=csv, parquet=parquet):
        return
    # All of it before any of it: what cannot be is said alone.
    for part in list(room.picture(asked)):
        console().print(part)
