"""The bytes of packets, layer upon layer, for each transport; checks are computed over what really is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenwire.fabric.fivetuple import udp_source_port
from tokenwire.wire import checksums, headers
from tokenwire.wire.config import WireConfig
from tokenwire.wire.connection import NEXT_HOP, Connection, ipv4, ipv6, lid, mac
from tokenwire.wire.headers import Header
from tokenwire.wire.packet import PAD, PAYLOAD, Packet, Place, assemble
from tokenwire.wire.transports import rdma, rocev2, uet
from tokenwire.wire.transports.ethernet import MINIMUM_FRAME

Part = tuple[Header, bytes]

_UDP, _TCP = 17, 6
_TYPES = {4: 0x0800, 6: 0x86DD}
TCP_PORT = 29_500
"""Destination port of TCP packets: where torch's rendezvous listens unless told otherwise (torchrun, --master-port)."""


def over_ethernet(
    config: WireConfig, connection: Connection, place: Place, layers: tuple[int, Sequence[Part]]
) -> Packet:
    """Return a packet of IP protocol and ``layers`` above IP, in Ethernet, with its FCS."""
    protocol, parts = layers
    ip = _ip(config, connection, place, protocol, sum(len(part) for _, part in parts))
    version = headers.IPV4 if config.ip_version == 4 else headers.IPV6
    below = [*_ethernet(config, connection), (version, ip)]
    size = sum(len(part) for _, part in [*below, *parts]) + headers.FCS.size
    short = b"\0" * max(0, MINIMUM_FRAME - size)
    whole = [*below, *parts, (PAD, short)]
    check = checksums.fcs(b"".join(part for _, part in whole))
    return assemble(place, [*whole, (headers.FCS, check)])


def _ethernet(config: WireConfig, connection: Connection) -> list[Part]:
    addresses = {"destination": NEXT_HOP, "source": mac(connection.source)}
    inner = _TYPES[config.ip_version]
    if config.vlan is None:
        return [(headers.ETHERNET, headers.ETHERNET.pack({**addresses, "type": inner}))]
    tag = {"priority": config.traffic_class >> 5, "vlan": config.vlan, "type": inner}
    return [
        (headers.ETHERNET, headers.ETHERNET.pack({**addresses, "type": 0x8100})),
        (headers.VLAN, headers.VLAN.pack(tag)),
    ]


def _ip(config: WireConfig, connection: Connection, place: Place, protocol: int, size: int) -> bytes:
    dscp, ecn = config.traffic_class >> 2, config.traffic_class & 3
    if config.ip_version == 6:
        label = udp_source_port(connection.source_qp, connection.qp) if protocol == _UDP else 0
        return headers.IPV6.pack(
            {
                "dscp": dscp, "ecn": ecn, "flow_label": label, "payload_length": size, "next_header": protocol,
                "source": ipv6(connection.source), "destination": ipv6(connection.destination),
            }
        )  # fmt: skip
    bare = headers.IPV4.pack(
        {
            "dscp": dscp, "ecn": ecn, "total_length": headers.IPV4.size + size, "protocol": protocol,
            "identification": connection.psn + place.index & 0xFFFF,
            "source": ipv4(connection.source), "destination": ipv4(connection.destination),
        }
    )  # fmt: skip
    return bare[:10] + checksums.internet_checksum(bare).to_bytes(2, "big") + bare[12:]


def _udp(connection: Connection, port: int, size: int) -> bytes:
    source = udp_source_port(connection.source_qp, connection.qp)
    return headers.UDP.pack(
        {"source_port": source, "destination_port": port, "length": headers.UDP.size + size, "checksum": 0}
    )


def _rdma(config: WireConfig, connection: Connection, place: Place, payload: bytes) -> list[Part]:
    pad = b"\0" * (-len(payload) % 4)
    bth = headers.BTH.pack(
        {
            "opcode": rdma.opcode(config.operation, place.index, place.packets), "pad_count": len(pad),
            "destination_qp": connection.qp, "ack_request": int(place.last),
            "packet_sequence_number": connection.psn + place.index & 0xFFFFFF,
        }
    )  # fmt: skip
    parts: list[Part] = [(headers.BTH, bth)]
    if place.first and config.operation != "send":
        # The length field has 32 bits; NICs cut longer messages into several WRITEs.
        reth = {
            "virtual_address": connection.va,
            "remote_key": connection.rkey,
            "dma_length": place.message_bytes,
        }
        parts.append((headers.RETH, headers.RETH.pack(reth)))
    if place.last and config.operation == "write_with_immediate":
        parts.append((headers.IMMEDIATE, headers.IMMEDIATE.pack({"immediate": connection.immediate})))
    return [*parts, (PAYLOAD, payload), (PAD, pad)]


