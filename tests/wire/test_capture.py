"""Captures: written, read back, cut, broken, hostile; flows and what is concluded from them."""

import gzip
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.wire import Packet, WireConfig, packets
from tokenwire.wire.capture import PACKETS, Notes, link_type, read_capture, records, summarize, write_capture
from tokenwire.wire.capture.pattern import guess
from tokenwire.wire.capture.reading import PIECE
from tokenwire.wire.capture.writing import file_header, record


def decoded(path: Path, **options: Any) -> tuple[Any, Notes]:
    notes = Notes()
    batches = [rows.copy() for rows in read_capture(path, notes, **options)]
    return (np.concatenate(batches) if batches else np.zeros(0, PACKETS)), notes


def written(path: Path, made: list[Packet], transport: str = "rocev2", snap: int = 2**18) -> Path:
    link = link_type(transport)
    write_capture(path, records(((10**18 + k, one) for k, one in enumerate(made)), snap, link), link)
    return path


FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FAST
@given(
    message=st.binary(max_size=4000), transport=st.sampled_from(["rocev2", "infiniband", "tcp", "uet"]),
    version=st.sampled_from([4, 6]), vlan=st.none() | st.integers(0, 4094), psn=st.integers(0, 2**24 - 1),
    operation=st.sampled_from(["write", "send", "write_with_immediate"]),
)  # fmt: skip
def test_what_is_written_is_read(
    tmp_path: Path, message: bytes, transport: str, version: int, vlan: int | None, psn: int, operation: str
) -> None:
    config = WireConfig(
        transport=transport, mtu=1024, ip_version=version, vlan=vlan, operation=operation, grh=version == 6
    )  # type: ignore[arg-type]
    made = list(packets(message, config, src=(7, 1), dst=(8, 2), qp=0x4321, psn=psn))
    rows, notes = decoded(written(tmp_path / "a.pcap", made, transport))
    assert not notes.problems
    assert rows["payload"].tolist() == [one.place.length for one in made]
    assert not rows["status"].any()
    assert rows["time"].tolist() == [10**18 + k for k in range(len(made))]
    if transport in ("rocev2", "infiniband"):
        for row, one in zip(rows, made, strict=True):
            assert row["opcode"] == one.value("BTH", "opcode")
            assert row["sequence"] == one.value("BTH", "packet_sequence_number")
            assert row["qp"] == 0x4321
            assert row["flags"] & 1 == one.place.last
        assert rows["dma_length"][0] == (0 if operation == "send" else len(message))
    if transport != "infiniband" and len(rows):
        assert (rows["vlan"] == (0xFFFF if vlan is None else vlan)).all()
        assert (rows["ip"] == version).all()


@pytest.mark.parametrize("transport", ["rocev2", "tcp", "infiniband", "uet"])
@pytest.mark.parametrize("snap", [1, 20, 40, 64, 96])
def test_a_snap_length_does_not_change_volumes(tmp_path: Path, transport: str, snap: int) -> None:
    made = list(packets(bytes(20_000), WireConfig(transport=transport, mtu=1024)))  # type: ignore[arg-type]
    whole = summarize(written(tmp_path / "a.pcap", made, transport))
    cut = summarize(written(tmp_path / "b.pcap", made, transport, snap))
    assert (cut.packets, cut.bytes) == (whole.packets, whole.bytes)
    assert (cut.payload == whole.payload == 20_000) if snap >= 96 else cut.cut or cut.payload == 20_000
    if snap < 20:
        assert cut.cut == cut.packets


def test_times_and_byte_orders(tmp_path: Path) -> None:
    data = bytes(60)
    for order in "<>":
        for magic, tick in ((0xA1B2C3D4, 1000), (0xA1B23C4D, 1), (0xA1B2CD34, 1000)):
            more = bytes(8) if magic == 0xA1B2CD34 else b""
            head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
            body = struct.pack(order + "IIII", 5, 7, 60, 60) + more + data
            (tmp_path / "a.pcap").write_bytes(head + body * 2)
            rows, notes = decoded(tmp_path / "a.pcap")
            assert rows["time"].tolist() == [5 * 10**9 + 7 * tick] * 2
            assert not notes.problems


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, link: int = 1, snap: int = 0, options: bytes = b"") -> bytes:
    return block(order, 1, struct.pack(order + "HHI", link, 0, snap) + options)


