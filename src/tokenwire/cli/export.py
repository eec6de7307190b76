"""The verb ``export``: traffic in formats of other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenwire.cli.options import JourneyFile, Json, Set

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback()
def export() -> None:
    """Write traffic in formats of other tools.

    Example: tokenwire export pcap --out step.pcap --max-packets 10000
    """


@app.command()
def pcap(
    journey: JourneyFile = None,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="The capture to write; - is stdout.")
    ] = "step.pcap",
    link: Annotated[
        str | None,
        typer.Option("--link", metavar="NODE.NIC", help="Whose link, e.g. 0.3; none: the busiest NIC's."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="Not the step, but one message from node 0 to node 1."),
    ] = None,
    message: Annotated[
        str, typer.Option("--message", metavar="SIZE", help="Cut transfers into such messages.")
    ] = "512KiB",
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Of the link; none: the cluster's NICs'.")
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="FILE", help="Payloads are these bytes, repeated; none: zeros."),
    ] = None,
    snap_length: Annotated[
        int, typer.Option("--snap-length", metavar="BYTES", help="Keep so much of a packet.")
    ] = 262_144,
    max_packets: Annotated[
        int | None, typer.Option("--max-packets", metavar="N", help="Stop after so many.")
    ] = None,
    acknowledgements: Annotated[bool, typer.Option(help="Write what receivers answer, too.")] = True,
    sets: Set = None,
    json: Json = False,
) -> None:
    """Write what a step's messages put on the link of a NIC as pcap: real headers, checks, sequence numbers.

    Example: tokenwire export pcap --out step.pcap --link 0.0 --max-packets 10000

    Messages follow each other at the rate of the link, in the order of the step's operations.
    """
    from tokenwire.cli.options import read_journey
    from tokenwire.cli.output import print_json
    from tokenwire.files import read_limited
    from tokenwire.report.terminal import console
    from tokenwire.units import parse_bytes, parse_rate
    from tokenwire.wire.synthesis import export_capture, read_nic

    read = read_journey(journey, sets)
    fabric = read.fabric()
    transfers = None if size is not None else read.traffic().transfers
    written = export_capture(
        out, read.config.wire, rate=parse_rate(rate) if rate else fabric.nic_rate,
        transfers=transfers, one=None if size is None else parse_bytes(size), nic=read_nic(link) if link else None,
        gpus_per_node=fabric.gpus_per_node, nics_per_node=fabric.facts.nics_per_node, largest=parse_bytes(message),
        content=read_limited(payload, limit=2**30, what="payload") if payload else None, snap_length=snap_length,
        max_packets=max_packets, acknowledged=acknowledgements,
    )  # fmt: skip
    if json and out != "-":
        print_json(written)
    elif out != "-":
        console().print(written.line, soft_wrap=True)
