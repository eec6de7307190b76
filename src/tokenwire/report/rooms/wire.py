"""Packets on the wire: efficiency tables, one message's framing, header layouts, lanes, and what a capture says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tokenwire.report.terminal import bar, table
from tokenwire.units import format_bytes, format_count, format_rate, format_seconds
from tokenwire.wire.transports import TRANSPORTS

if TYPE_CHECKING:
    from tokenwire.figures import Figure
    from tokenwire.wire.capture import Capture
    from tokenwire.wire.capture.summary import Icrc
    from tokenwire.wire.efficiency import Efficiency
    from tokenwire.wire.framing import Framing
    from tokenwire.wire.headers import Header
    from tokenwire.wire.line import Lane
    from tokenwire.wire.packet import Packet

SHOWN = 12
"""Rows of a table of a capture that a screen shows."""


def efficiency_picture(rows: Sequence[Efficiency]) -> Iterator[Any]:
    """Yield the efficiency as one table: a row a transport and MTU, a column a size of message."""
    sizes = list(dict.fromkeys(row.message_bytes for row in rows))
    cells: dict[tuple[str, int], dict[int, str]] = {}
    for row in rows:
        over = "" if row.ip_version is None else f" IPv{row.ip_version}"
        cells.setdefault((row.transport + over, row.mtu), {})[row.message_bytes] = (
            f"{row.efficiency * 100:.2f}"
        )
    columns = [format_bytes(size, binary=True) for size in sizes]
    yield table(
        [(name, f"{mtu:,}", *[of.get(size, "") for size in sizes]) for (name, mtu), of in cells.items()],
        ["transport", "MTU, B", *columns], right=["MTU, B", *columns],
        title="payload in % of bytes on the wire, by size of message",
    )  # fmt: skip


def figures_table(figures: Sequence[Figure]) -> Any:
    """Return figures with their derivations."""
    rows = []
    for figure in figures:
        exact = f"{figure.value:,.0f} B" if figure.unit == "B" else figure.text
        if figure.unit == "%":
            exact = f"{figure.value * 100:.3f} %"
        rows.append(
            (figure.name, exact, " = ".join(part for part in (figure.formula, figure.values) if part))
        )
    return table(rows, ["figure", "value", "from"], right=["value"])


def framing_picture(framing: Framing) -> Iterator[Any]:
    """Yield one message's packets, headers and efficiency."""
    rows = [("payload", f"{framing.payload_bytes:,}", f"{100 * framing.efficiency:.3f}")]
    for name, size in framing.header_bytes.items():
        if size:
            share = 100 * size / framing.wire_bytes if framing.wire_bytes else 0.0
            rows.append((name, f"{size:,}", f"{share:.3f}"))
    rows.append(("on the wire", f"{framing.wire_bytes:,}", "100" if framing.wire_bytes else "0"))
    title = f"{framing.message_bytes:,} B by {framing.transport}, {TRANSPORTS[framing.transport].mtu_name} {framing.mtu:,} B: {framing.packets:,} packets"
    yield table(rows, ["layer", "bytes", "%"], right=["bytes", "%"], title=title)
    yield figures_table(framing.figures)


def lane_picture(lane: Lane) -> Iterator[Any]:
    """Yield the bits and symbols of a line."""
    yield f"on {lane.line}:"
    yield figures_table(lane.figures)


def headers_picture(headers: Sequence[tuple[Header, str]]) -> Iterator[Any]:
    """Yield the layouts of headers, each with where it stands and where it is defined."""
    for header, on in headers:
        rows, at = [], 0
        for field in header.fields:
            rows.append((f"{at // 8}.{at % 8}", field.bits, field.name, field.meaning))
            at += field.bits
        title = f"{header.name}: {header.title}, {header.size} B, on {on}; {header.source}"
        yield table(rows, ["byte.bit", "bits", "field", "meaning"], right=["byte.bit", "bits"], title=title)