def rocev2_layers(
    config: WireConfig, connection: Connection, place: Place, payload: bytes
) -> tuple[int, list[Part]]:
    """Return the IP protocol and the layers above IP of a RoCEv2 packet, its ICRC among them."""
    return roce(config, connection, place, _rdma(config, connection, place, payload))


def roce(
    config: WireConfig, connection: Connection, place: Place, parts: Sequence[Part]
) -> tuple[int, list[Part]]:
    """Return UDP, ``parts`` (BTH and what follows it) and their ICRC."""
    size = sum(len(part) for _, part in parts) + headers.ICRC.size
    udp = _udp(connection, rocev2.UDP_PORT, size)
    ip = _ip(config, connection, place, _UDP, headers.UDP.size + size)
    mask = checksums.masked_ipv4 if config.ip_version == 4 else checksums.masked_ipv6
    check = checksums.icrc(mask(ip, udp + b"".join(part for _, part in parts)))
    return _UDP, _checked(config, connection, [(headers.UDP, udp), *parts, (headers.ICRC, check)])


def _checked(config: WireConfig, connection: Connection, parts: list[Part]) -> list[Part]:
    """Return ``parts``, which begin with UDP, with the checksum of UDP where the version of IP asks for one."""
    if config.ip_version == 4:
        return parts
    whole = b"".join(part for _, part in parts)
    # A sum of 0 is sent as 0xFFFF, since 0 means that there is none (RFC 768).
    check = checksums.internet_checksum(_pseudo(config, connection, _UDP, len(whole)) + whole) or 0xFFFF
    header, udp = parts[0]
    return [(header, udp[:6] + check.to_bytes(2, "big")), *parts[1:]]


def acknowledgement(config: WireConfig, connection: Connection, answered: Place, completed: int) -> Packet:
    """Return what the receiver answers when the packet at ``answered`` and all before it have arrived.

    Of RDMA the BTH carries that packet's sequence number and the AETH the credits (31: not limited) and ``completed``,
    the messages completed on the queue pair; of TCP it is a segment without payload that asks for the next byte.
    """
    place = Place(0, 1, 0, 0, 0)
    number = connection.psn + answered.index
    back = replace(connection, source=connection.destination, destination=connection.source, psn=number)
    if config.transport == "tcp":
        following = connection.psn + answered.offset + answered.length
        return over_ethernet(config, back, place, tcp_layers(config, back, place, b"", answers=following))
    bth = headers.BTH.pack(
        {
            "opcode": rdma.NUMBERS["RC_ACKNOWLEDGE"], "destination_qp": connection.source_qp,
            "packet_sequence_number": number & 0xFFFFFF,
        }
    )  # fmt: skip
    aeth = headers.AETH.pack({"message_sequence_number": completed & 0xFFFFFF})
    parts = [(headers.BTH, bth), (headers.AETH, aeth), (PAYLOAD, b"")]
    if config.transport == "infiniband":
        return infiniband(config, back, place, parts)
    return over_ethernet(config, back, place, roce(config, back, place, parts))


def infiniband_packet(config: WireConfig, connection: Connection, place: Place, payload: bytes) -> Packet:
    """Return a packet of InfiniBand, LRH to VCRC."""
    return infiniband(config, connection, place, _rdma(config, connection, place, payload))