def enhanced(order: str, ticks: int, data: bytes, number: int = 0, length: int | None = None) -> bytes:
    head = struct.pack(
        order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length or len(data)
    )
    return block(order, 6, head + data)


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_with_several_sections_interfaces_and_resolutions(tmp_path: Path, order: str) -> None:
    frame = next(packets(bytes(100), WireConfig())).captured
    nano = struct.pack(order + "HH", 9, 1) + b"\x09\0\0\0"
    binary = struct.pack(order + "HH", 9, 1) + b"\x8a\0\0\0"  # 2^-10 s
    shifted = struct.pack(order + "HHq", 14, 8, 100)
    end = struct.pack(order + "HH", 0, 0)
    file = (
        section(order)
        + interface(order)
        + interface(order, options=nano + end)
        + interface(order, options=binary + shifted)
    )
    file += (
        enhanced(order, 5, frame) + enhanced(order, 10**18 + 5, frame, 1) + enhanced(order, 2048, frame, 2)
    )
    file += block(order, 0x0BAD, b"other tools' blocks are passed over")
    other = "<" if order == ">" else ">"
    file += (
        section(other)
        + interface(other, snap=64)
        + block(other, 3, struct.pack(other + "I", len(frame)) + frame[:64])
    )
    (tmp_path / "a.pcapng").write_bytes(file)
    rows, notes = decoded(tmp_path / "a.pcapng")
    assert notes.problems == []
    assert rows["time"].tolist()[:3] == [5000, 10**18 + 5, 102 * 10**9]
    assert rows["payload"].tolist() == [100] * 4
    assert rows["captured"].tolist() == [len(frame)] * 3 + [64]


