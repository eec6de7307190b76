"""The verb ``measure``: real training across hosts on this machine, counted and compared."""

from typing import Annotated

import typer

from tokenwire.cli.options import Csv, JourneyFile, Json, Parquet, Plot, Set


def measure(
    journey: JourneyFile = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="A parallelism instead of the journey's plan: ddp, fsdp2, tp-sp ... (list: --mode list).")
    ] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", metavar="N", help="Ranks, 2 to 8 or more (4).")] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Optimizer steps; the first two are not compared.")] = 5,
    network: Annotated[str, typer.Option("--network", help="auto, namespaces (needs root) or loopback.")] = "auto",
    mtu: Annotated[int | None, typer.Option("--mtu", metavar="BYTES", help="MTU of every host (1500).")] = None,
    offloads: Annotated[bool, typer.Option("--offloads", help="Let the card cut large sends: larger frames.")] = False,
    rate: Annotated[str | None, typer.Option("--rate", help="Rate of every host's link, e.g. '1 Gb/s'.")] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Delay of what a host sends, e.g. '1 ms'.")] = None,
    ranks_per_node: Annotated[
        int | None, typer.Option("--ranks-per-node", metavar="N", help="A bridge a node and one between them.")
    ] = None,
    routed: Annotated[bool, typer.Option("--routed", help="With it: a subnet a node, a router between.")] = False,
    capture: Annotated[bool, typer.Option("--capture/--no-capture", help="Capture packets (tcpdump).")] = True,
    timeout: Annotated[str, typer.Option("--timeout", help="When the run is given up.")] = "300 s",
    calibrate: Annotated[
        str | None, typer.Option("--calibrate", metavar="FILE", help="Do not train: measure products and calls by size, write them.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help="Also predict and time communication, by such a file.")
    ] = None,
    report: Annotated[str | None, typer.Option("--report", metavar="FILE", help="Write a page: .html.")] = None,
    plot: Plot = None,
    sets: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
) -> None:
    """Train for real across hosts on this machine, count what crosses, and compare with the prediction.

    Example: tokenwire measure --mode ddp --ranks 4 --steps 5 --report report.html

    Exit status 1 where a rank's bytes are off by more than 0.1 %.
    """
    from tokenwire.cli.output import answered, print_json, print_table, progress
    from tokenwire.measure.calibrate import read_calibration
    from tokenwire.measure.compare import Settings
    from tokenwire.measure.hosts import NetworkConfig
    from tokenwire.measure.training import MODES
    from tokenwire.report.drawn import check_ending, write_drawings
    from tokenwire.report.rooms.measure import (
        RANKS,
        calibrated,
        measured,
        network_config,
        show_calibration,
        show_measurement,
    )
    from tokenwire.report.rooms.measure_page import check_page, pictures, write_page
    from tokenwire.units import parse_seconds

    if mode == "list":
        print_table([(name, one.said) for name, one in MODES.items()], ("mode", "what it is"))
        return
    if report:
        check_page(report)
    if plot:
        check_ending(plot)

    def hosts(count: int) -> NetworkConfig:
        return network_config(ranks=count, kind=network, mtu=mtu, offloads=offloads, rate=rate, delay=delay,
                              ranks_per_node=ranks_per_node, routed=routed)  # fmt: skip

    if calibrate:
        found = calibrated(calibrate, hosts(RANKS if ranks is None else ranks), parse_seconds(timeout), progress())
        print_json(found) if json else show_calibration(found, calibrate)
        return
    by = read_calibration(calibration) if calibration else None

    def settings(count: int) -> Settings:
        return Settings(hosts(count), steps, parse_seconds(timeout), capture, calibration=by)

    result = measured(journey, sets, mode, ranks, settings, progress())
    if report:
        write_page(result, report)
    if plot:
        write_drawings(plot, result.said, pictures(result))
    if not answered(lambda: result.pairs, lambda: result, json=json, csv=csv, parquet=parquet):
        show_measurement(result)
    if not result.verdict()["payload_within_aim"]:
        raise typer.Exit(1)
