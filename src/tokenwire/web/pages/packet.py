"""A packet: header fields beside their bytes, lit both ways; its place in the message; the bits on the wire."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html

from tokenwire.report.scenes import packet as scene
from tokenwire.units import format_bytes, format_seconds
from tokenwire.web.parts.fields import choice, field, override, row
from tokenwire.web.parts.tables import Column, table, titled
from tokenwire.web.parts.words import derived, facts, part
from tokenwire.web.view import View
from tokenwire.wire.transports import TRANSPORTS

PER_LINE = 16
MOST_PAYLOAD = 256
"""Bytes of payload drawn around the token."""
WHOLE = ("payload", "pad")


def fields(view: View) -> list[Any]:
    """Return the fields of the wire, the token and the packet."""
    wire = view.journey.config.wire
    return [row(
        field(view, "token", "Token", now=view.walk.followed, width=90), field(view, "packet", "Packet of its message", now="that of the token" if view.state.packet is None else view.state.packet, width=150),
        choice(view, "set:wire.transport", "Transport", tuple(TRANSPORTS), now=wire.transport, width=150), override(view, "wire.mtu", "MTU, B", wire.mtu, width=90),
        choice(view, "set:wire.ip_version", "IP", ("4", "6"), now=wire.ip_version, width=70),
    )]  # fmt: skip


def page(view: View) -> list[Any]:
    """Return the page of a packet."""
    told = scene.facts(view.walk, view.state.packet)
    if told["message"] is None:
        return [*fields(view), part("No packet", html.P(f"Token {told['token']} never leaves its GPU: this plan has one rank.", className="said"))]
    return [*fields(view), _message(view, told), _bytes(view, told), html.Div([_numbers(view, told), _lane(told)], className="side"), _framing(view, told)]


def _message(view: View, told: dict[str, Any]) -> html.Section:
    message, packet, sizes = told["message"], told["packet"], told["framing"]
    shown, last = packet["index"], sizes["packets"] - 1
    turn = html.P([
        html.A("← the one before", href=view.here(packet=shown - 1)) if shown > 0 else html.Span("first"), " · ",
        html.A(f"that of the token ({packet['token_index']:,})", href=view.here(packet=None)), " · ",
        html.A("the one after →", href=view.here(packet=shown + 1)) if shown < last else html.Span("last"), " · ",
        html.A("the whole message as a capture (pcap)", href=f"/pcap{view.state.query}", download="message.pcap"),
    ], className="note")  # fmt: skip
    notes = [] if message["crosses_network"] else [html.P(
        "Both ranks share a node: these bytes go over NVLink; the packet is what they would be on the network.", className="note")]  # fmt: skip
    where = "; ".join(filter(None, (message["offset_derivation"], message["layout"])))
    return part(f"Packet {shown:,} of {last + 1:,}: {message['op']} on {message['group']}, {message['what']}", turn, facts([
        ("from", html.A(f"rank {message['source']}, node {message['source_node']}", href=view.state.href("plan", rank=message["source"]))),
        ("to", html.A(f"rank {message['target']}, node {message['target_node']}", href=view.state.href("plan", rank=message["target"]))),
        ("message", f"{message['bytes']:,} B"), ("packets", f"{sizes['packets']:,} of MTU {told['mtu']:,}"), ("frame", f"{packet['frame_bytes']:,} B, headers {packet['header_bytes']:,} B"),
        ("goodput", f"{100 * sizes['efficiency']:.2f} %"),
    ]), html.P(f"Token {told['token']} begins at byte {message['offset']:,} of the message: {where}.", className="said"), *notes)  # fmt: skip


def _bytes(view: View, told: dict[str, Any]) -> html.Section:
    packet = told["packet"]
    data = bytes.fromhex(packet["data"])
    layers = list(dict.fromkeys(one["layer"] for one in packet["fields"]))
    frame = pl.DataFrame([{
        "layer": one["layer"], "field": one["name"], "at_byte": one["bit_offset"] // 8, "bits": one["bit_length"], "value": _value(one), "meaning": one["meaning"],
    } for one in packet["fields"]])  # fmt: skip
    view.tables["fields"] = frame
    of_byte: list[int] = [0] * len(data)
    for number, one in enumerate(packet["fields"]):
        for at in range(one["bit_offset"] // 8, -(-(one["bit_offset"] + one["bit_length"]) // 8)):
            if at < len(data):
                of_byte[at] = number
    hues = {layer: f"layer-{at % 8}" for at, layer in enumerate(layers)}
    rows = [html.Tr([
        html.Td(one["layer"], className=hues[one["layer"]]), html.Td(one["name"].replace("_", " ")), html.Td(str(one["bit_offset"] // 8), className="number"),
        html.Td(str(one["bit_length"]), className="number"), html.Td(_value(one), className="value"), html.Td(one["meaning"]),
    ], tabIndex=0, **{"data-lit": f"f{number}"}) for number, one in enumerate(packet["fields"])]  # fmt: skip
    heads = html.Tr([html.Th(head, scope="col") for head in ("layer", "field", "at byte", "bits", "value", "meaning")])
    fields_ = html.Div(html.Table([html.Thead(heads), html.Tbody(rows)], className="whole fields-table"), className="scroll tall", tabIndex=0, role="region", **{"aria-label": "Fields of the packet"})
    return titled(view, "fields", "Fields and bytes", html.Div([_hex(packet, data, of_byte, hues), fields_], className="dissect"),
                  "Point at a field for its bytes, or at a byte for its field. The colour is the layer; a frame marks the token.")  # fmt: skip


def _hex(packet: dict[str, Any], data: bytes, of_byte: list[int], hues: dict[str, str]) -> html.Div:
    starts = packet["header_bytes"]
    centre = starts + (packet["in_payload"] or 0)
    first_payload = max(starts, centre - 32) // PER_LINE * PER_LINE
    shown = [*range(0, min(starts, len(data))), *(at for at in range(starts, len(data)) if first_payload <= at < first_payload + MOST_PAYLOAD or at >= len(data) - 8)]
    lines: dict[int, list[Any]] = {}
    for at in dict.fromkeys(shown):
        one = packet["fields"][of_byte[at]]
        here = packet["in_payload"] is not None and centre <= at < centre + 2 * scene.NUMBERS
        lines.setdefault(at // PER_LINE, []).append(html.Span(
            f"{data[at]:02x}", className=f"byte {hues[one['layer']]}" + (" here" if here else ""), title=f"byte {at}: {one['layer']}, {one['name'].replace('_', ' ')}",
            **{"data-lit": f"f{of_byte[at]}"}))  # fmt: skip
    out: list[Any] = []
    before = -1
    for number, spans in lines.items():
        if before >= 0 and number > before + 1:
            out.append(html.Div([html.Span("…", className="at"), html.Span("more of the payload")], className="line"))
        out.append(html.Div([html.Span(f"{number * PER_LINE:04x}", className="at"), html.Span(spans)], className="line"))
        before = number
    return html.Div(out, className="hex tall", tabIndex=0, role="region", **{"aria-label": "Bytes of the packet"})


def _value(one: dict[str, Any]) -> str:
    if one["layer"] in WHOLE:
        return f"{one['bit_length'] // 8:,} B"
    return f"{one['value']:#x}" if one["bit_length"] > 8 else str(one["value"])


def _numbers(view: View, told: dict[str, Any]) -> html.Section:
    frame = pl.DataFrame([{"value": n["value"], "wire": n["wire"], "sign": n["bits"][0], "exponent": n["bits"][1:9], "fraction": n["bits"][9:]} for n in told["numbers"]])
    columns = [Column("value", "number", "1"), Column("wire", "bytes on the wire"), Column("sign", "sign"), Column("exponent", "exponent"), Column("fraction", "fraction")]
    return table(view, "numbers", "The first numbers of the token", frame, columns, note=f"They are {told['message']['truth']}.")


def _lane(told: dict[str, Any]) -> html.Section:
    lane = told["lane"]
    figures = [{**one, "derivation": one["text"], "text": f"{one['value']:,.0f} {one['unit']}" if one["unit"] not in ("s",) else format_seconds(one["value"])} for one in lane["figures"]]
    return part(f"On the wire: {lane['line']}", facts([("with preamble and gap", f"{lane['wire_bytes']:,} B"), ("bits", f"{lane['bits']:,}"),
                ("symbols a lane", f"{lane['symbols_per_lane']:,}"), ("lasts", format_seconds(lane["seconds"]))]), derived(figures))  # fmt: skip


def _framing(view: View, told: dict[str, Any]) -> html.Section:
    sizes = told["framing"]
    rows = [{"layer": "payload", "bytes": sizes["payload_bytes"]}, *({"layer": name, "bytes": size} for name, size in sizes["header_bytes"].items() if size)]
    frame = pl.DataFrame(rows).with_columns(share=pl.col("bytes") / sizes["wire_bytes"] * 100)
    columns = [Column("layer", "layer"), Column("bytes", "bytes of the whole message", "1"), Column("share", "% of the wire", "1")]
    return table(view, "framing", f"The whole message: {format_bytes(sizes['wire_bytes'])} on the wire", frame, columns)
