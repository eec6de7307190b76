"""One packet: the one that carries the followed token, byte by byte, with its true bits as payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table
from tokenwire.units import format_bytes, format_seconds
from tokenwire.wire import Connection, find, framing, packet, packet_count, place_of

if TYPE_CHECKING:
    from tokenwire.journey import Journey
    from tokenwire.journey.carried import Carried
    from tokenwire.wire import Packet, Place

NUMBERS = 4
"""Numbers of the token whose bits are drawn."""


def facts(walk: Walk, index: int | None = None) -> dict[str, Any]:
    """Return the message, the place of the token in it, the packet's bytes and fields, and the bits on the lane.

    ``index`` is a packet of the message (None: that in which the token begins); ``in_payload`` is None in one without its beginning.
    Raises ``InputError`` for a packet that the message has not.
    """
    journey, token = walk.journey, walk.followed
    message = journey.carried(token)
    if message is None:
        return {"token": walk.token_text, "message": None}
    found = find(message.offset, message.message_bytes, journey.config.wire)
    made = packet_of(journey, message) if index is None else packet_at(journey, message, index)
    begins = made.place.index == found.place.index
    sizes = framing(message.message_bytes, journey.config.wire)
    per_node = journey.fabric().gpus_per_node
    crosses = message.source // per_node != message.target // per_node
    return {
        "token": walk.token_text, "transport": journey.config.wire.transport, "mtu": journey.config.wire.mtu,
        "message": {
            "op": message.op, "group": message.group, "what": message.what, "dtype": message.dtype, "layer": message.layer,
            "source": message.source, "target": message.target, "source_node": message.source // per_node,
            "target_node": message.target // per_node, "crosses_network": crosses, "bytes": message.message_bytes,
            "offset": message.offset, "length": message.length, "offset_derivation": message.offset_figure.derivation,
            "layout": message.offset_figure.because, "truth": message.truth,
        },
        "framing": sizes.as_dict(),
        "packet": {
            **made.as_dict(), "index": made.place.index, "in_payload": found.in_payload if begins else None,
            "in_frame": found.in_frame if begins else None, "token_index": found.place.index,
            "header_bytes": made.payload_offset, "frame_bytes": len(made.data),
        },
        "numbers": _numbers(message),
        "lane": _lane(made, sizes),
    }  # fmt: skip


def packet_of(journey: Journey, message: Carried) -> Packet:
    """Return the packet that carries the first byte of the token, with the message's own bytes."""
    return _at(journey, message, find(message.offset, message.message_bytes, journey.config.wire).place)


def packet_at(journey: Journey, message: Carried, index: int) -> Packet:
    """Return a packet of the message. Raises ``InputError`` for one that it has not."""
    packets = packet_count(message.message_bytes, journey.config.wire)
    if not 0 <= index < packets:
        raise InputError(f"packet {index:,}", rule=f"the message has packets 0 to {packets - 1:,}", nearest=str(min(max(index, 0), packets - 1)))
    return _at(journey, message, place_of(message.message_bytes, journey.config.wire, index))


def packets_of(walk: Walk) -> Iterator[tuple[int, Packet]]:
    """Yield every packet of the token's message with its time, nanoseconds from the first, back to back on the NIC's link."""
    journey, message = walk.journey, walk.journey.carried(walk.followed)
    if message is None:
        raise InputError("--pcap", rule="nothing is sent: this plan has one rank", nearest="a plan of two GPUs")
    wire, sent = journey.config.wire, 0
    for index in range(packet_count(message.message_bytes, wire)):
        made = _at(journey, message, place_of(message.message_bytes, wire, index))
        yield round(sent / journey.fabric().nic_rate * 1e9), made
        # Preamble, start delimiter and gap: 20 bytes beside each frame.
        sent += len(made.data) + 20


def _at(journey: Journey, message: Carried, place: Place) -> Packet:
    per_node = journey.fabric().gpus_per_node
    connection = Connection(source=divmod(message.source, per_node), destination=divmod(message.target, per_node))
    payload = message.around(place.offset, place.offset + place.length)
    return packet(payload, place, journey.config.wire, connection)


def _numbers(message: Carried) -> list[dict[str, Any]]:
    from tokenwire.model import bfloat16_values

    values = bfloat16_values(message.bits[:NUMBERS])
    return [
        {"value": float(value), "bits": f"{int(bits):016b}", "wire": int(bits).to_bytes(2, "little").hex(" ")}
        for value, bits in zip(values, message.bits[:NUMBERS], strict=True)
    ]


