"""Measurements to read: what ranks sent, predicted and counted, and whether the two agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tokenwire.report.terminal import bar, console, table
from tokenwire.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tokenwire.measure.calibrate import Calibration
    from tokenwire.measure.compare import Measurement, Settings
    from tokenwire.measure.hosts import NetworkConfig

RANKS = 4
"""Ranks of a mode where no number is asked for."""


def network_config(**values: Any) -> NetworkConfig:
    """Return how the hosts are joined; rate and delay are texts with units, None leaves a default."""
    from tokenwire.measure.hosts import NetworkConfig
    from tokenwire.units import parse_rate, parse_seconds

    given = {key: value for key, value in values.items() if value is not None}
    for key, parse in (("rate", parse_rate), ("delay", parse_seconds)):
        if key in given:
            given[key] = parse(given[key])
    if given.get("kind") not in (None, "auto", "namespaces", "loopback"):
        from tokenwire.errors import unknown

        raise unknown("network", str(given["kind"])[:80], ("auto", "namespaces", "loopback"))
    return NetworkConfig(**given)


def measured(
    source: str | None, sets: list[str] | None, mode: str | None, ranks: int | None, make: Callable[[int], Settings],
    note: Callable[[str], None] | None = None,
) -> Measurement:  # fmt: skip
    """Return the measurement of a journey's plan, or of a mode on its text and model; ``make`` gives the settings for so many ranks."""
    from tokenwire.journey import Journey
    from tokenwire.journey.journey import require_vocabulary
    from tokenwire.measure.compare import measure
    from tokenwire.measure.training import mode_of, plan_of

    chosen = mode_of(mode) if mode is not None else None
    of_cluster = [f"cluster.gpus={ranks}"] if ranks is not None and chosen is None else []
    if of_cluster and source is None:
        of_cluster = [f"cluster.gpus_per_node={ranks}"]
    journey = Journey.read(source, overrides=[*(sets or []), *of_cluster], base="measured")
    arch = journey.model().architecture
    if chosen is None:
        plan = journey.plan()
        settings = make(plan.world)
    else:
        settings = make(RANKS if ranks is None else ranks)
        plan = plan_of(chosen, journey.config.training, arch, settings.network.ranks)
    require_vocabulary(journey)
    return measure(arch, plan, journey.encoding().ids, settings, chosen, note)


def show_measurement(measurement: Measurement) -> None:
    """Print the measurement: setting, loss, ranks, what was missed, bursts beside phases."""
    m, out = measurement, console().print
    verdict = m.verdict()
    out(f"{m.said} on {m.network}")
    out(f"{m.ranks} ranks, {m.steps} steps in {format_seconds(m.seconds)}; compared from step {m.steady} on")
    out("loss by step: " + " ".join(f"{loss:.3f}" for loss in m.losses))
    out(f"prediction: {m.prediction}")
    rows = [
        (row["rank"], f"{row['payload_predicted']:,}", _off(row, "payload_predicted", "payload_captured"),
         f"{row['messages_predicted']:,}", _off(row, "messages_predicted", "messages_captured"), f"{row['stream_predicted']:,}",
         _off(row, "stream_predicted", "stream_sockets"), _off(row, "stream_predicted", "stream_captured"))
        for row in m.by_rank()
    ]  # fmt: skip
    columns = ("rank", "payload", "seen", "messages", "seen ", "in TCP", "sockets", "capture")
    out(table(rows, columns, right=columns, title="sent by each rank, bytes: predicted, and how much more was counted"))
    _show_three_ways(m)
    for line in verdict_lines(m, verdict):
        out(line)
    misses = [row for row in m.compared().iter_rows(named=True) if row["stream_predicted"] != row["stream_sockets"]]
    if misses:
        shown = [(row["step"], f"{row['src']} > {row['dst']}", f"{row['stream_predicted']:,}", f"{row['stream_sockets']:,}",
                  f"{row['stream_sockets'] - row['stream_predicted']:+,}") for row in misses[:10]]  # fmt: skip
        out(table(shown, ("step", "pair", "predicted", "counted", "miss"), right=("predicted", "counted", "miss"),
                  title=f"pairs that differ ({len(misses)}), bytes in TCP"))  # fmt: skip
    _show_bursts(m)
    for text in m.notes:
        out(f"note: {text}")


