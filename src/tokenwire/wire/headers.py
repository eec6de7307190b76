"""Header layouts, each in one place: the fields in the order of the wire, their bits, and what they mean.

A ``Header`` is a table of fields. ``pack`` puts values into bytes, ``unpack`` takes them out; both go most significant
bit first, as all of these protocols do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class HeaderField:
    """One field: its name, its width in bits, what it means, and the value it has where nothing else is said."""

    name: str
    bits: int
    meaning: str
    default: int = 0


@dataclass(frozen=True)
class Header:
    """A layout: ``name`` as the field knows it, ``fields`` in order, ``source`` the document that defines it."""

    name: str
    title: str
    fields: tuple[HeaderField, ...]
    source: str

    @cached_property
    def size(self) -> int:
        """Return the bytes of the header.

        >>> ETHERNET.size, IPV4.size, UDP.size, BTH.size, RETH.size
        (14, 20, 8, 12, 16)
        """
        return sum(field.bits for field in self.fields) // 8

    @cached_property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """Return (first bit, bits) of each field, counted from the start of the header."""
        out, at = {}, 0
        for field in self.fields:
            out[field.name] = (at, field.bits)
            at += field.bits
        return out

    def values(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the value of every field: what is given, else the default. Raises KeyError for a foreign name."""
        for name in given:
            if name not in self.offsets:
                raise KeyError(f"{self.name} has no field {name!r}")
        return {field.name: given.get(field.name, field.default) for field in self.fields}

    def pack(self, given: Mapping[str, int]) -> bytes:
        """Return the bytes of the header. Raises ``OverflowError`` for a value wider than its field.

        >>> UDP.pack({"source_port": 0xC000, "destination_port": 4791, "length": 24}).hex(" ", 2)
        'c000 12b7 0018 0000'
        """
        word = 0
        for field, value in zip(self.fields, self.values(given).values(), strict=True):
            if not 0 <= value < 1 << field.bits:
                raise OverflowError(f"{self.name} {field.name} = {value} does not fit in {field.bits} bits")
            word = word << field.bits | value
        return word.to_bytes(self.size, "big")

    def unpack(self, data: bytes) -> dict[str, int]:
        """Return the value of every field in ``data``, which begins with the header.

        >>> UDP.unpack(bytes.fromhex("c00012b700180000"))["destination_port"]
        4791
        """
        word, left = int.from_bytes(data[: self.size], "big"), self.size * 8
        out = {}
        for field in self.fields:
            left -= field.bits
            out[field.name] = word >> left & (1 << field.bits) - 1
        return out

    def as_dict(self) -> dict[str, Any]:
        """Return the layout for JSON."""
        return {**asdict(self), "bytes": self.size}


def _header(
    name: str, title: str, source: str, *rows: tuple[str, int, str] | tuple[str, int, str, int]
) -> Header:
    header = Header(name, title, tuple(HeaderField(*row) for row in rows), source)
    assert sum(field.bits for field in header.fields) % 8 == 0, name
    return header


_IBTA = "InfiniBand Architecture Specification, volume 1"

