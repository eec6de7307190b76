"""Synthetic captures: the compiled loop against packets made one by one, schedules, and analysers' opinion."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.test_packets import dissected
from tokenwire.errors import InputError
from tokenwire.wire import Connection, WireConfig, packets
from tokenwire.wire.build import acknowledgement
from tokenwire.wire.capture import link_type, summarize, write_capture
from tokenwire.wire.framing import framings
from tokenwire.wire.synthesis import (
    MESSAGES,
    busiest_nic,
    export_capture,
    messages_of_nic,
    packet_total,
    read_nic,
    scheduled,
    synthesize,
)
from tokenwire.wire.synthesis import capture as capture_module

RATE = 50e9
TRANSFERS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 20_000)), min_size=1, max_size=12
)


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    # Few packets are else made one at a time, and the compiled loop would not run here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_module, "FEW", 0)
        yield


def frames_of(chunks: Any) -> list[tuple[int, bytes]]:
    data, out, at = b"".join(bytes(chunk) for chunk in chunks), [], 0
    while at < len(data):
        seconds, rest, kept, length = np.frombuffer(data[at : at + 16], "<u4").tolist()
        assert kept == length
        out.append((seconds * 10**9 + rest, data[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return out


def made_one_by_one(messages: Any, config: WireConfig, content: bytes) -> list[bytes]:
    out = []
    for row in messages.tolist():
        _, a, i, b, j, size, begin, va, rkey, qp, source_qp, psn, msn = row
        body = (
            (content * (2 + (begin + size) // len(content)))[begin : begin + size] if content else bytes(size)
        )
        made = list(
            packets(
                body, config, src=(a, i), dst=(b, j), qp=qp, psn=psn, va=va, rkey=rkey, source_qp=source_qp
            )
        )
        out += [one.captured for one in made]
        connection = Connection(source=(a, i), destination=(b, j), qp=qp, source_qp=source_qp, psn=psn)
        out.append(acknowledgement(config, connection, made[-1].place, msn).captured)
    return out


@settings(max_examples=60, deadline=None)
@given(
    transfers=TRANSFERS, mtu=st.sampled_from([256, 1024, 4096]), version=st.sampled_from([4, 6]),
    operation=st.sampled_from(["write", "send", "write_with_immediate"]), vlan=st.none() | st.integers(0, 4094),
    content=st.binary(max_size=600), largest=st.integers(1, 9000), traffic_class=st.integers(0, 255),
)  # fmt: skip
def test_the_compiled_loop_writes_the_same_packets(
    transfers: Any,
    mtu: int,
    version: int,
    operation: str,
    vlan: int | None,
    content: bytes,
    largest: int,
    traffic_class: int,
) -> None:
    config = WireConfig(
        mtu=mtu, ip_version=version, operation=operation, vlan=vlan, traffic_class=traffic_class
    )  # type: ignore[arg-type]
    src, dst, size = (np.array(column) for column in zip(*transfers, strict=True))
    nic = (0, 1)
    messages = messages_of_nic(
        src, dst, size, nic=nic, gpus_per_node=4, config=config, largest=max(largest, 200)
    )
    got = frames_of(synthesize(messages, config, rate=RATE, nic=nic, content=content))
    assert sorted(frame for _, frame in got) == sorted(made_one_by_one(messages, config, content))
    assert len(got) == packet_total(messages, config)
    assert [time for time, _ in got] == sorted(time for time, _ in got)


def test_messages_without_bytes_are_padded_frames() -> None:
    for operation in ("send", "write"):
        config = WireConfig(operation=operation)  # type: ignore[arg-type]
        messages = np.zeros(1, MESSAGES)
        messages["destination_node"], messages["qp"], messages["source_qp"] = 1, 5, 6
        got = [frame for _, frame in frames_of(synthesize(messages, config, rate=RATE))]
        assert sorted(got) == sorted(made_one_by_one(messages, config, b""))
        assert min(len(frame) for frame in got) >= 60


@given(transfers=TRANSFERS, largest=st.integers(1, 5000))
def test_bytes_of_messages_are_those_of_transfers(transfers: Any, largest: int) -> None:
    src, dst, size = (np.array(column) for column in zip(*transfers, strict=True))
    total = 0
    for nic in [(node, k) for node in range(3) for k in range(4)]:
        total += int(
            messages_of_nic(src, dst, size, nic=nic, gpus_per_node=4, config=WireConfig(), largest=largest)[
                "bytes"
            ].sum()
        )
    # Each transfer between nodes is at two NICs.
    assert total == 2 * sum(s for a, b, s in transfers if a // 4 != b // 4)


def test_packet_numbers_go_on_from_message_to_message() -> None:
    messages = messages_of_nic(
        [0, 4, 0],
        [4, 0, 4],
        [10_000, 5, 4096],
        nic=(0, 0),
        gpus_per_node=4,
        config=WireConfig(),
        largest=8192,
    )
    # To node 1: 8192 + 1808 (2 + 1 packets), then 4096; from it: 5. TCP counts bytes instead.
    assert messages["bytes"].tolist() == [8192, 1808, 5, 4096]
    assert messages["psn"].tolist() == [0, 2, 0, 3]
    assert messages["msn"].tolist() == [1, 2, 1, 3]
    tcp = messages_of_nic(
        [0, 0], [4, 4], [10_000, 5], nic=(0, 0), gpus_per_node=4, config=WireConfig(transport="tcp")
    )
    assert tcp["psn"].tolist() == [0, 10_000]


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 50_000)), min_size=1, max_size=30))
def test_a_link_carries_one_message_after_the_other(rows: list[tuple[int, int]]) -> None:
    messages = np.zeros(len(rows), MESSAGES)
    messages["time"], messages["bytes"] = np.array(rows).T
    out = scheduled(messages, WireConfig(), RATE)
    wire = framings(messages["bytes"], WireConfig())["wire_bytes"] / RATE * 1e9
    end = 0.0
    for ready, time, duration in zip(messages["time"], out["time"], wire, strict=True):
        # As soon as both the message and the link are ready; whole nanoseconds, rounded up.
        assert -1e-3 <= time - max(ready, end) <= 1
        end = max(ready, end) + duration


def test_busiest_nic_and_its_names() -> None:
    assert busiest_nic([0, 1, 9], [8, 9, 1], [10, 6, 6], gpus_per_node=8) == (0, 1)
    # Two GPUs share a NIC: 10 + 6 + 6 at NIC 0 of both nodes.
    assert busiest_nic([0, 1, 9], [8, 9, 1], [10, 6, 6], gpus_per_node=8, nics_per_node=4) == (0, 0)
    assert read_nic("3.7") == (3, 7)
    for wrong in ("3", "a.b", "-1.0", "1.2.3", ""):
        with pytest.raises(InputError, match="NODE"):
            read_nic(wrong)
    with pytest.raises(InputError, match="between nodes"):
        busiest_nic([0], [1], [10], gpus_per_node=8)


TRANSPORTS_ANSWERED = ["rocev2", "tcp", "infiniband"]


@pytest.mark.parametrize("transport", [*TRANSPORTS_ANSWERED, "uet"])
def test_an_export_reads_back_with_the_bytes_of_the_transfers(tmp_path: Path, transport: str) -> None:
    config = WireConfig(transport=transport)
    transfers = {"src": [0, 4, 0, 1], "dst": [4, 0, 1, 5], "bytes": [1_000_000, 300_001, 77, 5]}
    path = str(tmp_path / "a.pcap")
    report = export_capture(
        path, config, rate=RATE, gpus_per_node=4, nics_per_node=4, transfers=transfers, nic=(0, 0)
    )
    capture = summarize(path)
    assert capture.packets == report.packets == report.packets_of_step
    assert capture.payload == report.payload_bytes == 1_300_001
    assert not capture.problems
    assert sum(row["repeated"] + row["gaps"] for row in capture.by_transport()) == 0
    assert (tmp_path / "a.pcap").stat().st_size == report.file_bytes
    if transport in ("rocev2", "infiniband"):
        assert sum(row["acknowledgements"] for row in capture.flow_rows()) == report.messages


def test_max_packets_and_snap_length(tmp_path: Path) -> None:
    report = export_capture(
        str(tmp_path / "a.pcap"), WireConfig(), rate=RATE, gpus_per_node=8, nics_per_node=8, one=10**12 // 4096 * 4,
        max_packets=1000, snap_length=80,
    )  # fmt: skip
    assert (report.packets, report.file_bytes) == (1000, 24 + 1000 * (16 + 80))
    capture = summarize(tmp_path / "a.pcap")
    assert (capture.packets, capture.payload) == (1000, 4096 * 1000)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"nic": (0, 9)}, "NICs 0 to 7"), ({"nic": (5, 0)}, "sends and receives nothing"), ({"rate": 0.0}, "above 0"),
        ({"snap_length": 0}, "at least 1"), ({"max_packets": -1}, "at least"), ({"one": -5}, "at least 1"),
    ],
)  # fmt: skip
def test_wrong_exports_leave_nothing(tmp_path: Path, given_: dict[str, Any], said: str) -> None:
    options: dict[str, Any] = {"rate": RATE, "one": 1000, **given_}
    with pytest.raises(InputError, match=said):
        export_capture(str(tmp_path / "a.pcap"), WireConfig(), gpus_per_node=8, nics_per_node=8, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
@pytest.mark.tshark
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("transport", TRANSPORTS_ANSWERED)
@given(content=st.binary(min_size=1, max_size=50))
def test_tshark_has_no_complaint(tmp_path: Path, transport: str, version: int, content: bytes) -> None:
    config = WireConfig(transport=transport, ip_version=version, mtu=1024)  # type: ignore[arg-type]
    transfers = ([0, 4, 0], [4, 0, 8], [30_000, 9_001, 13])
    messages = messages_of_nic(*transfers, nic=(0, 0), gpus_per_node=4, config=config, largest=7000)
    pieces = synthesize(messages, config, rate=RATE, nic=(0, 0), content=content)
    write_capture(tmp_path / "a.pcap", pieces, link_type(transport))
    rows = dissected(
        tmp_path / "a.pcap",
        "_ws.expert.message",
        "_ws.malformed",
        "ip.checksum.status",
        "udp.checksum.status",
    )
    assert len(rows) == packet_total(messages, config)
    assert all(row[:2] == ["", ""] and row[2] in ("", "1") and row[3] in ("", "1", "3") for row in rows)