def test_gzip_and_a_broken_one(tmp_path: Path) -> None:
    made = list(packets(random.Random(1).randbytes(400_000), WireConfig()))
    plain = written(tmp_path / "a.pcap", made).read_bytes()
    packed = gzip.compress(plain)
    (tmp_path / "a.gz").write_bytes(packed)
    assert summarize(tmp_path / "a.gz").payload == 400_000
    (tmp_path / "b.gz").write_bytes(packed[: len(packed) // 2])
    broken = summarize(tmp_path / "b.gz")
    assert 0 < broken.packets < len(made)
    assert any("compressed" in problem for problem in broken.problems)


def test_files_larger_than_a_piece(tmp_path: Path) -> None:
    frame = next(packets(bytes(4000), WireConfig())).captured
    count = 3 * PIECE // len(frame)
    write_capture(tmp_path / "a.pcap", (record(k, frame) for k in range(count)))
    capture = summarize(tmp_path / "a.pcap")
    assert (capture.packets, capture.payload, capture.problems) == (count, 4000 * count, ())
    assert summarize(tmp_path / "a.pcap", limit=10).packets == 10


@pytest.mark.parametrize(
    "content", [b"", b"x", b"not a capture at all", b"\xd4\xc3\xb2\xa1", bytes(100), b"\x1f\x8bxxxxxx"]
)
def test_what_is_no_capture_is_said_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError) as error:
        summarize(tmp_path / "a")
    assert "\n" not in str(error.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        summarize(tmp_path / "none")
    with pytest.raises(InputError, match="folder"):
        summarize(tmp_path)


def test_a_file_cut_in_a_record_gives_all_before(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.pcap", list(packets(bytes(10_000), WireConfig()))).read_bytes()
    for cut in range(24, len(whole), 97):
        (tmp_path / "b.pcap").write_bytes(whole[:cut])
        capture = summarize(tmp_path / "b.pcap")
        assert capture.packets == sum(
            cut >= end for end in (24 + 16 + 4170, 24 + 32 + 2 * 4170 - 16, len(whole))
        )
        assert capture.packets < 3
        assert capture.problems


def test_impossible_records_stop_the_reading(tmp_path: Path) -> None:
    good = record(1, bytes(60))
    bad = struct.pack("<IIII", 0, 0, 2**31, 60)
    (tmp_path / "a.pcap").write_bytes(file_header() + good + bad + good)
    capture = summarize(tmp_path / "a.pcap")
    assert capture.packets == 1
    assert "byte 100 of the file is impossible" in capture.problems[0]
    ng = section("<") + interface("<") + struct.pack("<II", 6, 2**31) + bytes(100)
    (tmp_path / "b.pcapng").write_bytes(ng)
    assert "impossible" in summarize(tmp_path / "b.pcapng").problems[0]


def test_unknown_link_types_are_counted(tmp_path: Path) -> None:
    write_capture(tmp_path / "a.pcap", [record(0, bytes(60))], 147)
    capture = summarize(tmp_path / "a.pcap")
    assert (capture.packets, capture.bytes, capture.undecoded) == (1, 60, 1)
    assert "link type 147" in capture.problems[0]


ADDRESSES = bytes([10, 0, 0, 1, 10, 0, 0, 2])
MACS = bytes(12)


def ipv4(protocol: int, body: bytes, fragment: int = 0) -> bytes:
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, fragment, 64, protocol, 0) + ADDRESSES + body


def udp(payload: bytes, length: int | None = None) -> bytes:
    return struct.pack(">HHHH", 5, 6, 8 + len(payload) if length is None else length, 0) + payload


def erf(kind: int, data: bytes) -> bytes:
    return bytes(8) + struct.pack(">BBHHH", kind, 4, 16 + len(data), 0, len(data)) + data


DATAGRAM = ipv4(17, udp(bytes(50)))
TAG, FRAME = bytes([0, 3, 8, 0]), MACS + b"\x08\x00"
MIRRORED = FRAME + DATAGRAM


@pytest.mark.parametrize(
    ("link", "packet", "vlans"),
    [
        (113, bytes(14) + b"\x81\x00" + TAG + DATAGRAM, (3,)),
        (276, b"\x81\x00" + bytes(18) + TAG + DATAGRAM, (3,)),
        (197, erf(22, DATAGRAM), ()),
        (197, erf(11, bytes(2) + MIRRORED), ()),
        (197, erf(16, bytes(2) + MIRRORED), ()),
        (197, erf(20, bytes(2) + MIRRORED), ()),
        # ERSPAN of type II (a sequence number, 8 bytes of its own) and of type I (neither).
        (1, FRAME + ipv4(47, b"\x10\x00\x88\xbe" + bytes(4) + bytes(8) + MIRRORED), ()),
        (1, FRAME + ipv4(47, b"\x00\x00\x88\xbe" + MIRRORED), ()),
    ],
)
def test_what_carries_a_datagram_is_looked_into(
    tmp_path: Path, link: int, packet: bytes, vlans: tuple[int, ...]
) -> None:
    write_capture(tmp_path / "a.pcap", [record(0, packet)], link)
    capture = summarize(tmp_path / "a.pcap")
    (flow,) = capture.flow_rows()
    assert (flow["transport"], flow["source"], flow["source_port"], flow["payload_bytes"]) == (
        "udp",
        "10.0.0.1",
        5,
        50,
    )
    assert (capture.vlans, capture.undecoded, capture.malformed) == (vlans, 0, 0)


def test_the_first_fragment_of_a_datagram_is_not_malformed(tmp_path: Path) -> None:
    # 3,008 bytes of UDP in three pieces; the first of 1,176 bytes has the ports and 1,168 bytes of payload.
    first = ipv4(17, udp(bytes(1168), 3008), 0x2000)
    ipv6 = (
        struct.pack(">IHBB", 6 << 28, 8 + 1176, 44, 64)
        + bytes(32)
        + bytes([17, 0, 0, 1])
        + bytes(4)
        + udp(bytes(1168), 3008)
    )
    for packet, malformed in ((first, 0), (ipv6, 0), (ipv4(17, udp(bytes(1168), 3008)), 1)):
        write_capture(tmp_path / "a.pcap", [record(0, packet)], 101)
        capture = summarize(tmp_path / "a.pcap")
        assert (capture.malformed, capture.payload) == (malformed, 0 if malformed else 1168)


def sample() -> list[bytes]:
    out = []
    for transport in ("rocev2", "tcp", "uet"):
        for version in (4, 6):
            for vlan in (None, 5):
                config = WireConfig(transport=transport, mtu=1024, ip_version=version, vlan=vlan)  # type: ignore[arg-type]
                out += [one.captured for one in packets(bytes(1500), config)]
    return [*out, *tunnelled(out[0]).values(), *tunnelled(out[-1]).values()]


@FAST
@given(
    seed=st.integers(0, 2**32),
    link=st.sampled_from([0, 1, 101, 113, 197, 247, 276]),
    changes=st.integers(0, 40),
)
def test_fuzzed_packets_never_raise(tmp_path: Path, seed: int, link: int, changes: int) -> None:
    rng = random.Random(seed)
    body = []
    for frame in sample():
        data = bytearray(frame)
        for _ in range(changes):
            data[rng.randrange(min(len(data), 120))] = rng.randrange(256)
        data = data[: rng.randrange(len(data) + 1)]
        body.append(record(rng.randrange(2**60), bytes(data), rng.randrange(2**32)))
    write_capture(tmp_path / "a.pcap", body, link)
    capture = summarize(tmp_path / "a.pcap")
    assert capture.packets == len(body)
    assert capture.as_dict()["packets"] == len(body)
    assert (capture.flows["payload"] >= 0).all()


@FAST
@given(seed=st.integers(0, 2**32), ng=st.booleans())
def test_fuzzed_files_never_raise_anything_but_input_errors(tmp_path: Path, seed: int, ng: bool) -> None:
    rng = random.Random(seed)
    frames = sample()
    if ng:
        whole = (
            section("<")
            + interface("<")
            + b"".join(enhanced("<", k, frame) for k, frame in enumerate(frames))
        )
    else:
        whole = file_header() + b"".join(record(k, frame) for k, frame in enumerate(frames))
    data = bytearray(whole)
    for _ in range(rng.randrange(1, 30)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    (tmp_path / "a").write_bytes(data[: rng.randrange(len(data))])
    try:
        capture = summarize(tmp_path / "a")
    except InputError:
        return
    assert capture.packets <= len(data) // 16


def test_repeated_packets_and_gaps_of_rdma(tmp_path: Path) -> None:
    made = list(packets(bytes(10 * 1024), WireConfig(mtu=1024), psn=0xFFFFFA))
    # Packet 3 lost on the way to the capture; 5, 6 and 7 sent again after 8.
    order = [0, 1, 2, 4, 5, 6, 7, 8, 5, 6, 7, 8, 9]
    capture = summarize(written(tmp_path / "a.pcap", [made[k] for k in order]))
    flow = next(capture.flow_rows())
    assert (flow["repeated"], flow["repeated_bytes"], flow["gaps"], flow["messages"]) == (4, 4 * 1024, 1, 1)
    assert list(capture.pairs().values()) == [9 * 1024]


def test_repeated_bytes_of_tcp(tmp_path: Path) -> None:
    made = list(packets(bytes(10 * 1448), WireConfig(transport="tcp"), psn=2**32 - 3000))
    order = [0, 1, 2, 2, 3, 5, 4, 6, 7, 8, 9]
    flow = next(summarize(written(tmp_path / "a.pcap", [made[k] for k in order], "tcp")).flow_rows())
    # 2 is sent twice; 5 before 4 is one gap, and 4 then counts as late.
    assert (flow["repeated"], flow["repeated_bytes"], flow["gaps"]) == (2, 2 * 1448, 1)


def test_bursts_are_cut_by_silence(tmp_path: Path) -> None:
    frame = [one.captured for one in packets(bytes(6 * 4096), WireConfig())]
    times = [0, 100, 200, 50_000, 50_100, 100_000]
    write_capture(tmp_path / "a.pcap", [record(t, data) for t, data in zip(times, frame, strict=True)])
    flow = next(summarize(tmp_path / "a.pcap", pause=10_000).flow_rows())
    assert (flow["bursts"], flow["largest_burst_bytes"]) == (3, 3 * 4096)
    assert next(summarize(tmp_path / "a.pcap", pause=10**6).flow_rows())["bursts"] == 1


def test_many_flows_make_the_tables_grow(tmp_path: Path) -> None:
    config = WireConfig(mtu=256)
    made = [
        one for k in range(5000) for one in packets(b"abcd", config, qp=k, src=(k % 7, 0), dst=(10, k % 3))
    ]
    capture = summarize(written(tmp_path / "a.pcap", made * 2))
    assert len(capture.flows) == 5000
    assert (capture.flows["packets"] == 2).all()
    assert sum(capture.pairs().values()) == 5000 * 4


def test_congestion_is_counted(tmp_path: Path) -> None:
    frame = bytearray(next(packets(bytes(64), WireConfig())).captured)
    marked = bytes(frame[:15]) + b"\x03" + bytes(frame[16:])
    notification = bytes(frame[:42]) + b"\x81" + bytes(frame[43:])
    write_capture(tmp_path / "a.pcap", [record(0, bytes(frame)), record(1, marked), record(2, notification)])
    flow = next(summarize(tmp_path / "a.pcap").flow_rows())
    assert (flow["ecn_marked"], flow["congestion_notifications"]) == (1, 1)


def tunnelled(frame: bytes) -> dict[str, bytes]:
    """Return the same frame in tunnels and under tags."""
    ip = frame[14:]

    def outer(protocol: int, inside: bytes) -> bytes:
        head = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(inside), 0, 0, 64, protocol, 0, 1, 2)
        return frame[:14] + head + inside

    def datagram(port: int, inside: bytes) -> bytes:
        return outer(17, struct.pack(">HHHH", 50_000, port, 8 + len(inside), 0) + inside)

    return {
        "vxlan": datagram(4789, bytes([8, 0, 0, 0, 0, 0, 7, 0]) + frame),
        "geneve": datagram(6081, bytes([1, 0, 0x65, 0x58, 0, 0, 7, 0]) + bytes(4) + frame),
        "ip in ip": outer(4, ip),
        "gre": outer(47, b"\0\0\x08\0" + ip),
        "gre with key, ethernet": outer(47, b"\x20\0\x65\x58" + bytes(4) + frame),
        "q in q": frame[:12] + b"\x88\xa8\0\x05\x81\0\0\x07" + frame[12:],
    }


def test_tunnels_and_tags_are_looked_into(tmp_path: Path) -> None:
    frame = next(packets(bytes(500), WireConfig())).captured
    inside = tunnelled(frame)
    write_capture(tmp_path / "a.pcap", [record(k, one) for k, one in enumerate([frame, *inside.values()])])
    rows, _ = decoded(tmp_path / "a.pcap")
    assert dict(zip(inside, rows["payload"][1:].tolist(), strict=True)) == dict.fromkeys(inside, 500)
    capture = summarize(tmp_path / "a.pcap")
    assert len(capture.flows) == 1
    assert (capture.packets, capture.payload) == (7, 3500)


@pytest.mark.parametrize("snap", [64, 96, 128])
def test_tunnels_that_a_snap_length_cuts_are_counted(tmp_path: Path, snap: int) -> None:
    frames = tunnelled(next(packets(bytes(500), WireConfig())).captured)
    write_capture(
        tmp_path / "a.pcap", [record(k, one[:snap], len(one)) for k, one in enumerate(frames.values())]
    )
    capture = summarize(tmp_path / "a.pcap")
    assert capture.bytes == sum(map(len, frames.values()))
    assert capture.malformed == 0
    # Where the innermost BTH ends: at byte 42 + 12 and, before that, 4·2 of q in q, 20 of IP, 24 of GRE, 42 of GRE with a key and
    # Ethernet, 50 of VXLAN, 54 of Geneve with an option; a WRITE's RETH takes 16 more: 78, 90, 94, 112, 120, 124.
    assert capture.cut == {64: 6, 96: 3, 128: 0}[snap]


def test_each_direction_of_a_link_has_its_own_rate(tmp_path: Path) -> None:
    # Host 1 sends 3 messages of 1 packet and host 2 sends 1, in 4 us: the rates are those of one direction each.
    out = [
        next(packets(bytes(1024), WireConfig(mtu=1024), src=(0, 0), dst=(1, 0))).captured for _ in range(3)
    ]
    back = next(packets(bytes(1024), WireConfig(mtu=1024), src=(1, 0), dst=(0, 0))).captured
    write_capture(tmp_path / "a.pcap", [record(1000 * k, one) for k, one in enumerate([*out, back, out[0]])])
    capture = summarize(tmp_path / "a.pcap")
    one = len(back)
    ways = {row["direction"]: (row["bytes"], row["bytes_per_s"]) for row in capture.by_direction()}
    assert ways == {
        "sent": (4 * one, pytest.approx(4 * one / 4e-6)),
        "received": (one, pytest.approx(one / 4e-6)),
    }
    assert capture.bins.sum(axis=1).tolist() == [4 * one, one]


@pytest.mark.parametrize("n", [3, 4, 8])
def test_patterns_are_guessed(n: int) -> None:
    hosts = [f"h{k}" for k in range(n)]
    ring = {(hosts[k], hosts[(k + 1) % n]): 1000 + k for k in range(n)}
    noise = {(hosts[(k + 1) % n], hosts[k]): 7 for k in range(n)}
    assert guess({**noise, **ring}).pattern == "ring"
    assert guess({(a, b): 100 for a in hosts for b in hosts if a != b}).pattern == "all_to_all"
    tree = {(hosts[k], hosts[(k - 1) // 2]): 50 for k in range(1, n)}
    assert guess(tree).pattern == ("star" if n == 3 else "tree")
    assert guess({(hosts[0], host): 10 for host in hosts[1:]}).pattern == "star"
    assert guess({}).pattern == "unknown"
    assert guess({("a", "b"): 5}).pattern == "pair"
    # Two rings that do not meet are no ring.
    assert guess({("a", "b"): 5, ("b", "a"): 5, ("c", "d"): 5, ("d", "c"): 5}).pattern == "unknown"


ICRC_CONFIGS = [
    WireConfig(transport=transport, mtu=1024, ip_version=version, vlan=vlan, grh=version == 6)  # type: ignore[arg-type]
    for transport in ("rocev2", "infiniband")
    for version in (4, 6)
    for vlan in (None, 5)
]


@FAST
@given(
    message=st.binary(max_size=3000),
    config=st.sampled_from(ICRC_CONFIGS),
    place=st.integers(0, 2**20),
    flip=st.integers(1, 255),
)
def test_a_changed_byte_makes_the_icrc_wrong(
    tmp_path: Path, message: bytes, config: WireConfig, place: int, flip: int
) -> None:
    made = [one.captured for one in packets(message, config)]
    body = bytearray(made[-1])
    # After IP, UDP and BTH everything is covered, to the ICRC's own last byte; InfiniBand has two bytes of VCRC behind it.
    behind = 2 if config.transport == "infiniband" else 0
    heads = {"rocev2": 14 + 4 * (config.vlan is not None) + (20 if config.ip_version == 4 else 40) + 8 + 12,
             "infiniband": 8 + 40 * (config.ip_version == 6) + 12}[config.transport]  # fmt: skip
    body[heads + place % (len(body) - behind - heads)] ^= flip
    link = 247 if config.transport == "infiniband" else 1
    write_capture(
        tmp_path / "a.pcap", [record(k, one) for k, one in enumerate([*made, bytes(body), made[0]])], link
    )
    icrc = summarize(tmp_path / "a.pcap").icrc
    assert (icrc.right, icrc.wrong, icrc.first_wrong, icrc.cut) == (len(made) + 1, 1, (len(made) + 1,), 0)


@pytest.mark.parametrize("version", [4, 6])
def test_what_switches_change_leaves_the_icrc_right(tmp_path: Path, version: int) -> None:
    frame = bytearray(next(packets(bytes(100), WireConfig(ip_version=version))).captured)  # type: ignore[arg-type]
    bth = 14 + (28 if version == 4 else 48)
    # Type of service, time to live, header checksum; or traffic class, flow label and hop limit. FECN and BECN, UDP's checksum.
    for at in (15, 22, 24, 25) if version == 4 else (15, 16, 17, 21):
        frame[at] ^= 0x33
    frame[14] ^= 0 if version == 4 else 0x0F
    frame[bth + 4] ^= 0xC0
    frame[bth - 2] ^= 0x55
    write_capture(tmp_path / "a.pcap", [record(0, bytes(frame))])
    assert summarize(tmp_path / "a.pcap").icrc.right == 1
    frame[14 + (9 if version == 4 else 8)] ^= 1
    frame[14 + 5] ^= 1 if version == 4 else 0
    write_capture(tmp_path / "a.pcap", [record(0, bytes(frame))])
    assert summarize(tmp_path / "a.pcap").icrc.right == 0


def test_scapy_computes_the_same_icrc(tmp_path: Path) -> None:
    roce = pytest.importorskip("scapy.contrib.roce")
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
    from scapy.packet import Raw

    made = []
    for k, ip in enumerate(
        (
            IP(src="10.0.0.1", dst="10.0.0.2", id=7, ttl=63, tos=0x6A),
            IPv6(src="fd00::1", dst="fd00::2", tc=0x6A),
        )
    ):
        for tags in (Ether(), Ether() / Dot1Q(vlan=3), Ether() / Dot1AD(vlan=4) / Dot1Q(vlan=5)):
            for size in (0, 4, 64, 1000, 4096):
                body = random.Random(size).randbytes(size)
                packet = (
                    tags
                    / ip
                    / UDP(sport=50_000, dport=4791)
                    / roce.BTH(opcode=4, dqpn=17 + k, psn=size)
                    / Raw(body)
                )
                made.append(bytes(packet))
    write_capture(tmp_path / "a.pcap", [record(k, one) for k, one in enumerate(made)])
    capture = summarize(tmp_path / "a.pcap")
    assert (capture.icrc.right, capture.icrc.wrong, capture.icrc.packets) == (30, 0, 30)
    assert (capture.vlans, capture.stacked_vlans) == ((3, 4, 5), ((4, 5),))


def test_an_icrc_that_cannot_be_checked_is_counted(tmp_path: Path) -> None:
    frame = next(packets(bytes(500), WireConfig())).captured
    fragment = bytearray(frame)
    fragment[20] |= 0x20  # more fragments follow
    with_extension = bytearray(next(packets(bytes(500), WireConfig(ip_version=6))).captured)
    with_extension[18:20] = (int.from_bytes(with_extension[18:20], "big") + 8).to_bytes(2, "big")
    with_extension[20] = 60
    with_extension[54:54] = bytes([17, 0, 1, 4, 0, 0, 0, 0])
    bodies = [frame, frame[:96], frame[:128], frame[:-1], bytes(fragment), bytes(with_extension)]
    write_capture(tmp_path / "a.pcap", [record(k, one, len(frame)) for k, one in enumerate(bodies)])
    icrc = summarize(tmp_path / "a.pcap").icrc
    assert (icrc.right, icrc.wrong, icrc.cut, icrc.kept, icrc.unclear) == (1, 0, 3, len(frame) - 1, 2)


def test_the_specifications_sample_packet_has_the_right_icrc(tmp_path: Path) -> None:
    # InfiniBand Architecture Specification, volume 1, chapter 7.8.3: ICRC 9625b75a, VCRC 2cd2 (and the BTH that it prints).
    whole = bytes.fromhex(
        "7012375c000e17d2" "0a2024870087b1b3000dec2a" "01710a1c015d400238f27a050000000e" "bb884d85fd5cfba4728bc0690ed4" "0000" "9625b75a"
    )  # fmt: skip
    write_capture(tmp_path / "a.pcap", [record(0, whole), record(1, whole[:-1] + b"\0")], 247)
    icrc = summarize(tmp_path / "a.pcap").icrc
    assert (icrc.right, icrc.first_wrong) == (1, (2,))
