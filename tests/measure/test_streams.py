"""Streams of a capture: sequence numbers, repeats, gloo's headers; and what a run may be asked for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tokenwire.collectives.gloo import messages
from tokenwire.errors import InputError
from tokenwire.measure.compare import Settings
from tokenwire.measure.compare.frames import frames
from tokenwire.measure.counting.streams import streams
from tokenwire.measure.hosts import NetworkConfig
from tokenwire.measure.training import mode_of


def packet(when: int, sequence: int, payload: bytes, flags: int = 0x10) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", 1000, 2000, sequence % 2**32, 0, 5 << 4, flags, 0, 0, 0)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    frame = bytes(12) + b"\x08\x00" + ip + tcp + payload
    return struct.pack("<IIII", 0, when, len(frame), len(frame)) + frame


def capture(path: Path, *packets: bytes) -> Path:
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1) + b"".join(packets))
    return path


def record(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("<6Q", 48 + len(payload), kind, 0, 0, len(payload), 0) + payload


def test_messages_are_read_across_packets_wrapping_numbers_and_repeats(tmp_path: Path) -> None:
    # A greeting of 8 B, an announcement of 48 B, a message of 48 + 100 B: 204 B that begin 20 below 2^32.
    data = bytes(8) + record(2) + record(1, bytes(100))
    first = 2**32 - 20
    file = capture(tmp_path / "a.pcap", packet(1, first - 1, b"", 0x02), packet(2, first, data[:60]),
                   packet(3, first + 60, data[60:150]), packet(4, first + 60, data[60:150]), packet(5, first + 150, data[150:]))  # fmt: skip
    (stream,), total = streams([file])
    assert total["frames"] == 5
    assert stream.records().tolist() == [[2, 2, 0], [5, 1, 100]]
    whole = stream.window(0, 10)
    assert (whole["stream_bytes"], whole["resent_bytes"], whole["data_frames"]) == (204, 90, 4)
    assert stream.window(2, 3)["stream_bytes"] == 90


def test_what_is_no_gloo_is_said(tmp_path: Path) -> None:
    file = capture(tmp_path / "b.pcap", packet(1, 5, b"", 0x12), packet(2, 6, b"x" * 64))
    with pytest.raises(InputError, match="no header of gloo at byte 0"):
        streams([file])[0][0].records()
    (tmp_path / "c.pcap").write_bytes(b"nothing")
    with pytest.raises(InputError):
        streams([tmp_path / "c.pcap"])


def test_frames_by_hand() -> None:
    # 48 + 1400 = 1448 B is one segment at MTU 1500, one byte more is two; announced in one, granted and acknowledged in one each.
    assert frames(messages("send", 2, 1400), 1500) == {(0, 1): 2, (1, 0): 2}
    assert frames(messages("send", 2, 1401), 1500) == {(0, 1): 3, (1, 0): 2}


def test_what_cannot_be_run() -> None:
    for wrong in ({"ranks": 1}, {"mtu": 10}, {"rate": 1.0}, {"delay": -1.0}, {"ranks_per_node": 3}):
        with pytest.raises(InputError):
            NetworkConfig(**wrong)
    with pytest.raises(InputError, match="3 to 1,000"):
        Settings(steps=2)
    with pytest.raises(InputError, match="nearest that works: ddp"):
        mode_of("ddpp")