def verdict_lines(m: Measurement, verdict: dict[str, Any]) -> list[str]:
    """Return what the comparison comes to, a line a kind of count."""
    lines = [f"bytes in TCP: worst rank off by {verdict['stream_worst_rank']:.4%}, {verdict['pairs_different']} of "
             f"{verdict['pairs']} pairs and steps differ (aim {0.001:.1%})"]  # fmt: skip
    if verdict["messages_missed"] is not None:
        worst = verdict["payload_worst_rank"]
        lines += [
            f"payload by gloo's headers: worst rank off by {worst:.4%}; messages: "
            + ("exact" if verdict["messages_exact"] else f"{verdict['messages_missed']:,} off"),
            *_frame_lines(m, verdict),
            f"capture and sockets: {verdict['capture_minus_sockets_bytes']:,} B apart; {m.dropped:,} packets missed",
        ]
    else:
        lines.append("no capture: payload and messages apart are not seen")
    if m.timing is not None:
        lines.append(f"communication a step: {format_seconds(m.timing.predicted)} predicted from components, {format_seconds(m.timing.measured)} "
                     f"measured without waiting for late ranks, {m.timing.off:+.1%}")  # fmt: skip
    lines.append(f"set-up {format_bytes(m.setup_bytes)} and the store's talk {format_bytes(m.store_bytes)} are counted apart")
    return lines


def _frame_lines(m: Measurement, verdict: dict[str, Any]) -> list[str]:
    again = f"sent again: {format_bytes(m.total('resent') or 0)}"
    if not m.frames_cut:
        return [f"frames: not compared, for the capture sees sends before the card cuts them; {again}"]
    acks = verdict["acks"]
    return [
        f"frames with data: {m.total('data_frames_captured'):,} seen, {m.total('data_frames_predicted'):,} predicted; their bytes off by "
        f"{verdict['data_frame_bytes_off']:.2%} (aim 1%); {again}",
        f"acknowledgements alone, TCP's own choice: {acks['captured']:,} seen, {acks['expected']:,} at one a message, {acks['most']:,} at most; "
        f"all frames, with one a message: bytes off by {verdict['frame_bytes_off']:.2%}",
    ]


def _show_three_ways(m: Measurement) -> None:
    if not m.three_ways:
        return
    rows = [(row["rank"], *(f"{row[f'{kind}_{way}']:,}" if row[f"{kind}_{way}"] is not None else "-" for kind in ("packets", "bytes")
                            for way in ("interface", "sockets", "capture")), f"{row['option_bytes'] or 0:,}") for row in m.three_ways]  # fmt: skip
    columns = ("rank", "packets", "sockets", "capture", "bytes", "sockets ", "capture ", "options")
    out = console().print
    out(table(rows, columns, right=columns, title="all that each rank sent, the store's talk too, by its interface, its sockets, the capture"))
    apart = m.apart()
    if apart is None:
        out("sockets count segments, interface and capture sends that a card has yet to cut into them, each with one header")
    else:
        out(f"sockets count streams, and 66 B of headers a packet are added; options are TCP's besides those. The three are {apart['packets']:,} "
            f"packets and {apart['bytes']:,} B apart at most")  # fmt: skip


def _off(row: dict[str, Any], predicted: str, counted: str) -> str:
    return "-" if row[counted] is None else f"{row[counted] - row[predicted]:+,}"


def _show_bursts(m: Measurement) -> None:
    if not m.bursts:
        return
    from tokenwire.measure.compare.bursts import by_group

    per, groups = 4, by_group(m.bursts)
    rows = {name: [sum(bins[at : at + per]) for at in range(0, len(bins), per)] for name, bins in groups.items()}
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    width, most = m.bursts[0]["width_s"] * per, max(sums) or 1
    out = console().print
    out(table([(format_seconds(k * width), *(format_bytes(row[k]) for row in rows.values()), bar(size / most, 30))
               for k, size in enumerate(sums)],
              ("from", *groups, ""), right=("from", *groups), title="frames of one step over time, by group"))  # fmt: skip
    order = ", ".join(f"{row['phase']} over {row['group']} {format_bytes(row['payload_bytes'])}" for row in m.phases)
    out(f"predicted order: {order}")


def calibrated(path: str, config: NetworkConfig, timeout: float, note: Callable[[str], None] | None = None) -> Calibration:
    """Measure this machine by component and write the calibration to ``path``."""
    from tokenwire.files import whole_or_nothing
    from tokenwire.measure.calibrate import calibrate, calibration_text

    # Opened before anything is measured, so that a path that cannot be written is said at once.
    with whole_or_nothing(path) as file:
        found = calibrate(config, timeout, note)
        file.write(calibration_text(found).encode())
    return found


def show_calibration(c: Calibration, path: str) -> None:
    """Print what was measured: products, attention, calls by size."""
    out = console().print
    out(f"{c.machine}; {c.network}")
    products = [(f"{m} x {k} by {k} x {n}", f"{rate / 1e9:.2f}") for m, k, n, rate in c.matmul]
    products += [(f"attention, {s} places, {heads} heads of {d}", f"{rate / 1e9:.2f}") for s, heads, _, d, rate in c.attention]
    out(table(products, ("fp32, one thread a rank, all at once", "GFLOP/s"), right=("GFLOP/s",)))
    rows = [(op, n, format_bytes(size, binary=True), format_seconds(seconds)) for (op, n), points in c.calls.items() for size, seconds in points]
    out(table(rows, ("call", "ranks", "bytes", "time"), right=("ranks", "bytes", "time")))
    out(f"written to {path}; use it with --calibration {path}")