def packet_picture(packet: Packet) -> Iterator[Any]:
    """Yield one packet: every field with its bytes and value."""
    rows = []
    for field in packet.fields:
        if field.layer in ("payload", "pad"):
            start = field.bit_offset // 8
            part = packet.data[start : start + min(8, field.bit_length // 8)]
            value = part.hex(" ") + (" ..." if field.bit_length > 64 else "")
        else:
            value = f"{field.value:#x}" if field.bit_length > 8 else str(field.value)
        rows.append((field.layer, field.name, f"{field.bit_offset // 8}", field.bit_length, value))
    place = packet.place
    title = (
        f"packet {place.index:,} of {place.packets:,}: {len(packet.data):,} B, payload bytes {place.offset:,} to "
        f"{place.offset + place.length:,} of {place.message_bytes:,}"
    )
    yield table(rows, ["layer", "field", "at byte", "bits", "value"], right=["at byte", "bits"], title=title)


def capture_picture(capture: Capture) -> Iterator[Any]:
    """Yield what a capture says: volumes, operations, hosts, flows, bursts, and the guess."""
    yield (
        f"{capture.path}: {capture.format}, {format_count(capture.packets)} packets, {format_bytes(capture.bytes)} of "
        f"frames, {format_bytes(capture.payload)} of payload in {format_seconds(capture.seconds)}"
    )
    for row in capture.by_direction():
        what = f"{capture.station} {row['direction']}" if row["direction"] != "between others" else "between other hosts"
        rate = f", {format_rate(row['bytes_per_s'])} on average" if row["bytes_per_s"] else ""
        yield f"{what}: {format_bytes(row['bytes'])} of frames, {format_bytes(row['payload_bytes'])} of payload{rate}"
    for problem in capture.problems:
        yield f"note: {problem}"
    counted = [
        ("cut by the capture", capture.cut),
        ("malformed", capture.malformed),
        ("not decoded", capture.undecoded),
    ]
    said = ", ".join(f"{count:,} {what}" for what, count in counted if count)
    if said:
        yield f"note: packets with headers {said}"
    if capture.vlans:
        yield f"VLANs: {', '.join(map(str, capture.vlans[:SHOWN]))}{' ...' if len(capture.vlans) > SHOWN else ''}"
    if capture.stacked_vlans:
        pairs = ", ".join(f"{outer}.{inner}" for outer, inner in capture.stacked_vlans[:SHOWN])
        yield f"double-tagged (outer.inner): {pairs}{' ...' if len(capture.stacked_vlans) > SHOWN else ''}"
    if capture.icrc.packets:
        yield _icrc(capture.icrc)
    yield table(
        [
            (row["transport"], f"{row['flows']:,}", f"{row['packets']:,}", format_bytes(row["bytes"]),
             format_bytes(row["payload_bytes"]), f"{row['repeated']:,}", f"{row['gaps']:,}")
            for row in capture.by_transport()
        ],
        ["transport", "flows", "packets", "frames", "payload", "repeated", "gaps"],
        right=["flows", "packets", "frames", "payload", "repeated", "gaps"],
    )  # fmt: skip
    operations = capture.by_opcode()
    if operations:
        rows = [
            (row["operation"], f"{row['packets']:,}", format_bytes(row["payload_bytes"]))
            for row in operations[:SHOWN]
        ]
        yield table(rows, ["RDMA operation", "packets", "payload"], right=["packets", "payload"])
    flows = list(capture.flow_rows(SHOWN))
    yield table(
        [
            (f"{_end(row, 'source')} > {_end(row, 'destination')}", format_bytes(row["payload_bytes"]),
             f"{row['packets']:,}", f"{row['repeated']:,}", f"{row['bursts']:,}",
             format_bytes(row["largest_burst_bytes"]))
            for row in flows
        ],
        ["flow", "payload", "packets", "repeated", "bursts", "largest"],
        right=["payload", "packets", "repeated", "bursts", "largest"],
        title=f"the {len(flows)} largest of {len(capture.flows):,} flows; a burst ends with {format_seconds(capture.pause / 1e9)} of silence",
    )  # fmt: skip
    yield from _over_time(capture)
    guess = capture.guess()
    yield f"guess: {guess.pattern} ({guess.because})"


def _icrc(icrc: Icrc) -> str:
    parts = [f"{icrc.right:,} right"]
    if icrc.wrong:
        names = ", ".join(map(str, icrc.first_wrong))
        more = ", ..." if icrc.wrong > len(icrc.first_wrong) else ""
        parts.append(f"{icrc.wrong:,} wrong (packet{'s' if icrc.wrong > 1 else ''} {names}{more})")
    if icrc.cut:
        parts.append(f"{icrc.cut:,} not checked: cut by the capture, which kept at most {icrc.kept:,} B of them")
    if icrc.unclear:
        parts.append(f"{icrc.unclear:,} not checked: fragments, or lengths that do not say where it stands")
    return f"ICRC: {'; '.join(parts)}"


def _end(row: dict[str, Any], end: str) -> str:
    port = row[f"{end}_port"]
    number = (
        f":{port}"
        if port
        else f" QP {row['qp']:#x}"
        if end == "destination" and row["transport"] != "tcp"
        else ""
    )
    return f"{row[end]}{number}"


def _over_time(capture: Capture) -> Iterator[Any]:
    used = max(1, (capture.last - capture.first) // capture.bin_width + 1)
    rows_wanted = 16
    if capture.seconds <= 0 or used < rows_wanted:
        return
    width = -(-used // rows_wanted)
    seconds = width * capture.bin_width / 1e9
    sent, rest = ([int(way[at : at + width].sum()) for at in range(0, used, width)] for way in capture.bins)
    most = max(sent + rest)
    all_there = all(row["direction"] != "between others" for row in capture.by_direction())
    others = "received" if all_there else "received, others"
    yield table(
        [
            (format_seconds(k * seconds), format_rate(out / seconds), bar(out / most if most else 0, 16), format_rate(back / seconds),
             bar(back / most if most else 0, 16))
            for k, (out, back) in enumerate(zip(sent, rest, strict=True))
        ],
        ["from", "sent", "", others, " "], right=["from", "sent", others],
        title=f"frames over time at {capture.station or 'the capture'}, {format_seconds(seconds)} a row",
    )  # fmt: skip