def _lane(made: Packet, sizes: Any) -> dict[str, Any]:
    from tokenwire.wire.line import on_the_lane

    # Preamble, start delimiter and the gap after the frame are on the wire too.
    around = sum(sizes.header_bytes.get(name, 0) for name in ("preamble", "gap")) // max(sizes.packets, 1)
    lane = on_the_lane(len(made.data) + around)
    return {
        "line": lane.line, "wire_bytes": lane.wire_bytes, "bits": lane.bits, "symbols_per_lane": lane.symbols_per_lane,
        "seconds": lane.seconds, "figures": [figure.as_dict() | {"text": figure.derivation} for figure in lane.figures],
    }  # fmt: skip


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the message, the headers in hexadecimal with every field named, the token's bits, and the lane."""
    from rich.text import Text

    message = facts["message"]
    yield ""
    if message is None:
        yield f"Token {facts['token']} never leaves its GPU: this plan has one rank."
        return
    where = f"rank {message['source']} (node {message['source_node']}) to rank {message['target']} (node {message['target_node']})"
    yield (
        f"{message['op']} on {message['group']}: {message['what']}, from {where}: {message['bytes']:,} B in "
        f"{facts['framing']['packets']:,} packets of MTU {facts['mtu']:,}. Token {facts['token']} begins at byte "
        f"{message['offset']:,}: {'; '.join(part for part in (message['offset_derivation'], message['layout']) if part)}."
    )
    if not message["crosses_network"]:
        yield Text("Both ranks share a node: these bytes go over NVLink; the packet is what they would be on the network.", style="yellow")
    packet = facts["packet"]
    yield (
        f"Packet {packet['index']} of {facts['framing']['packets']:,} carries it, from byte {packet['in_payload']:,} of its payload "
        f"(byte {packet['in_frame']:,} of the frame):"
    )
    yield _headers(packet)
    yield f"Its payload there is {message['truth']}:"
    yield table([(f"{n['value']:+.5f}", n["wire"], f"{n['bits'][0]} {n['bits'][1:9]} {n['bits'][9:]}") for n in facts["numbers"]],
                ["number", "bytes", "bits: sign exponent fraction"], right=["number"])  # fmt: skip
    lane = facts["lane"]
    on_line = next(figure for figure in lane["figures"] if figure["name"] == "bits on the line")
    yield (
        f"On the wire the packet is {lane['wire_bytes']:,} B with preamble and gap; on {lane['line']} {on_line['text']}, "
        f"{lane['symbols_per_lane']:,} symbols a lane, {format_seconds(lane['seconds'])}."
    )
    yield (
        f"The whole message: {format_bytes(facts['framing']['wire_bytes'])} on the wire, goodput "
        f"{facts['framing']['efficiency'] * 100:.2f} %."
    )


def _headers(packet: dict[str, Any]) -> Any:
    data = bytes.fromhex(packet["data"])
    layers: dict[str, list[dict[str, Any]]] = {}
    for field in packet["fields"]:
        layers.setdefault(field["layer"], []).append(field)
    rows = []
    for layer, fields in layers.items():
        start = fields[0]["bit_offset"] // 8
        end = (fields[-1]["bit_offset"] + fields[-1]["bit_length"]) // 8
        if layer == "payload":
            at = start + packet["in_payload"]
            rows.append((f"{start}", f"{data[at : at + 8].hex(' ')}", f"payload, {end - start:,} B; here from byte {at:,}"))
            continue
        lines = [data[at : min(at + 8, end)].hex(" ") for at in range(start, end, 8)]
        named = ", ".join(f"{field['name'].replace('_', ' ')} {_value(field)}" for field in fields if _worth(field))
        rows.append((f"{start}", "\n".join(lines), f"{layer}: {named}"))
    return table(rows, ["byte", "hex", "fields"], right=["byte"])


def _worth(field: dict[str, Any]) -> bool:
    return not field["name"].startswith("reserved")


def _value(field: dict[str, Any]) -> str:
    value, bits = field["value"], field["bit_length"]
    if bits == 48:
        return ":".join(f"{value >> shift & 0xFF:02x}" for shift in range(40, -8, -8))
    if field["layer"] == "IPv4" and bits == 32:
        return ".".join(str(value >> shift & 0xFF) for shift in range(24, -8, -8))
    if field["layer"] == "IPv6" and bits == 128:
        import ipaddress

        return str(ipaddress.IPv6Address(value))
    named = any(word in field["name"] for word in ("checksum", "crc", "fcs", "key", "type", "address", "opcode"))
    return f"0x{value:0{(bits + 3) // 4}x}" if named else f"{value}"
