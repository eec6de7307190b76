"""Streams of a capture: sequence numbers, repeats, gloo's headers; and what a run may be asked for."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tokenwire.collectives.gloo import messages
from tokenwire.errors import InputError
from tokenwire.measure.compare import Settings
from tokenwire.measure.compare.frames import frames
from tokenwire.measure.compare.three_ways import three_ways
from tokenwire.measure.counting.streams import streams
from tokenwire.measure.hosts import NetworkConfig
from tokenwire.measure.training import MODES, mode_of, plan_of
from tokenwire.measure.training.tensor import sums
from tokenwire.model import ModelConfig, architecture
from tokenwire.plan.training import TrainingConfig


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
    (stream,) = streams([file])
    assert len(stream.time) == 5
    assert stream.records().tolist() == [[2, 2, 0], [5, 1, 100]]
    whole = stream.window(0, 10)
    assert (whole["stream_bytes"], whole["resent_bytes"], whole["data_frames"]) == (204, 90, 4)
    assert stream.window(2, 3)["stream_bytes"] == 90


def test_what_is_no_gloo_is_said(tmp_path: Path) -> None:
    file = capture(tmp_path / "b.pcap", packet(1, 5, b"", 0x12), packet(2, 6, b"x" * 64))
    with pytest.raises(InputError, match="no header of gloo at byte 0"):
        streams([file])[0].records()
    (tmp_path / "c.pcap").write_bytes(b"nothing")
    with pytest.raises(InputError):
        streams([tmp_path / "c.pcap"])


def test_frames_by_hand() -> None:
    # 48 + 1400 = 1448 B is one segment at MTU 1500, one byte more is two; announced in one; granted and acknowledged in one each.
    for size, data in ((1400, 2), (1401, 3)):
        found = frames(messages("send", 2, size), 1500)
        assert (found.data, found.acks) == ({(0, 1): data, (1, 0): 1}, {(1, 0): 1})
        assert found.most_acks == {(1, 0): data, (0, 1): 1}


def test_frames_are_cut_call_by_call() -> None:
    # 1400 B and 8 B are 1 and 1 segments of records; one call of 704 B on average, twice, would be the same; 2800 and 8 are 2 and 1.
    calls = np.concatenate([messages("send", 2, 2800), messages("send", 2, 8)])
    assert frames(calls, 1500).data == {(0, 1): 2 + 1 + 1 + 1, (1, 0): 2}


def test_three_ways_add_headers_and_leave_out_what_stays_on_the_host() -> None:
    # 1000 B of the stream in 3 segments are 1000 + 3·66 B on the interface; rank 0's own talk with its store is not there.
    mine = {"local": ["10.0.0.1", 5], "remote": ["10.0.0.2", 6], "sent": 0, "resent": 0, "packets_out": 0}
    own = {**mine, "remote": ["10.0.0.1", 7]}
    first = {"interface": {"tx_packets": 10, "tx_bytes": 500}, "connections": [mine], "store": [own], "time_ns": 1}
    last = {"interface": {"tx_packets": 13, "tx_bytes": 500 + 1198}, "connections": [{**mine, "sent": 900, "resent": 100, "packets_out": 3}],
            "store": [{**own, "sent": 77, "packets_out": 9}], "time_ns": 2}  # fmt: skip
    (row,) = three_ways([{"rank": 0, "marks": [first, last]}], None)
    assert (row["packets_interface"], row["packets_sockets"], row["bytes_interface"], row["bytes_sockets"]) == (3, 3, 1198, 1198)


def test_sums_of_tensor_parallelism_by_hand() -> None:
    # 2 layers of q, k, v apart and gated: forward 1 + 2·2, backward 1 + 2·5, of 2·16·64 elements; 4 micro-batches; three of 2·16 each.
    arch = architecture(ModelConfig(hidden_size=64, layers=2, heads=4, feed_forward=128, gated=True, positions="rotary", norm="rms",
                                    bias=False, tied_embeddings=False, vocabulary_size=200))  # fmt: skip
    training = TrainingConfig(sequence_length=16, global_batch=8, micro_batch=2)
    assert sums(arch, plan_of(MODES["tp"], training, arch, 2)) == [(2048, 64), (32, 12)]


def test_what_cannot_be_run() -> None:
    for wrong in ({"ranks": 1}, {"mtu": 10}, {"rate": 1.0}, {"delay": -1.0}, {"ranks_per_node": 3},
                  {"routed": True}, {"ranks_per_node": 4, "routed": True}):  # fmt: skip
        with pytest.raises(InputError):
            NetworkConfig(**wrong)
    with pytest.raises(InputError, match="3 to 1,000"):
        Settings(steps=2)
    with pytest.raises(InputError, match="nearest that works: ddp"):
        mode_of("ddpp")
