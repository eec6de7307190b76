"""The verbs ``wire`` and ``export pcap`` as people and programs use them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenwire.wire import WireConfig, packets
from tokenwire.wire.capture import write_capture
from tokenwire.wire.capture.writing import record
from tokenwire.wire.synthesis import export_capture


def tokenwire(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "tokenwire", *arguments],
        capture_output=True,
        input=stdin,
        timeout=120,
        env=environment,
    )


def test_one_message_as_json() -> None:
    done = tokenwire("wire", "--bytes", "128KiB", "--mtu", "4096", "--transport", "rocev2", "--json")
    facts = json.loads(done.stdout)
    assert (facts["packets"], facts["wire_bytes"], facts["payload_bytes"]) == (32, 133_712, 131_072)
    assert abs(facts["efficiency"] - 131_072 / 133_712) < 1e-12


@pytest.mark.parametrize(
    "arguments",
    [
        ["wire"], ["wire", "--bytes", "1MiB", "--line", "400gbase-r8"], ["wire", "fields", "rocev2"], ["wire", "fields", "infiniband"],
        ["wire", "packet", "1", "--line-code"], ["wire", "--set", "wire.mtu=1024"], ["wire", "fields", "tcp", "--ip", "6"],
        ["wire", "fields", "uet", "--vlan", "3"],
    ],
)  # fmt: skip
def test_readable_at_80_columns(arguments: list[str]) -> None:
    done = tokenwire(*arguments)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert text.strip()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_the_table_as_json_and_csv() -> None:
    rows = json.loads(tokenwire("wire", "--json").stdout)["rows"]
    assert {row["transport"] for row in rows} == {"rocev2", "infiniband", "tcp", "uet"}
    assert all(0 <= row["efficiency"] < 1 for row in rows)
    lines = tokenwire("wire", "--transport", "tcp", "--csv", "-").stdout.decode().splitlines()
    assert lines[0] == "transport,ip_version,mtu,message_bytes,packets,wire_bytes,efficiency"
    assert len(lines) == 1 + 3 * 6


def test_header_layouts_as_json() -> None:
    layouts = json.loads(tokenwire("wire", "fields", "rocev2", "--json").stdout)
    assert {layout["name"]: layout["bytes"] for layout in layouts} == {
        "preamble": 8, "Ethernet": 14, "IPv4": 20, "UDP": 8, "BTH": 12, "RETH": 16, "ICRC": 4, "FCS": 4, "gap": 12
    }  # fmt: skip
    assert all(sum(field["bits"] for field in layout["fields"]) == 8 * layout["bytes"] for layout in layouts)


def test_reading_a_capture_from_a_file_and_from_stdin(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    transfers = {"src": [0, 4, 8], "dst": [4, 8, 0], "bytes": [70_000] * 3}
    export_capture(
        str(path), WireConfig(), rate=50e9, gpus_per_node=4, nics_per_node=4, transfers=transfers, nic=(0, 0)
    )
    facts = json.loads(tokenwire("wire", "read", str(path), "--json").stdout)
    assert facts["payload_bytes"] == 140_000
    assert facts["guess"]["certain"] is False
    piped = json.loads(tokenwire("wire", "read", "-", "--json", stdin=path.read_bytes()).stdout)
    assert {**piped, "file": ""} == {**facts, "file": ""}
    shown = tokenwire("wire", "read", str(path)).stdout.decode()
    assert "RC_WRITE_FIRST" in shown
    assert "guess:" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize(
    "arguments",
    [
        ["wire", "--mtu", "3000"], ["wire", "--bytes", "5"], ["wire", "--bytes", "-5 B"], ["wire", "--bytes", "9 EiB"],
        ["wire", "--transport", "roce"], ["wire", "--bytes", "1 B", "--line", "400g"], ["wire", "fields", "nothing"],
        ["wire", "packet", "7"], ["wire", "packet", "0", "--bytes", "3 GiB"], ["wire", "read", "/none"], ["wire", "read", "/dev/null"],
        ["wire", "read", "/"], ["wire", "--ip", "5"], ["wire", "--vlan", "9999"], ["wire", "--operation", "read"],
        ["wire", "read", "/none", "--pause", "1"],
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_status_1(arguments: list[str]) -> None:
    done = tokenwire(*arguments)
    assert done.returncode == 1, done.stdout
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("tokenwire: ")
    assert not done.stdout


def test_help_of_every_command_has_an_example() -> None:
    for arguments in (
        ["wire"],
        ["wire", "framing"],
        ["wire", "fields"],
        ["wire", "packet"],
        ["wire", "read"],
        ["export"],
        ["export", "pcap"],
    ):
        done = tokenwire(*arguments, "--help")
        assert done.returncode == 0
        assert b"Example: tokenwire" in done.stdout, arguments


def test_a_step_exported_has_the_bytes_of_its_transfers(tmp_path: Path) -> None:
    from tokenwire.journey import Journey
    from tokenwire.wire.capture import summarize

    path = tmp_path / "step.pcap"
    facts = json.loads(tokenwire("export", "pcap", "--out", str(path), "--link", "0.0", "--json").stdout)
    transfers = Journey.read(None).traffic().transfers
    ends = [(int(a), int(b), int(size)) for a, b, size in transfers.select("src", "dst", "bytes").iter_rows()]
    # Two nodes of 4 GPUs, a NIC each: rank 0 is at NIC 0.0.
    crossing = sum(size for a, b, size in ends if 0 in (a, b) and a // 4 != b // 4)
    capture = summarize(path)
    assert capture.payload == facts["payload_bytes"] == crossing
    assert capture.packets == facts["packets"]


def test_export_to_a_pipe_and_to_places_that_cannot_be_written(tmp_path: Path) -> None:
    piped = tokenwire("export", "pcap", "--out", "-", "--bytes", "9 kB")
    read = json.loads(tokenwire("wire", "read", "-", "--json", stdin=piped.stdout).stdout)
    assert read["payload_bytes"] == 9000
    for arguments in (
        ["--out", str(tmp_path / "no" / "a.pcap")],
        ["--link", "9.9"],
        ["--link", "x"],
        ["--rate", "0 Gb/s"],
        ["--payload", "/none"],
    ):
        done = tokenwire("export", "pcap", "--out", str(tmp_path / "a.pcap"), *arguments)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_zeroed_last_byte_is_shown_as_a_wrong_icrc(tmp_path: Path) -> None:
    frame = next(packets(bytes(range(200)), WireConfig())).captured
    assert frame[-1]
    tagged = frame[:12] + bytes.fromhex("88a8 0064 8100 00c8") + frame[12:]
    file = tmp_path / "a.pcap"
    write_capture(
        file,
        [
            record(0, frame),
            record(1, frame[:-1] + b"\0"),
            record(2, frame[:96], len(frame)),
            record(3, tagged),
        ],
    )
    text = " ".join(tokenwire("wire", "read", str(file)).stdout.decode().split())
    assert (
        "ICRC: 2 right; 1 wrong (packet 2); 1 not checked: cut by the capture, which kept at most 96 B of them"
        in text
    )
    assert "VLANs: 100, 200" in text
    assert "double-tagged (outer.inner): 100.200" in text
    found = json.loads(tokenwire("wire", "read", str(file), "--json").stdout)
    assert (found["vlans"], found["stacked_vlans"]) == ([100, 200], [[100, 200]])
    assert found["icrc"] == {
        "right_packets": 2, "wrong_packets": 1, "first_wrong_packets": [2], "cut_packets": 1, "cut_packets_kept_bytes": 96,
        "unclear_packets": 0,
    }  # fmt: skip
