"""Framing: packets, headers and efficiency, worked by hand and as properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.wire import TRANSPORTS, WireConfig, find, framing, framings, packets
from tokenwire.wire.config import changed


def test_a_middle_packet_of_rocev2_is_98_percent_payload() -> None:
    # Frame: 14 Ethernet + 20 IPv4 + 8 UDP + 12 BTH + 4096 + 4 ICRC + 4 FCS = 4158; with 8 preamble and 12 gap 4178.
    # A second packet of 4096 adds exactly that: no RETH in MIDDLE and LAST.
    config = WireConfig(transport="rocev2", mtu=4096)
    three, two = framing(3 * 4096, config), framing(2 * 4096, config)
    assert three.frame_bytes - two.frame_bytes == 4158
    assert three.wire_bytes - two.wire_bytes == 4178
    assert round(4096 / 4178 * 100, 2) == 98.04


def test_128_kib_of_rocev2_at_4096() -> None:
    # 131072 / 4096 = 32 packets; headers 32 x (8 + 14 + 20 + 8 + 12 + 4 + 4 + 12 = 82) = 2624, RETH once 16.
    result = framing(131_072, WireConfig())
    assert (result.packets, result.wire_bytes) == (32, 131_072 + 2624 + 16)
    assert result.header_bytes["RETH"] == 16
    assert result.header_bytes["BTH"] == 32 * 12
    assert result.efficiency == 131_072 / 133_712


def test_tcp_over_ipv4_with_timestamps() -> None:
    # MSS 1500 - 20 - 20 - 12 = 1448. 10,000 bytes: 7 segments (6 x 1448 = 8688, then 1312).
    # Each: 8 + 14 + 20 + 20 + 12 + 4 + 12 = 90. 10,000 + 7 x 90 = 10,630.
    result = framing(10_000, WireConfig(transport="tcp"))
    assert (result.payload_per_packet, result.packets, result.wire_bytes) == (1448, 7, 10_630)


def test_tcp_over_ipv6_in_a_vlan() -> None:
    # Each: 8 + 14 + 4 + 40 + 20 + 12 + 4 + 12 = 114; MSS 9000 - 40 - 32 = 8928.
    result = framing(8928, WireConfig(transport="tcp", mtu=9000, ip_version=6, vlan=7))
    assert (result.packets, result.wire_bytes) == (1, 8928 + 114)


def test_infiniband_with_and_without_a_global_route() -> None:
    # 8 LRH + 12 BTH + 16 RETH + 4096 + 4 ICRC + 2 VCRC = 4138; two delimiters: 4140. GRH adds 40.
    assert framing(4096, WireConfig(transport="infiniband")).wire_bytes == 4140
    assert framing(4096, WireConfig(transport="infiniband", grh=True)).wire_bytes == 4180


def test_ultra_ethernet() -> None:
    # 8 + 14 + 20 + 8 UDP + 12 PDS + 44 SES + 4096 + 4 + 12 = 4218 for each packet, the first like the others.
    assert framing(8192, WireConfig(transport="uet")).wire_bytes == 2 * 4218


def test_a_small_frame_is_padded_to_64_bytes() -> None:
    # TCP without timestamps and one byte: 14 + 20 + 20 + 1 + 4 = 59; 64 + 8 + 12 = 84.
    result = framing(1, WireConfig(transport="tcp", timestamps=False))
    assert (result.frame_bytes, result.wire_bytes, result.header_bytes["pad"]) == (64, 84, 5)


def test_a_message_without_bytes() -> None:
    # RDMA: one packet WRITE_ONLY with RETH, 82 + 16. TCP sends nothing.
    assert framing(0, WireConfig()).wire_bytes == 98
    assert framing(0, WireConfig(transport="tcp")).packets == 0
    assert framing(0, WireConfig()).efficiency == 0


@pytest.mark.parametrize("transport", list(TRANSPORTS))
@given(
    size=st.integers(0, 2**40),
    mtu=st.integers(0, 4),
    operation=st.sampled_from(["write", "send", "write_with_immediate"]),
)
def test_every_byte_is_accounted_for(transport: str, size: int, mtu: int, operation: str) -> None:
    known = TRANSPORTS[transport].mtus
    config = WireConfig(transport=transport, mtu=known[mtu % len(known)], operation=operation)  # type: ignore[arg-type]
    result = framing(size, config)
    assert sum(result.header_bytes.values()) + size == result.wire_bytes
    assert (
        0
        <= result.wire_bytes - result.frame_bytes
        == result.packets * (20 if transport != "infiniband" else 2)
    )
    assert (result.packets - 1) * result.payload_per_packet < size or size == 0
    assert 0 <= result.efficiency < 1
    assert framing(size + 1, config).wire_bytes >= result.wire_bytes


def test_arrays_agree_with_single_sizes() -> None:
    sizes = np.array([[0, 1, 255], [4096, 4097, 10**9]])
    rows = framings(sizes, WireConfig(mtu=1024))
    assert rows.shape == sizes.shape
    for size, row in zip(sizes.ravel(), rows.ravel(), strict=True):
        assert framing(int(size), WireConfig(mtu=1024)).wire_bytes == row["wire_bytes"]


@pytest.mark.parametrize("transport", list(TRANSPORTS))
@given(size=st.integers(0, 20_000), vlan=st.none() | st.integers(0, 4094), ip=st.sampled_from([4, 6]))
def test_real_packets_have_the_predicted_size(transport: str, size: int, vlan: int | None, ip: int) -> None:
    config = WireConfig(transport=transport, vlan=vlan, ip_version=ip)  # type: ignore[arg-type]
    made = list(packets(bytes(size), config))
    assert len(made) == framing(size, config).packets
    assert sum(len(packet.data) for packet in made) == framing(size, config).frame_bytes


@pytest.mark.parametrize("transport", list(TRANSPORTS))
@given(message=st.binary(min_size=1, max_size=3000), data=st.data())
def test_find_points_at_the_byte(transport: str, message: bytes, data: st.DataObject) -> None:
    config = WireConfig(transport=transport, mtu=TRANSPORTS[transport].mtus[0])
    offset = data.draw(st.integers(0, len(message) - 1))
    found = find(offset, len(message), config)
    packet = list(packets(message, config))[found.place.index]
    assert packet.data[found.in_frame] == message[offset]
    assert packet.payload[found.in_payload] == message[offset]


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"transport": "rocev3"}, "nearest that works: rocev2"),
        ({"mtu": 3000}, "nearest that works: 2048"),
        ({"transport": "tcp", "mtu": 100}, "nearest that works: 576"),
        ({"mtu": 0}, "greater than or equal to 1"),
        ({"mtuu": 4096}, "nearest that works: mtu"),
        ({"ip_version": 5}, "4 or 6"),
        ({"vlan": 4095}, "less than or equal to 4094"),
    ],
)
def test_wrong_sections_are_explained(given_: dict[str, object], said: str) -> None:
    from tokenwire.config import read_section

    with pytest.raises(InputError, match=said) as error:
        read_section(WireConfig, given_, where="[wire]")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [-1, 2**51, 10**30])
def test_impossible_sizes(size: int) -> None:
    with pytest.raises(InputError, match="bytes"):
        framing(size, WireConfig())


def test_impossible_places() -> None:
    with pytest.raises(InputError, match="nearest that works: 9"):
        find(10, 10, WireConfig())
    with pytest.raises(InputError, match="offset 0"):
        find(0, 0, WireConfig())


def test_the_mtu_of_a_port_is_more_than_the_path_mtu() -> None:
    # The path MTU counts the payload. IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4 around 4,096 B: 4,156 B, which a port at 4,096 drops.
    def ports(**options: object) -> dict[str, float]:
        return {one.name: one.value for one in framing(131_072, WireConfig(**options)).figures if one.name.startswith("port MTU")}  # type: ignore[arg-type]

    least, linux = "port MTU, at least (largest IP packet)", "port MTU, for this path MTU on Linux"
    assert ports() == {least: 4156, linux: 4192}
    assert ports(ip_version=6) == {least: 4176, linux: 4192}
    assert ports(vlan=5) == ports()  # a tag is outside what the MTU counts
    assert ports(operation="write_with_immediate")[least] == 4160
    assert ports(mtu=1024) == {least: 1084, linux: 1120}
    # TCP's MTU is that of the port; InfiniBand has no IP.
    assert ports(transport="tcp") == ports(transport="infiniband") == {}
    made = next(packets(bytes(4096), WireConfig(mtu=4096)))
    assert made.value("IPv4", "total_length") == 4156


def test_a_roce_frame_has_the_class_and_the_next_hop_of_a_routed_fabric() -> None:
    made = next(packets(bytes(10), WireConfig()))
    assert (made.value("IPv4", "dscp"), made.value("IPv4", "ecn")) == (26, 2)
    assert made.value("Ethernet", "destination") == 0x00005E000101
    assert next(packets(bytes(10), WireConfig(transport="tcp"))).value("IPv4", "dscp") == 0
    assert changed(WireConfig(), {"transport": "tcp"}).traffic_class == 0
    assert WireConfig(traffic_class=0).traffic_class == 0
