"""Calibrations: read off, written and read again, refused; and the time of real runs predicted from components."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tokenwire.errors import InputError
from tokenwire.measure.calibrate import (
    Calibration,
    calibrate,
    calibration_text,
    communication_seconds,
    read_calibration,
)
from tokenwire.measure.compare import Settings, measure
from tokenwire.measure.hosts import NetworkConfig
from tokenwire.measure.training import MODES, plan_of
from tokenwire.measure.training.timing import least_waiting
from tokenwire.model import ModelConfig, architecture
from tokenwire.plan.training import TrainingConfig
from tokenwire.step import operations

TRAINING = TrainingConfig(sequence_length=32, global_batch=4, micro_batch=2)
ARCH = architecture(ModelConfig(hidden_size=64, layers=4, heads=8, feed_forward=128, gated=True, positions="rotary", norm="rms",
                                bias=False, tied_embeddings=False, vocabulary_size=200))  # fmt: skip
LINEAR = {(op, 2): ((0, 0.001), (10**9, 1.001)) for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send")}
"""A millisecond a call and a nanosecond a byte."""


def made(**values: object) -> Calibration:
    known = {"machine": 'a "CPU"', "network": "two hosts", "ranks": 2, "calls": LINEAR, "matmul": ((64, 64, 64, 2e9), (512, 512, 512, 5e9)),
             "attention": ((64, 8, 8, 8, 1e9),)}  # fmt: skip
    return Calibration(**{**known, **values})  # type: ignore[arg-type]


def test_a_calibration_is_written_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(calibration_text(made()))
    found = read_calibration(tmp_path / "c.toml")
    assert found.calls == LINEAR
    assert found.machine == "a CPU"
    assert found.matmul == pytest.approx(np.array(made().matmul))
    assert found.attention[0][-1] == pytest.approx(1e9)


def test_what_is_no_calibration_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(calibration_text(made()))
    whole = (tmp_path / "c.toml").read_text()
    for text in ("", "peak = 1", "\x00", whole.replace("1.0000e-03", "-1.0"), whole.replace("[gloo]", "[other]")):
        (tmp_path / "d.toml").write_text(text)
        with pytest.raises(InputError) as raised:
            read_calibration(tmp_path / "d.toml")
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError):
        read_calibration(tmp_path / "none.toml")
    with pytest.raises(InputError, match="all_reduce among 3 ranks"):
        made().seconds("all_reduce", 3, 10)


def test_seconds_of_a_step_by_hand() -> None:
    # 2 ranks; tensor parallelism of 4 layers and 2 micro-batches: 2·(1 + 2·4 + 1 + 5·4) sums of 2·32·64·4 B, 2·3 of 2·32·4 B.
    plan = plan_of(MODES["tp"], TRAINING, ARCH, 2)
    expected = 60 * (0.001 + 16_384e-9) + 6 * (0.001 + 256e-9)
    assert communication_seconds(operations(ARCH, plan), ARCH, plan, MODES["tp"], made()) == pytest.approx(expected)


def test_a_pipeline_is_not_predicted_and_one_step_not_enough() -> None:
    plan = plan_of(MODES["pp-1f1b"], TRAINING, ARCH, 2)
    with pytest.raises(InputError, match="pp = 2"):
        communication_seconds(operations(ARCH, plan), ARCH, plan, MODES["pp-1f1b"], made())
    with pytest.raises(InputError, match="nearest that works: 4"):
        Settings(steps=3, calibration=made())


def test_waiting_for_late_ranks_does_not_count() -> None:
    # Rank 0 waits 4 s for rank 1 in the first call; both calls really take 1 s.
    assert least_waiting([[("a", 0, 5), ("b", 6, 7)], [("a", 4, 5), ("b", 6, 7)]]) == 2
    # Two calls at once, 2 s each within 3 s: 3 s are covered.
    assert least_waiting([[("a", 0, 2), ("b", 1, 3)]] * 2) == pytest.approx(3)
    # Ranks that made other calls: the least busy one's.
    assert least_waiting([[("a", 0, 2)], [("b", 0, 1)]]) == 1


RATE = 20e6 / 8
"""So slow that the link counts, not how a busy machine deals out its cores."""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.network
def test_communication_of_real_runs_is_predicted_within_15_percent() -> None:
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        pytest.skip("times are only compared on a machine that is not busy with other things")
    config = NetworkConfig(2, "namespaces", rate=RATE)
    calibration = calibrate(config)
    assert calibration.best() > 1e8
    off = {}
    for name in ("ddp", "fsdp2", "tp-sp"):
        mode, ids = MODES[name], np.arange(4000) * 7 % 200
        found = measure(ARCH, plan_of(mode, TRAINING, ARCH, 2), ids, Settings(config, 6, 250, capture=False, calibration=calibration), mode)
        assert found.timing is not None
        off[name] = found.timing.off
    assert max(map(abs, off.values())) <= 0.15, off
