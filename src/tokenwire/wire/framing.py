"""From message to packets to bytes on the wire, in numbers.

Symbols: S bytes of the message, M payload bytes of a full packet, P packets, H bytes of headers and trailers on every
packet (preamble and gap too), F bytes on the first packet only (RETH), L on the last one only (immediate data), a
the alignment of the payload, m the shortest frame.

P = max(1, ceil(S/M));   wire = S + pad + P·H + F + L;   efficiency = S / wire
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.figures import Figure
from tokenwire.wire.config import WireConfig
from tokenwire.wire.transports.transport import Transport, bytes_of, transport_of

MAX_MESSAGE = 2**50
"""Bytes of the largest message that is framed."""

FRAMING_COLUMNS = np.dtype(
    [
        ("message_bytes", "i8"), ("packets", "i8"), ("pad_bytes", "i8"), ("frame_bytes", "i8"), ("wire_bytes", "i8"),
        ("answer_packets", "i8"), ("answer_bytes", "i8"),
    ]
)  # fmt: skip
"""Columns of ``framings``: frames are counted from the first address to the last check, the wire with preamble and gap;
answers are the acknowledgements, in bytes on the wire of the other direction."""


@dataclass(frozen=True)
class Framing:
    """One message on the wire.

    ``header_bytes`` maps each layer to its bytes over all packets, ``pad`` among them; ``frame_bytes`` are those of
    the packets as captured with their check sequence; ``wire_bytes`` add preamble and gap; the receiver
    answers with ``answer_packets``, ``answer_bytes`` on the wire of the other direction; ``figures`` derive them.
    """

    transport: str
    mtu: int
    message_bytes: int
    payload_per_packet: int
    packets: int
    payload_bytes: int
    header_bytes: dict[str, int]
    frame_bytes: int
    wire_bytes: int
    answer_packets: int
    answer_bytes: int
    figures: tuple[Figure, ...]

    @property
    def efficiency(self) -> float:
        """Return payload bytes by wire bytes; 0 for a message without bytes."""
        return self.payload_bytes / self.wire_bytes if self.wire_bytes else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "transport": self.transport, "mtu": self.mtu, "message_bytes": self.message_bytes,
            "payload_per_packet": self.payload_per_packet, "packets": self.packets, "payload_bytes": self.payload_bytes,
            "header_bytes": self.header_bytes, "frame_bytes": self.frame_bytes, "wire_bytes": self.wire_bytes,
            "answer_packets": self.answer_packets, "answer_bytes": self.answer_bytes,
            "efficiency": self.efficiency, "figures": [figure.as_dict() for figure in self.figures],
        }  # fmt: skip


def packet_count(message_bytes: int, config: WireConfig) -> int:
    """Return P, the packets of a message.

    >>> packet_count(131072, WireConfig()), packet_count(0, WireConfig()), packet_count(4097, WireConfig())
    (32, 1, 2)
    """
    return int(framings(message_bytes, config)["packets"][()])


def framings(message_bytes: npt.ArrayLike, config: WireConfig) -> npt.NDArray[Any]:
    """Return packets, padding, frame and wire bytes of many messages, columns ``FRAMING_COLUMNS``, shape of the input.

    Raises ``InputError`` for sizes below 0 or above ``MAX_MESSAGE``.

    >>> framings([0, 4096, 131072], WireConfig())["wire_bytes"].tolist()   # 82 + 16; + 4096; 131072 + 32·82 + 16
    [98, 4194, 133712]
    """
    S = np.asarray(message_bytes)
    if S.dtype.kind not in "iu" and S.size:
        raise InputError(f"{message_bytes!r}"[:80], rule="sizes of messages are whole numbers of bytes")
    if S.size and (int(S.min()) < 0 or int(S.max()) > MAX_MESSAGE):
        wrong = int(S.min()) if int(S.min()) < 0 else int(S.max())
        raise InputError(
            f"message of {wrong:,} bytes", rule=f"must have from 0 to {MAX_MESSAGE:,} bytes",
            nearest=f"{min(max(wrong, 0), MAX_MESSAGE)} B",
        )  # fmt: skip
    S = S.astype(np.int64)
    transport = transport_of(config)
    layers = transport.layers(config)
    M = transport.payload(config)
    P = np.where(S > 0, -(-S // M), transport.empty_packets)
    last = np.where(S > 0, S - (P - 1) * M, 0)
    pad = -last % transport.align * (P > 0)
    inside, outside = bytes_of(layers, "every", inside=True), bytes_of(layers, "every", inside=False)
    F, L = bytes_of(layers, "first"), bytes_of(layers, "last")
    # Only the last packet can be short of the shortest frame: a full one never is.
    shortest = last + pad + inside + L + np.where(P == 1, F, 0)
    pad = pad + np.maximum(transport.minimum_frame - shortest, 0) * (P > 0)
    out = np.empty(S.shape, FRAMING_COLUMNS)
    out["message_bytes"], out["packets"], out["pad_bytes"] = S, P, pad
    out["frame_bytes"] = S + pad + P * inside + (F + L) * (P > 0)
    out["wire_bytes"] = out["frame_bytes"] + P * outside
    answer = transport.answer(config)
    each = max(bytes_of(answer, "every", inside=True), transport.minimum_frame) + bytes_of(
        answer, "every", inside=False
    )
    out["answer_packets"] = (
        (-(-P // transport.answer_every) if transport.answer_every else P > 0) if answer else 0
    )
    out["answer_bytes"] = out["answer_packets"] * each
    return out


def framing(message_bytes: int, config: WireConfig) -> Framing:
    """Return how one message is cut into packets and what that costs, with the derivation.

    Raises ``InputError`` for a size below 0 or above ``MAX_MESSAGE``.

    >>> framing(131072, WireConfig()).packets, round(framing(131072, WireConfig()).efficiency, 4)
    (32, 0.9803)
    """
    row = framings(message_bytes, config)
    transport = transport_of(config)
    layers = transport.layers(config)
    S, P, pad, wire = message_bytes, int(row["packets"]), int(row["pad_bytes"]), int(row["wire_bytes"])
    M, started = transport.payload(config), P > 0
    counts = {"every": P, "first": int(started), "last": int(started)}
    header_bytes = {layer.name: layer.size * counts[layer.on] for layer in layers}
    header_bytes["pad"] = pad
    H = bytes_of(layers, "every")
    F, L = bytes_of(layers, "first"), bytes_of(layers, "last")
    every = " + ".join(f"{layer.size} {layer.name}" for layer in layers if layer.on == "every")
    once = " + ".join(f"{layer.size} {layer.name}" for layer in layers if layer.on != "every") or "0"
    source = transport.source
    at_least = transport.empty_packets
    figures = (
        Figure("packets", P, "packets", f"max({at_least}, ceil(S/M))", f"max({at_least}, ceil({S:,}/{M:,}))", source),
        Figure("headers per packet", H, "B", "sum of layers on every packet", every, source),
        Figure("headers once per message", F + L, "B", "sum of layers on the first or last packet", once, source),
        Figure("padding", pad, "B", f"to multiples of {transport.align} B, frames of at least {transport.minimum_frame} B", "", source),
        Figure(
            "bytes on the wire", wire, "B", "S + P·H + F + pad", f"{S:,} + {P:,}·{H} + {(F + L) * started} + {pad}", source
        ),
        *_answers(row, transport.answer_every, P, source),
        *_port_mtu(transport, config),
        Figure("efficiency", S / wire if wire else 0.0, "%", "S / wire", f"{S:,} / {wire:,}", source),
    )  # fmt: skip
    return Framing(
        config.transport, config.mtu, S, M, P, S, header_bytes, int(row["frame_bytes"]), wire,
        int(row["answer_packets"]), int(row["answer_bytes"]), figures,
    )  # fmt: skip


def _port_mtu(transport: Transport, config: WireConfig) -> tuple[Figure, ...]:
    """Return the MTU that ports need where the transport's own counts the payload only."""
    size, layers = transport.largest_ip_packet(config)
    if not size or size == config.mtu:
        return ()
    parts = " + ".join([f"{transport.payload(config):,} payload", *(f"{layer.size} {layer.name}" for layer in layers)])
    least = Figure("port MTU, at least (largest IP packet)", size, "B", "M + headers from IP to the end", parts, transport.source)
    if not transport.port_reserve:
        return (least,)
    linux = Figure("port MTU, for this path MTU on Linux", config.mtu + transport.port_reserve, "B", "M + GRH + UDP + BTH + XRC + atomic + ICRC",
                   f"{config.mtu:,} + {transport.port_reserve}", "Linux, include/rdma/ib_addr.h, iboe_get_mtu")  # fmt: skip
    return least, linux


def _answers(row: Any, every: int, P: int, source: str) -> tuple[Figure, ...]:
    packets, size = int(row["answer_packets"]), int(row["answer_bytes"])
    if not packets:
        return ()
    formula, values = (f"ceil(P/{every})", f"ceil({P:,}/{every})") if every else ("one a message", "")
    each = size // packets
    return (
        Figure("acknowledgements", packets, "packets", formula, values, source),
        Figure(
            "bytes of them, the other way",
            size,
            "B",
            "acknowledgements · bytes of one",
            f"{packets:,}·{each}",
            source,
        ),
    )