PREAMBLE = _header(
    "preamble", "Preamble and start of frame", "IEEE 802.3, clause 3.2",
    ("preamble", 56, "alternating ones and zeros that wake the receiver's clock", 0x55555555555555),
    ("start_of_frame", 8, "the delimiter 0xD5: the frame begins with the next byte", 0xD5),
)  # fmt: skip
ETHERNET = _header(
    "Ethernet", "Ethernet II", "IEEE 802.3, clause 3.2",
    ("destination", 48, "MAC address of the next hop"),
    ("source", 48, "MAC address of the sender's port"),
    ("type", 16, "what follows: 0x0800 IPv4, 0x86DD IPv6, 0x8100 a VLAN tag", 0x0800),
)  # fmt: skip
VLAN = _header(
    "802.1Q", "VLAN tag", "IEEE 802.1Q, clause 9.6",
    ("priority", 3, "traffic class of the frame; RoCE's lossless class is often 3"),
    ("drop_eligible", 1, "may be dropped first"),
    ("vlan", 12, "number of the virtual network"),
    ("type", 16, "what follows: 0x0800 IPv4, 0x86DD IPv6", 0x0800),
)  # fmt: skip
IPV4 = _header(
    "IPv4", "Internet Protocol 4", "RFC 791; DSCP RFC 2474, ECN RFC 3168",
    ("version", 4, "4", 4),
    ("header_length", 4, "words of 4 bytes", 5),
    ("dscp", 6, "traffic class: chooses the queue in every switch"),
    ("ecn", 2, "0 not capable, 1 or 2 capable, 3 congestion met on the way"),
    ("total_length", 16, "bytes from here to the end of the IP packet"),
    ("identification", 16, "number of the packet, for reassembly"),
    ("reserved", 1, "0"),
    ("dont_fragment", 1, "1: routers must not cut the packet", 1),
    ("more_fragments", 1, "0: this is the last or only fragment"),
    ("fragment_offset", 13, "place in the original packet, in units of 8 bytes"),
    ("time_to_live", 8, "hops left", 64),
    ("protocol", 8, "what follows: 17 UDP, 6 TCP", 17),
    ("checksum", 16, "ones' complement sum over this header"),
    ("source", 32, "address of the sender's NIC"),
    ("destination", 32, "address of the receiver's NIC"),
)  # fmt: skip
IPV6 = _header(
    "IPv6", "Internet Protocol 6", "RFC 8200",
    ("version", 4, "6", 6),
    ("dscp", 6, "traffic class: chooses the queue in every switch"),
    ("ecn", 2, "0 not capable, 1 or 2 capable, 3 congestion met on the way"),
    ("flow_label", 20, "names the flow, so that routers can spread flows over paths"),
    ("payload_length", 16, "bytes after this header"),
    ("next_header", 8, "what follows: 17 UDP, 6 TCP", 17),
    ("hop_limit", 8, "hops left", 64),
    ("source", 128, "address of the sender's NIC"),
    ("destination", 128, "address of the receiver's NIC"),
)  # fmt: skip
UDP = _header(
    "UDP", "User Datagram Protocol", "RFC 768",
    ("source_port", 16, "differs from flow to flow, so that switches spread flows over paths"),
    ("destination_port", 16, "4791: RoCEv2", 4791),
    ("length", 16, "bytes from here to the end of the datagram"),
    ("checksum", 16, "0: not computed"),
)  # fmt: skip
TCP = _header(
    "TCP", "Transmission Control Protocol", "RFC 9293",
    ("source_port", 16, "port of the sender"),
    ("destination_port", 16, "port of the receiver"),
    ("sequence", 32, "number of the first payload byte in the stream"),
    ("acknowledgement", 32, "number of the next byte expected from the other side"),
    ("data_offset", 4, "words of 4 bytes of this header with its options", 5),
    ("reserved", 4, "0"),
    ("cwr", 1, "sender reduced its window"),
    ("ece", 1, "congestion was seen"),
    ("urg", 1, "urgent data"),
    ("ack", 1, "the acknowledgement number holds", 1),
    ("psh", 1, "hand it to the application now"),
    ("rst", 1, "connection is torn down"),
    ("syn", 1, "connection opens"),
    ("fin", 1, "connection closes"),
    ("window", 16, "bytes the sender is ready to receive, scaled", 0x1F5),
    ("checksum", 16, "ones' complement sum over pseudo header, header and payload"),
    ("urgent", 16, "end of urgent data"),
)  # fmt: skip
TCP_TIMESTAMPS = _header(
    "TCP options", "Timestamps, with two bytes of padding before", "RFC 7323",
    ("padding", 16, "two no-operations, so that the option ends on a word", 0x0101),
    ("kind", 8, "8: timestamps", 8),
    ("length", 8, "10 bytes", 10),
    ("value", 32, "clock of the sender, in ms"),
    ("echo", 32, "the last clock heard from the other side"),
)  # fmt: skip
LRH = _header(
    "LRH", "Local Route Header", f"{_IBTA}, chapter 7.7",
    ("virtual_lane", 4, "which buffers the packet uses on this link"),
    ("link_version", 4, "0"),
    ("service_level", 4, "class of service through the subnet"),
    ("reserved", 2, "0"),
    ("next_header", 2, "2: BTH follows; 3: GRH follows", 2),
    ("destination_lid", 16, "local identifier of the receiver's port"),
    ("reserved2", 5, "0"),
    ("packet_length", 11, "words of 4 bytes from this header to the ICRC"),
    ("source_lid", 16, "local identifier of the sender's port"),
)  # fmt: skip
GRH = _header(
    "GRH", "Global Route Header", f"{_IBTA}, chapter 8.3",
    ("version", 4, "6: laid out as IPv6", 6),
    ("traffic_class", 8, "class of service across subnets"),
    ("flow_label", 20, "names the flow"),
    ("payload_length", 16, "bytes from the end of this header to the end of the ICRC"),
    ("next_header", 8, "0x1B: BTH follows", 0x1B),
    ("hop_limit", 8, "routers left", 64),
    ("source_gid", 128, "global identifier of the sender's port"),
    ("destination_gid", 128, "global identifier of the receiver's port"),
)  # fmt: skip
BTH = _header(
    "BTH", "Base Transport Header", f"{_IBTA}, chapter 9.2",
    ("opcode", 8, "transport and operation: first, middle, last or only packet of a WRITE, SEND ..."),
    ("solicited_event", 1, "wake the receiver when the message is complete"),
    ("migration", 1, "state of path migration", 1),
    ("pad_count", 2, "bytes added to the payload to end on a word"),
    ("version", 4, "0"),
    ("partition_key", 16, "partition that both ends belong to", 0xFFFF),
    ("fecn", 1, "congestion met on the way"),
    ("becn", 1, "congestion met by what the receiver sent"),
    ("reserved", 6, "0"),
    ("destination_qp", 24, "queue pair at the receiver"),
    ("ack_request", 1, "please acknowledge this packet"),
    ("reserved2", 7, "0"),
    ("packet_sequence_number", 24, "counts packets of the queue pair, modulo 2^24"),
)  # fmt: skip
RETH = _header(
    "RETH", "RDMA Extended Transport Header", f"{_IBTA}, chapter 9.3",
    ("virtual_address", 64, "where in the receiver's memory the message goes"),
    ("remote_key", 32, "right to write there"),
    ("dma_length", 32, "bytes of the whole message"),
)  # fmt: skip
IMMEDIATE = _header(
    "ImmDt", "Immediate data", f"{_IBTA}, chapter 9.3",
    ("immediate", 32, "a word handed to the receiver with the completion"),
)  # fmt: skip
AETH = _header(
    "AETH", "Acknowledgement Extended Transport Header", f"{_IBTA}, chapter 9.3",
    ("syndrome", 8, "0 to 31: acknowledged, with credits; 0x60 and up: not acknowledged", 0x1F),
    ("message_sequence_number", 24, "messages completed at the receiver"),
)  # fmt: skip
ICRC = _header(
    "ICRC", "Invariant CRC", f"{_IBTA}, chapter 7.8 and annex A17",
    ("icrc", 32, "CRC-32 over all that does not change on the way"),
)  # fmt: skip
VCRC = _header(
    "VCRC", "Variant CRC", f"{_IBTA}, chapter 7.8", ("vcrc", 16, "CRC-16 over the whole packet, made anew at every hop")
)  # fmt: skip
FCS = _header(
    "FCS", "Frame check sequence", "IEEE 802.3, clause 3.2.9", ("fcs", 32, "CRC-32 over the frame, made anew at every hop")
)  # fmt: skip
GAP = _header(
    "gap", "Inter-packet gap", "IEEE 802.3, clause 4.4.2", ("idle", 96, "at least 96 bit times of idle")
)
START = _header(
    "start", "Start of data packet (SDP)", "InfiniBand Architecture Specification, volume 2, chapter 5",
    ("start", 8, "control symbol K27.7 before the packet", 0xFB),
)  # fmt: skip
END = _header(
    "end", "End of good packet (EGP)", "InfiniBand Architecture Specification, volume 2, chapter 5",
    ("end", 8, "control symbol K29.7 after the packet", 0xFD),
)  # fmt: skip
_UEC = "Ultra Ethernet Specification 1.0"
UET_PDS = _header(
    "PDS", "Packet Delivery Sublayer: reliable unordered request", f"{_UEC}, chapter 3.5",
    ("type", 5, "2: request of reliable unordered delivery", 2),
    ("next_header", 4, "3: standard semantic header follows", 3),
    ("reserved", 2, "0"),
    ("retransmit", 1, "sent again"),
    ("ack_request", 1, "please acknowledge this packet"),
    ("syn", 1, "opens the packet delivery context"),
    ("reserved2", 2, "0"),
    ("clear_psn_offset", 16, "up to which packet the sender has seen responses"),
    ("packet_sequence_number", 32, "counts packets of the context"),
    ("source_context", 16, "packet delivery context at the sender"),
    ("destination_context", 16, "packet delivery context at the receiver"),
)  # fmt: skip
UET_SES = _header(
    "SES", "Semantic Sublayer: standard request", f"{_UEC}, chapter 3.4",
    ("reserved", 2, "0"),
    ("opcode", 6, "1: write; 5: send", 1),
    ("version", 2, "0"),
    ("delivery_complete", 1, "respond when the data are visible"),
    ("initiator_error", 1, "0"),
    ("relative", 1, "address is relative to the job"),
    ("header_data", 1, "the header data hold"),
    ("end_of_message", 1, "last packet of the message"),
    ("start_of_message", 1, "first packet of the message"),
    ("message_id", 16, "which message"),
    ("resource_generation", 8, "age of the resource index"),
    ("job_id", 24, "which job: only its own processes are reached"),
    ("reserved2", 4, "0"),
    ("process", 12, "process at the receiver's endpoint"),
    ("reserved3", 4, "0"),
    ("resource_index", 12, "which service of the process"),
    ("buffer_offset", 64, "where in the receiver's memory the message goes"),
    ("initiator", 32, "who sends"),
    ("memory_key", 64, "right to write there"),
    ("header_data_or_place", 64, "first packet: data for the completion; others: payload bytes (14 bits) and offset (32 bits)"),
    ("request_length", 32, "bytes of the whole message"),
)  # fmt: skip
