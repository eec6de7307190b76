"""The capture of a NIC's link: data in both directions and their acknowledgements, in order of time, streamed.

Each direction of a link carries one packet after the other at its rate; an acknowledgement passes a round trip after the
packet that it answers (of RDMA the last of a message, of TCP every second segment), and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.wire import headers
from tokenwire.wire.capture.writing import SNAPLEN, link_type, records
from tokenwire.wire.config import WireConfig
from tokenwire.wire.connection import Connection
from tokenwire.wire.framing import framings
from tokenwire.wire.message import packet, place_of
from tokenwire.wire.packet import Packet
from tokenwire.wire.synthesis.messages import scheduled
from tokenwire.wire.transports import rdma
from tokenwire.wire.transports.transport import bytes_of, transport_of

BATCH_BYTES = 2**24
"""Bytes of packets that are made at a time."""
ROUND_TRIP = 4_000
"""Nanoseconds from the end of a message to its acknowledgement: a few switches there and back."""
FEW = 2**12
"""Packets up to which they are made one at a time: that takes less than the compiled loop takes to load."""
_BATCH = np.dtype([("time", "i8"), ("message", "i8"), ("index", "i8"), ("kind", "u1")])


def packet_total(messages: npt.NDArray[Any], config: WireConfig, *, acknowledged: bool = True) -> int:
    """Return how many packets messages make, with the receivers' acknowledgements or without."""
    rows = framings(messages["bytes"], config)
    return int(rows["packets"].sum()) + (int(rows["answer_packets"].sum()) if acknowledged else 0)


def synthesize(
    messages: npt.NDArray[Any],
    config: WireConfig,
    *,
    rate: float,
    nic: tuple[int, int] | None = None,
    content: bytes | None = None,
    acknowledged: bool = True,
    round_trip: int = ROUND_TRIP,
    snap_length: int = SNAPLEN,
    max_packets: int | None = None,
    start: int = 0,
) -> Iterator[bytes | memoryview]:
    """Yield the records of a capture of messages, in order of time; each piece is valid until the next.

    ``messages`` has columns ``messages.MESSAGES``; ``rate`` in bytes/s of the link; ``nic`` whose link it is, (node,
    NIC): messages from it and to it pass in the two directions; None takes all as one direction. ``content`` are the
    bytes that payloads are taken from, again from its start where it ends (None: zeros); times begin at ``start`` ns.
    Raises ``InputError`` for a rate, snap length or number of packets that cannot be.
    """  # fmt: skip
    if snap_length < 1:
        raise InputError(f"snap length {snap_length}", rule="must be at least 1 byte of a packet", nearest="1")
    if max_packets is not None and max_packets < 0:
        raise InputError(f"--max-packets {max_packets}", rule="must be at least 0", nearest="0")
    timed, streams = _streams(messages, config, rate, nic, acknowledged, round_trip)
    timed["time"] += start
    batches = _limited(_merged(streams, start), max_packets)
    total = packet_total(messages, config, acknowledged=acknowledged)
    few = min(total, total if max_packets is None else max_packets) <= FEW
    if config.transport == "rocev2" and not few:
        yield from _fast(timed, config, batches, content or b"", snap_length)
    else:
        made = _slow(timed, config, batches, content or b"")
        yield from records(made, snap_length, link_type(config.transport))


def _streams(
    messages: npt.NDArray[Any], config: WireConfig, rate: float, nic: tuple[int, int] | None, acknowledged: bool,
    round_trip: int,
) -> tuple[npt.NDArray[Any], list[Iterator[npt.NDArray[Any]]]]:  # fmt: skip
    if nic is None:
        sent = np.ones(len(messages), bool)
    else:
        sent = (messages["source_node"] == nic[0]) & (messages["source_nic"] == nic[1])
    timed = messages.copy()
    streams = []
    for direction in (sent, ~sent):
        which = np.flatnonzero(direction)
        if not len(which):
            continue
        timed[which] = scheduled(messages[which], config, rate)
        streams.append(_data(timed, which, config, rate))
        if acknowledged and transport_of(config).answer(config):
            streams.append(_acknowledgements(timed, which, config, rate, round_trip))
    return timed, streams


