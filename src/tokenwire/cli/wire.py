"""The verb ``wire``: messages as packets, header layouts, bits on the lane, and captures of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set

if TYPE_CHECKING:
    from tokenwire.wire import WireConfig


class _Framing(TyperGroup):
    # `tokenwire wire` alone, or with options or a journey file, is `tokenwire wire framing`.
    def parse_args(self, ctx, args):  # type: ignore[no-untyped-def]
        """Put ``framing`` before arguments that begin with no command."""
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["framing", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Framing,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def wire() -> None:
    """Bits: messages become packets, packets frames, frames line code; captures are read.

    Example: tokenwire wire --bytes 128KiB --mtu 4096 --transport rocev2

    Without a command it is `framing`: tokenwire wire framing --help shows its options.
    """


Transport = Annotated[
    str | None, typer.Option("--transport", metavar="NAME", help="rocev2, infiniband, tcp or uet.")
]
Mtu = Annotated[
    int | None, typer.Option("--mtu", metavar="BYTES", help="Path MTU: payload of a packet; for TCP the IP packet.")
]
Ip = Annotated[int | None, typer.Option("--ip", metavar="4|6", help="Version of IP.")]
Vlan = Annotated[int | None, typer.Option("--vlan", metavar="N", help="Number of the virtual network.")]
Operation = Annotated[
    str | None, typer.Option("--operation", metavar="NAME", help="RDMA: write, write_with_immediate or send.")
]


def _config(journey: str | None, sets: list[str] | None, given: dict[str, Any]) -> WireConfig:
    from tokenwire.wire.config import WireConfig, changed

    if journey is None and not sets:
        return changed(WireConfig(), given)
    from tokenwire.cli.options import read_journey

    return changed(read_journey(journey, sets).config.wire, given)


@app.command()
def framing(
    journey: JourneyFile = None,
    size: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="One message, e.g. 128KiB; none: the whole table."),
    ] = None,
    transport: Transport = None,
    mtu: Mtu = None,
    ip: Ip = None,
    vlan: Vlan = None,
    operation: Operation = None,
    line: Annotated[
        str | None, typer.Option("--line", metavar="NAME", help="Also bits on a line, e.g. 400gbase-r4.")
    ] = None,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Packets, headers and efficiency of a message; without --bytes the table by transport, MTU and size.

    Example: tokenwire wire --bytes 128KiB --transport tcp --mtu 9000

    --plot draws the share of payload by size of the message, a line for each MTU.
    """
    from tokenwire.cli.output import answered, print_json
    from tokenwire.errors import InputError
    from tokenwire.report.charts import wire as charts
    from tokenwire.report.comparison import check_ending, write_plot
    from tokenwire.report.rooms import wire as pictures
    from tokenwire.report.terminal import console
    from tokenwire.units import parse_bytes
    from tokenwire.wire import framing as frame
    from tokenwire.wire.efficiency import common_configs, efficiencies, efficiency_table
    from tokenwire.wire.line import on_the_lane

    if plot:
        charts.check_whole(plot, size)
        check_ending(plot)
    given = {"transport": transport, "mtu": mtu, "ip_version": ip, "vlan": vlan, "operation": operation}
    if size is None:
        only = journey or sets or any(value is not None for value in (mtu, ip, vlan, operation))
        configs = (
            [_config(journey, sets, given)] if only else common_configs([transport] if transport else None)
        )
        if plot:
            write_plot(charts.efficiency(configs), plot)
        rows = efficiencies(configs)
        if not answered(lambda: efficiency_table(rows), lambda: {"rows": rows}, json=json, csv=csv, parquet=parquet):
            for part in pictures.efficiency_picture(rows):
                console().print(part)
        return
    if csv or parquet:
        raise InputError("--csv" if csv else "--parquet", rule="is for the table of all sizes", nearest="--json, or no --bytes")
    result = frame(parse_bytes(size), _config(journey, sets, given))
    lane = on_the_lane(result.wire_bytes, line) if line else None
    if json:
        print_json({**result.as_dict(), **({"lane": lane.as_dict()} if lane else {})})
        return
    for part in [*pictures.framing_picture(result), *(pictures.lane_picture(lane) if lane else ())]:
        console().print(part)