def infiniband(config: WireConfig, connection: Connection, place: Place, parts: Sequence[Part]) -> Packet:
    """Return the routes, ``parts`` (BTH and what follows it) and their two checks."""
    inner = sum(len(part) for _, part in parts) + headers.ICRC.size
    grh = b""
    if config.grh:
        grh = headers.GRH.pack(
            {
                "payload_length": inner, "traffic_class": config.traffic_class,
                "source_gid": ipv6(connection.source), "destination_gid": ipv6(connection.destination),
            }
        )  # fmt: skip
    lrh = headers.LRH.pack(
        {
            "next_header": 3 if grh else 2, "destination_lid": lid(connection.destination),
            "source_lid": lid(connection.source), "packet_length": (headers.LRH.size + len(grh) + inner) // 4,
        }
    )  # fmt: skip
    rest = b"".join(part for _, part in parts)
    check = checksums.icrc(checksums.masked_infiniband(lrh, grh, rest))
    vcrc = checksums.vcrc(lrh + grh + rest + check)
    route: list[Part] = [(headers.LRH, lrh), (headers.GRH, grh)] if grh else [(headers.LRH, lrh)]
    return assemble(place, [*route, *parts, (headers.ICRC, check), (headers.VCRC, vcrc)])


def tcp_layers(
    config: WireConfig, connection: Connection, place: Place, payload: bytes, answers: int | None = None
) -> tuple[int, list[Part]]:
    """Return the IP protocol and the layers above IP of a TCP segment.

    ``answers`` makes it an acknowledgement, sent the other way, of all bytes before that number.
    """
    options = b""
    if config.timestamps:
        options = headers.TCP_TIMESTAMPS.pack({"value": connection.time & 0xFFFFFFFF})
    sender, receiver = udp_source_port(connection.source_qp, connection.qp), TCP_PORT
    # Data start at the connection's number; the other side never sends any, so its numbers stay at 1.
    numbers = (connection.psn + place.offset, 1) if answers is None else (1, answers)
    ports = (sender, receiver) if answers is None else (receiver, sender)
    bare = headers.TCP.pack(
        {
            "source_port": ports[0], "destination_port": ports[1],
            "sequence": numbers[0] & 0xFFFFFFFF, "acknowledgement": numbers[1] & 0xFFFFFFFF,
            "data_offset": (headers.TCP.size + len(options)) // 4, "psh": int(place.last and answers is None),
        }
    )  # fmt: skip
    check = checksums.internet_checksum(
        _pseudo(config, connection, _TCP, len(bare + options + payload)) + bare + options + payload
    )
    tcp = bare[:16] + check.to_bytes(2, "big") + bare[18:]
    timestamps: list[Part] = [(headers.TCP_TIMESTAMPS, options)] if options else []
    return _TCP, [(headers.TCP, tcp), *timestamps, (PAYLOAD, payload)]


def _pseudo(config: WireConfig, connection: Connection, protocol: int, size: int) -> bytes:
    if config.ip_version == 4:
        addresses = ipv4(connection.source).to_bytes(4, "big") + ipv4(connection.destination).to_bytes(
            4, "big"
        )
        return addresses + protocol.to_bytes(2, "big") + size.to_bytes(2, "big")
    addresses = ipv6(connection.source).to_bytes(16, "big") + ipv6(connection.destination).to_bytes(16, "big")
    return addresses + size.to_bytes(4, "big") + protocol.to_bytes(4, "big")


def uet_layers(
    config: WireConfig, connection: Connection, place: Place, payload: bytes
) -> tuple[int, list[Part]]:
    """Return the IP protocol and the layers above IP of an Ultra Ethernet packet (reliable, unordered)."""
    pds = headers.UET_PDS.pack(
        {
            "ack_request": int(place.last), "packet_sequence_number": connection.psn + place.index & 0xFFFFFFFF,
            "source_context": connection.source_qp & 0xFFFF, "destination_context": connection.qp & 0xFFFF,
        }
    )  # fmt: skip
    ses = headers.UET_SES.pack(
        {
            "opcode": 5 if config.operation == "send" else 1, "message_id": connection.psn & 0xFFFF,
            "start_of_message": int(place.first), "end_of_message": int(place.last),
            "header_data": int(place.first and config.operation == "write_with_immediate"),
            "job_id": connection.job, "buffer_offset": connection.va, "memory_key": connection.rkey,
            "header_data_or_place": connection.immediate if place.first else place.length << 32 | place.offset,
            "request_length": place.message_bytes,
        }
    )  # fmt: skip
    size = len(pds) + len(ses) + len(payload)
    udp = _udp(connection, uet.UDP_PORT, size)
    parts = [(headers.UDP, udp), (headers.UET_PDS, pds), (headers.UET_SES, ses), (PAYLOAD, payload)]
    return _UDP, _checked(config, connection, parts)
