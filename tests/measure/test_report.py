"""What a measurement says: its verdict, its lines and its page, from a table that is made by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tokenwire.errors import InputError
from tokenwire.measure.compare.measurement import COLUMNS, Measurement, Timing
from tokenwire.report.rooms.measure import show_measurement, verdict_lines
from tokenwire.report.rooms.measure_page import check_page, page


def measured(**values: object) -> Measurement:
    # Rank 0 sends 1 message of 1000 B to rank 1 in step 3: 1096 B in TCP one way, 48 B back; 2 frames with data and 1.
    row = dict.fromkeys(COLUMNS, 0)
    out = {**row, "payload_predicted": 1000, "payload_captured": 1000, "messages_predicted": 1, "messages_captured": 1,
           "stream_predicted": 1096, "stream_sockets": 1096, "stream_captured": 1096, "data_frames_predicted": 2,
           "data_frames_captured": 2, "acks_most": 1, "frame_bytes_predicted": 1228, "frame_bytes_captured": 1228}  # fmt: skip
    back = {**row, "stream_predicted": 48, "stream_sockets": 48, "stream_captured": 48, "data_frames_predicted": 1,
            "data_frames_captured": 1, "acks_expected": 1, "acks_most": 2, "acks_captured": 2, "frame_bytes_predicted": 180,
            "frame_bytes_captured": 246, **{key: value for key, value in values.items() if key in row}}  # fmt: skip
    pairs = pl.DataFrame([{"step": 3, "src": 0, "dst": 1, **out}, {"step": 3, "src": 1, "dst": 0, **back}])
    ways = {"packets_interface": 3, "packets_sockets": 3, "packets_capture": 3, "bytes_interface": 512, "bytes_sockets": 500,
            "bytes_capture": 512, "option_bytes": 12, "store_bytes": 0}  # fmt: skip
    return Measurement(
        mode="ddp", said="a <mode>", network="two hosts", prediction="by hand", ranks=2, steps=3, steady=3, losses=(5.0, 4.0), pairs=pairs,
        three_ways=({"rank": 0, **ways}, {"rank": 1, **ways}), setup_bytes=8, store_bytes=9,
        phases=({"phase": "backward", "group": "dp", "payload_bytes": 1000},),
        bursts=({"src": 0, "dst": 1, "group": "dp", "width_s": 0.001, "bins": [1228] + [0] * 59},), timing=Timing(1.1, (1.0, 1.0)),
    )  # fmt: skip


def test_a_verdict_by_hand() -> None:
    verdict = measured().verdict()
    assert (verdict["payload_worst_rank"], verdict["messages_missed"], verdict["pairs_different"]) == (0, 0, 0)
    assert verdict["three_ways_apart"] == {"packets": 0, "bytes": 0}  # 500 + 12 = 512
    assert verdict["data_frame_bytes_off"] == 0
    assert verdict["frame_bytes_off"] == pytest.approx(66 / 1408)  # one acknowledgement more than one a message
    assert verdict["acks"] == {"expected": 1, "most": 3, "captured": 2}
    assert verdict["loss_falls"]


def test_what_is_off_is_said() -> None:
    m = measured(stream_sockets=50)
    verdict = m.verdict()
    assert verdict["stream_worst_rank"] == pytest.approx(2 / 48)
    assert not verdict["payload_within_aim"]
    assert verdict["capture_minus_sockets_bytes"] == 2
    assert any("worst rank off by 4.1667%" in line for line in verdict_lines(m, verdict))


def test_it_is_printed_within_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_measurement(measured())
    said = capsys.readouterr().out
    assert "0 packets and 0 B apart" in " ".join(said.split())
    assert "1.10 s predicted from components, 1 s measured" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_the_page_has_every_part_and_escapes() -> None:
    text = page(measured())
    assert "a &lt;mode&gt;" in text
    assert "<mode>" not in text
    for part in ("counted three ways", "One step over time", "phase after phase", "By pair of ranks and step"):
        assert part in text
    assert text.count("<svg") == 4


def test_a_page_that_cannot_be_written_is_said_first(tmp_path: Path) -> None:
    check_page(str(tmp_path / "a.html"))
    for path in (tmp_path / "a.pdf", tmp_path / "none" / "a.html"):
        with pytest.raises(InputError):
            check_page(str(path))