@app.command()
def fields(
    transport: Annotated[
        str, typer.Argument(metavar="TRANSPORT", help="rocev2, infiniband, tcp or uet.")
    ] = "rocev2",
    ip: Ip = None,
    vlan: Vlan = None,
    operation: Operation = None,
    json: Json = False,
) -> None:
    """Header layouts of a transport: every field, its bits and what it means.

    Example: tokenwire wire fields rocev2
    """
    from tokenwire.cli.output import print_json
    from tokenwire.report.rooms.wire import headers_picture
    from tokenwire.report.terminal import console
    from tokenwire.wire.transports import transport_of

    config = _config(
        None, None, {"transport": transport, "ip_version": ip, "vlan": vlan, "operation": operation}
    )
    layers = transport_of(config).layers(config)
    if json:
        print_json([{**layer.header.as_dict(), "on": layer.on} for layer in layers])
        return
    on = {
        "every": "every packet",
        "first": "the first packet of a message",
        "last": "the last packet of a message",
    }
    for part in headers_picture([(layer.header, on[layer.on]) for layer in layers]):
        console().print(part)


@app.command()
def packet(
    number: Annotated[int, typer.Argument(metavar="N", help="Which packet of the message, from 0.")] = 0,
    size: Annotated[str, typer.Option("--bytes", metavar="SIZE", help="Size of the message.")] = "8KiB",
    transport: Transport = None,
    mtu: Mtu = None,
    ip: Ip = None,
    vlan: Vlan = None,
    operation: Operation = None,
    line_code: Annotated[
        bool, typer.Option("--line-code", help="Show the first 64b/66b blocks, scrambled.")
    ] = False,
    json: Json = False,
) -> None:
    """One packet of a message of zeros, field by field, checks and all.

    Example: tokenwire wire packet 1 --bytes 8KiB --line-code
    """
    from tokenwire.cli.output import print_json
    from tokenwire.report.rooms.wire import packet_picture
    from tokenwire.report.terminal import console
    from tokenwire.units import parse_bytes
    from tokenwire.wire import Connection, place_of
    from tokenwire.wire import packet as make
    from tokenwire.wire.line import block_lines

    given = {"transport": transport, "mtu": mtu, "ip_version": ip, "vlan": vlan, "operation": operation}
    config = _config(None, None, given)
    place = place_of(parse_bytes(size), config, number)
    made = make(bytes(place.length), place, config, Connection())
    if json:
        print_json(made.as_dict())
        return
    for part in packet_picture(made):
        console().print(part)
    for text in block_lines(made.data) if line_code else ():
        console().print(text)


@app.command()
def read(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A pcap or pcapng file, also gzipped; - is stdin.")
    ],
    pause: Annotated[
        str, typer.Option("--pause", metavar="TIME", help="Silence that ends a burst.")
    ] = "10 us",
    max_packets: Annotated[
        int | None, typer.Option("--max-packets", metavar="N", help="Stop after so many.")
    ] = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """A capture: flows, volumes, RDMA operations, queue pairs, repeats, bursts, and a guess of the collective.

    Example: tokenwire wire read step.pcap --json
    """
    from tokenwire.cli.output import answered
    from tokenwire.report.rooms.wire import capture_picture
    from tokenwire.report.terminal import console
    from tokenwire.units import parse_seconds
    from tokenwire.wire.capture import summarize

    capture = summarize(file, limit=max_packets, pause=round(parse_seconds(pause) * 1e9))
    if not answered(capture.table, lambda: capture, json=json, csv=csv, parquet=parquet):
        for part in capture_picture(capture):
            console().print(part)