def _batch_packets(config: WireConfig) -> int:
    return max(16, BATCH_BYTES // (transport_of(config).payload(config) + 256))


def _data(
    messages: npt.NDArray[Any], which: Any, config: WireConfig, rate: float
) -> Iterator[npt.NDArray[Any]]:
    packets = framings(messages["bytes"][which], config)["packets"]
    ends = np.cumsum(packets)
    layers = transport_of(config).layers(config)
    M, H, F = transport_of(config).payload(config), bytes_of(layers, "every"), bytes_of(layers, "first")
    step = _batch_packets(config)
    for begin in range(0, int(ends[-1]), step):
        number = np.arange(begin, min(begin + step, int(ends[-1])))
        at = np.searchsorted(ends, number, side="right")
        index = number - (ends[at] - packets[at])
        out = np.zeros(len(number), _BATCH)
        passed = index * (M + H) + F * (index > 0)
        out["time"] = messages["time"][which[at]] + (passed * (1e9 / rate)).astype(np.int64)
        out["message"], out["index"] = which[at], index
        yield out


def _acknowledgements(
    messages: npt.NDArray[Any], which: Any, config: WireConfig, rate: float, round_trip: int
) -> Iterator[npt.NDArray[Any]]:
    # Each answers the packet of its index: the last of a message, or every so many and the last.
    rows = framings(messages["bytes"][which], config)
    every = transport_of(config).answer_every
    packets, wire, answers = rows["packets"], rows["wire_bytes"], rows["answer_packets"]
    ends = np.cumsum(answers)
    for begin in range(0, int(ends[-1]), 2**16):
        number = np.arange(begin, min(begin + 2**16, int(ends[-1])))
        at = np.searchsorted(ends, number, side="right")
        out = np.zeros(len(number), _BATCH)
        k = number - (ends[at] - answers[at])
        out["index"] = np.minimum((k + 1) * every - 1, packets[at] - 1) if every else packets[at] - 1
        passed = wire[at] * (out["index"] + 1) / packets[at]
        out["time"] = messages["time"][which[at]] + (passed * (1e9 / rate)).astype(np.int64) + round_trip
        out["message"], out["kind"] = which[at], 1
        yield out


def _merged(streams: list[Iterator[npt.NDArray[Any]]], start: int) -> Iterator[npt.NDArray[Any]]:
    # Streams are each in order of time: what is not later than the end of every one's batch can go out.
    held: list[npt.NDArray[Any] | None] = [next(stream, None) for stream in streams]
    while any(batch is not None for batch in held):
        horizon = min(int(batch["time"][-1]) for batch in held if batch is not None)
        ready = []
        for k, batch in enumerate(held):
            if batch is None:
                continue
            cut = int(np.searchsorted(batch["time"], horizon, side="right"))
            ready.append(batch[:cut])
            held[k] = batch[cut:] if cut < len(batch) else next(streams[k], None)
        out = np.concatenate(ready)
        out = out[np.argsort(out["time"], kind="stable")]
        out["time"] += start
        yield out


def _limited(batches: Iterator[npt.NDArray[Any]], limit: int | None) -> Iterator[npt.NDArray[Any]]:
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch[:left]
            left -= len(batch)
        if len(batch):
            yield batch
        if left == 0:
            return


def _positions(config: WireConfig, data: Packet) -> npt.NDArray[np.int64]:
    """Return where the fields that ``kernels.fill`` writes begin in a packet, from its layout and the header tables."""
    from tokenwire.wire.synthesis import kernels

    starts = {header.name: start for header, start, _ in data.layout}
    ip = headers.IPV4 if config.ip_version == 4 else headers.IPV6

    def where(header: headers.Header, name: str) -> int:
        return starts[header.name] + header.offsets[name][0] // 8

    at = np.zeros(kernels.POSITIONS, np.int64)
    at[kernels.ETH_SRC] = where(headers.ETHERNET, "source")
    at[kernels.IP], at[kernels.UDP], at[kernels.BTH] = starts[ip.name], starts["UDP"], starts["BTH"]
    at[kernels.IP_SRC], at[kernels.IP_DST] = where(ip, "source"), where(ip, "destination")
    if config.ip_version == 4:
        at[kernels.IP4_LENGTH] = where(ip, "total_length")
        at[kernels.IP4_ID], at[kernels.IP4_CHECK] = where(ip, "identification"), where(ip, "checksum")
    else:
        at[kernels.IP6_LENGTH] = where(ip, "payload_length")
        at[kernels.IP6_LABEL] = where(ip, "payload_length") - 2
    at[kernels.UDP_SOURCE], at[kernels.UDP_LENGTH] = (
        where(headers.UDP, "source_port"),
        where(headers.UDP, "length"),
    )
    at[kernels.UDP_CHECK] = where(headers.UDP, "checksum")
    at[kernels.OPCODE], at[kernels.PAD] = where(headers.BTH, "opcode"), where(headers.BTH, "pad_count")
    at[kernels.QP], at[kernels.PSN] = (
        where(headers.BTH, "destination_qp"),
        where(headers.BTH, "packet_sequence_number"),
    )
    at[kernels.ACK_REQUEST] = where(headers.BTH, "ack_request")
    at[kernels.HEADERS_END] = starts["BTH"] + headers.BTH.size
    return at


def _fast(
    messages: npt.NDArray[Any],
    config: WireConfig,
    batches: Iterator[npt.NDArray[Any]],
    content: bytes,
    snap: int,
) -> Iterator[memoryview]:
    from tokenwire.wire.synthesis import kernels

    example = packet(b"", place_of(0, config, 0), config, Connection())
    at = _positions(config, example)
    template = np.frombuffer(example.data[: at[kernels.HEADERS_END]], np.uint8)
    opcodes = np.array([
        *(rdma.opcode(config.operation, index, packets) for index, packets in ((0, 1), (0, 3), (1, 3), (2, 3))),
        rdma.NUMBERS["RC_ACKNOWLEDGE"],
    ])  # fmt: skip
    once = {layer.name: layer.size for layer in rdma.extended(config)}
    tables = kernels.crc_tables()
    maps = kernels.zero_tables(tables)
    M = transport_of(config).payload(config)
    room = min(snap, M + 256) + 512
    out = np.empty(0, np.uint8)
    body = np.frombuffer(content, np.uint8)
    for batch in batches:
        # A batch can be cut finer than asked for, never coarser than the room that is kept for it.
        step = max(1, BATCH_BYTES // room)
        for begin in range(0, len(batch), step):
            part = batch[begin : begin + step]
            if len(out) < len(part) * room + M + 512:
                out = np.empty(len(part) * room + M + 512, np.uint8)
            size = kernels.fill(
                out, snap, template, at, config.ip_version, M, opcodes, once.get("RETH", 0), once.get("ImmDt", 0),
                messages, body, part["message"], part["index"], part["kind"], part["time"], tables, maps,
            )  # fmt: skip
            yield out[:size].data


def _slow(
    messages: npt.NDArray[Any], config: WireConfig, batches: Iterator[npt.NDArray[Any]], content: bytes
) -> Iterator[tuple[int, Packet]]:
    # One packet at a time: few ones, and those of transports that no compiled loop writes.
    from tokenwire.wire.build import acknowledgement

    for batch in batches:
        for time, at, index, kind in batch.tolist():
            row = messages[at]
            ends = (
                (int(row["source_node"]), int(row["source_nic"])),
                (int(row["destination_node"]), int(row["destination_nic"])),
            )
            connection = Connection(
                source=ends[0], destination=ends[1], qp=int(row["qp"]), source_qp=int(row["source_qp"]),
                psn=int(row["psn"]), va=int(row["va"]), rkey=int(row["rkey"]),
            )  # fmt: skip
            size = int(row["bytes"])
            if kind:
                yield (
                    time,
                    acknowledgement(config, connection, place_of(size, config, index), int(row["msn"])),
                )
                continue
            place = place_of(size, config, index)
            yield (
                time,
                packet(
                    _content(content, int(row["content"]) + place.offset, place.length),
                    place,
                    config,
                    connection,
                ),
            )


def _content(content: bytes, begin: int, length: int) -> bytes:
    if not content:
        return bytes(length)
    begin %= len(content)
    whole = content[begin : begin + length]
    while len(whole) < length:
        whole += content[: length - len(whole)]
    return whole
