"""Real packets: bytes, fields, checks."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.wire import TRANSPORTS, Connection, WireConfig, packet, packets, place_of
from tokenwire.wire.build import acknowledgement
from tokenwire.wire.capture import link_type, records, write_capture
from tokenwire.wire.checksums import fcs, icrc, internet_checksum, masked_infiniband, masked_ipv4, vcrc

OPERATIONS = ["write", "send", "write_with_immediate"]
CONFIGS = st.builds(
    WireConfig, transport=st.sampled_from(sorted(TRANSPORTS)), mtu=st.just(1024), ip_version=st.sampled_from([4, 6]),
    vlan=st.none() | st.integers(0, 4094), operation=st.sampled_from(OPERATIONS), grh=st.booleans(),
    timestamps=st.booleans(), traffic_class=st.integers(0, 255),
)  # fmt: skip


@given(message=st.binary(max_size=5000), config=CONFIGS)
def test_payload_of_packets_is_the_message(message: bytes, config: WireConfig) -> None:
    made = list(packets(message, config))
    assert b"".join(packet.payload for packet in made) == message
    assert all(packet.place.length == len(packet.payload) for packet in made)


@given(message=st.binary(max_size=3000), config=CONFIGS)
def test_fields_are_all_bits_of_the_packet(message: bytes, config: WireConfig) -> None:
    for made in packets(message, config):
        at = value = 0
        for field in made.fields:
            assert field.bit_offset == at
            at += field.bit_length
            value = value << field.bit_length | field.value
        assert at == 8 * len(made.data)
        assert value.to_bytes(len(made.data), "big") == made.data


def test_the_layout_of_a_write_by_hand() -> None:
    config = WireConfig(mtu=256)
    first, last = packets(
        bytes(range(200)) * 2, config, src=(0, 2), dst=(1, 3), qp=0xABC, psn=0xFFFFFF, va=0x1122, rkey=0x33
    )
    # 14 + 20 + 8 + 12 + 16 + 256 + 4 + 4; the last one has 144 bytes and no RETH.
    assert (len(first.data), len(last.data)) == (334, 206)
    # To the leaf, which routes, from the NIC; DSCP 26 and ECN 10: 0x6a.
    assert first.data[:12].hex() == "00005e000101" + "027477000002"
    assert first.data[12:16].hex() == "0800456a"
    assert int.from_bytes(first.data[16:18], "big") == 334 - 14 - 4
    assert first.data[26:34].hex() == "0a0200010a030002"
    assert first.data[36:38] == (4791).to_bytes(2, "big")
    # Opcode 06 WRITE_FIRST, then 08 WRITE_LAST; 0x40 MigReq; P_Key FFFF; QP; the sequence number wraps to 0.
    assert first.data[42:54].hex() == "0640ffff00000abc00ffffff"
    assert last.data[42:54].hex() == "0840ffff00000abc80000000"
    assert first.data[54:70].hex() == "0000000000001122" + "00000033" + "00000190"
    assert first.value("RETH", "dma_length") == 400


def test_opcodes_of_every_shape() -> None:
    def codes(size: int, operation: str) -> list[int]:
        config = WireConfig(mtu=256, operation=operation)  # type: ignore[arg-type]
        return [made.value("BTH", "opcode") for made in packets(bytes(size), config)]

    assert codes(700, "write") == [6, 7, 8]
    assert codes(700, "write_with_immediate") == [6, 7, 9]
    assert codes(700, "send") == [0, 1, 2]
    assert [codes(0, operation) for operation in OPERATIONS] == [[10], [4], [11]]


@given(message=st.binary(max_size=1500), config=CONFIGS)
def test_checks_hold(message: bytes, config: WireConfig) -> None:
    for made in packets(message, config):
        starts = {header.name: (start, size) for header, start, size in made.layout}
        if config.transport == "infiniband":
            assert made.data[-2:] == vcrc(made.data[:-2])
            continue
        assert made.data[-4:] == fcs(made.data[:-4])
        if "IPv4" in starts:
            at, size = starts["IPv4"]
            # A header with its right checksum sums to 0.
            assert internet_checksum(made.data[at : at + size]) == 0
            if config.transport == "rocev2":
                end = starts["ICRC"][0]
                covered = masked_ipv4(made.data[at : at + size], made.data[at + size : end])
                assert made.data[end : end + 4] == icrc(covered)


def test_icrc_of_the_specifications_sample_packet() -> None:
    # InfiniBand Architecture Specification, volume 1, chapter 7.8.3: LRH, BTH, RETH, 14 bytes, 2 of padding: 9625B75A.
    lrh, bth = bytes.fromhex("7012375c000e17d2"), bytes.fromhex("0a2024870087b1b3000dec2a")
    rest = bytes.fromhex("01710a1c015d400238f27a050000000e" + "bb884d85fd5cfba4728bc0690ed4" + "0000")
    assert icrc(masked_infiniband(lrh, b"", bth + rest)).hex() == "9625b75a"


def test_fields_that_may_change_on_the_way_do_not_touch_the_icrc() -> None:
    made = next(packets(b"abc", WireConfig()))
    ip, rest = bytearray(made.data[14:34]), bytearray(made.data[34:-8])
    before = icrc(masked_ipv4(bytes(ip), bytes(rest)))
    ip[1], ip[8], rest[12] = 3, 1, 0xC0  # congestion marks, a hop, FECN and BECN
    assert icrc(masked_ipv4(bytes(ip), bytes(rest))) == before
    rest[13] ^= 1  # the queue pair may not change
    assert icrc(masked_ipv4(bytes(ip), bytes(rest))) != before


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"qp": 2**24}, "24 bits"), ({"va": -1}, "64 bits"), ({"src": (2**16, 0)}, "nodes"), ({"dst": (0, 256)}, "NICs"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(given_: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        next(packets(b"x", WireConfig(), **given_))  # type: ignore[arg-type]


def test_one_packet_of_a_huge_message() -> None:
    place = place_of(2**31, WireConfig(), 2**19 - 1)
    made = packet(bytes(4096), place, WireConfig(), Connection(psn=5))
    assert made.value("BTH", "opcode") == 8
    assert made.value("BTH", "packet_sequence_number") == 2**19 + 4
    with pytest.raises(InputError, match="2 GiB"):
        packet(bytes(4096), place_of(2**31 + 4096, WireConfig(), 0), WireConfig(), Connection())


SCAPY = importlib.util.find_spec("scapy") is not None


@pytest.mark.skipif(not SCAPY, reason="needs scapy")
@settings(max_examples=25, deadline=None)
@given(
    message=st.binary(max_size=900), version=st.sampled_from([4, 6]), operation=st.sampled_from(OPERATIONS)
)
def test_scapy_computes_the_same_icrc_and_checksums(message: bytes, version: int, operation: str) -> None:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    config = WireConfig(mtu=256, ip_version=version, operation=operation)  # type: ignore[arg-type]
    for made in packets(message, config, qp=0x77, psn=9):
        read = Ether(made.captured)
        bth = read[BTH]
        assert (bth.opcode, bth.dqpn, bth.psn, bth.ackreq, bth.padcount) == tuple(
            made.value("BTH", name)
            for name in ("opcode", "destination_qp", "packet_sequence_number", "ack_request", "pad_count")
        )
        # A frame shorter than Ethernet's least is padded, which scapy would count in.
        if len(made.captured) > 60:
            assert bth.compute_icrc(None) == made.value("ICRC", "icrc").to_bytes(4, "big")
        if version == 4:
            rebuilt = IP(bytes(read[IP]))
            del rebuilt.chksum
            assert IP(bytes(rebuilt)).chksum == made.value("IPv4", "checksum")
        else:
            rebuilt = read.copy()
            del rebuilt[UDP].chksum
            assert Ether(bytes(rebuilt))[UDP].chksum == made.value("UDP", "checksum")


DPKT = importlib.util.find_spec("dpkt") is not None


@pytest.mark.skipif(not DPKT, reason="needs dpkt")
@pytest.mark.parametrize("version", [4, 6])
def test_dpkt_reads_the_same_fields(version: int) -> None:
    import dpkt

    for transport, port in (("rocev2", 4791), ("tcp", 29_500), ("uet", 4793)):
        config = WireConfig(transport=transport, ip_version=version)  # type: ignore[arg-type]
        for made in packets(bytes(9000), config, src=(3, 1), dst=(4, 2)):
            read = dpkt.ethernet.Ethernet(made.captured)
            assert read.src.hex() == "027477000301"
            assert read.data.data.dport == port
            assert made.captured.endswith(bytes(read.data.data.data))


TSHARK = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")


def dissected(path: Path, *fields: str) -> list[list[str]]:
    options = [part for name in ("ip", "tcp", "udp") for part in ("-o", f"{name}.check_checksum:TRUE")]
    asked = [part for field in fields for part in ("-e", field)]
    run = subprocess.run(
        ["tshark", "-r", str(path), *options, "-T", "json", *asked],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    out = []
    for row in json.loads(run.stdout):
        layers = row["_source"]["layers"]
        out.append([layers.get(field, [""])[0] for field in fields])
    return out


@TSHARK
@pytest.mark.tshark
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("transport", ["rocev2", "infiniband"])
@pytest.mark.parametrize("vlan", [None, 42])
def test_tshark_agrees_field_by_field(
    tmp_path: Path, transport: str, version: int, operation: str, vlan: int | None
) -> None:
    config = WireConfig(
        transport=transport, ip_version=version, operation=operation, vlan=vlan, grh=version == 6
    )  # type: ignore[arg-type]
    made = list(
        packets(
            bytes(range(256)) * 40 + b"x", config, src=(3, 1), dst=(4, 2), qp=0x1234, psn=0xFFFFFE, va=2**63
        )
    )
    connection = Connection(source=(3, 1), destination=(4, 2), qp=0x1234, psn=0xFFFFFE)
    made.append(acknowledgement(config, connection, made[-1].place, 7))
    link = link_type(transport)
    write_capture(
        tmp_path / "a.pcap", records(((k * 100, one) for k, one in enumerate(made)), link=link), link
    )
    names = {
        "infiniband.bth.opcode": ("BTH", "opcode"), "infiniband.bth.destqp": ("BTH", "destination_qp"),
        "infiniband.bth.psn": ("BTH", "packet_sequence_number"), "infiniband.bth.a": ("BTH", "ack_request"),
        "infiniband.bth.padcnt": ("BTH", "pad_count"), "infiniband.bth.p_key": ("BTH", "partition_key"),
        "infiniband.reth.va": ("RETH", "virtual_address"), "infiniband.reth.r_key": ("RETH", "remote_key"),
        "infiniband.reth.dmalen": ("RETH", "dma_length"), "infiniband.immdt": ("ImmDt", "immediate"),
        "infiniband.aeth.msn": ("AETH", "message_sequence_number"), "infiniband.invariant.crc": ("ICRC", "icrc"),
        "ip.checksum": ("IPv4", "checksum"), "ip.len": ("IPv4", "total_length"), "udp.srcport": ("UDP", "source_port"),
        "udp.checksum": ("UDP", "checksum"), "vlan.id": ("802.1Q", "vlan"), "infiniband.lrh.pktlen": ("LRH", "packet_length"),
        "infiniband.lrh.slid": ("LRH", "source_lid"), "infiniband.variant.crc": ("VCRC", "vcrc"),
    }  # fmt: skip
    rows = dissected(tmp_path / "a.pcap", "_ws.expert.message", "_ws.malformed", *names)
    assert len(rows) == len(made)
    for row, one in zip(rows, made, strict=True):
        assert row[:2] == ["", ""]
        shown = {(field.layer, field.name): field.value for field in one.fields}
        for text, place in zip(row[2:], names.values(), strict=True):
            if place in shown:
                assert int({"True": "1", "False": "0"}.get(text, text), 0) == shown[place], place
            else:
                assert text == "", place


@TSHARK
@pytest.mark.tshark
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("transport", ["tcp", "uet"])
def test_tshark_finds_no_fault_in_other_transports(tmp_path: Path, transport: str, version: int) -> None:
    config = WireConfig(transport=transport, ip_version=version)  # type: ignore[arg-type]
    made = list(packets(bytes(20_000), config))
    write_capture(tmp_path / "a.pcap", records((k * 100, one) for k, one in enumerate(made)))
    wanted = "tcp.checksum.status" if transport == "tcp" else "udp.checksum.status"
    rows = dissected(tmp_path / "a.pcap", "_ws.expert.message", "_ws.malformed", wanted)
    # 1: good; 3: not present (UDP over IPv4).
    status = "3" if transport == "uet" and version == 4 else "1"
    assert rows == [["", "", status]] * len(made)
