"""Real runs in network namespaces: every mode at four ranks, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tokenwire.errors import InputError
from tokenwire.measure.compare import Settings, measure
from tokenwire.measure.hosts import NetworkConfig, network
from tokenwire.measure.hosts.namespaces import take_down_stale
from tokenwire.measure.training import MODES, plan_of
from tokenwire.model import ModelConfig, architecture
from tokenwire.plan.training import TrainingConfig

pytestmark = [pytest.mark.network, pytest.mark.torch, pytest.mark.slow]
TRAINING = TrainingConfig(sequence_length=16, global_batch=8, micro_batch=2)
IDS = np.arange(4000) * 7 % 200


def small(layers: int):  # type: ignore[no-untyped-def]
    return architecture(ModelConfig(hidden_size=64, layers=layers, heads=4, feed_forward=128, gated=True, positions="rotary",
                                    norm="rms", bias=False, tied_embeddings=False, vocabulary_size=200))  # fmt: skip


def left() -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob("tokenwire.*")) if folder.is_dir() else []


@pytest.mark.parametrize("name", MODES)
def test_mode_is_predicted_to_the_byte(name: str) -> None:
    mode, arch = MODES[name], small({"pp-interleaved": 8, "pp-gpipe": 4, "pp-1f1b": 4}.get(name, 2))
    before = left()
    found = measure(arch, plan_of(mode, TRAINING, arch, 4), IDS, Settings(NetworkConfig(4, "namespaces"), 4, 250), mode)
    verdict = found.verdict()
    assert verdict["payload_within_aim"], verdict
    assert verdict["messages_exact"], verdict
    assert verdict["capture_minus_sockets_bytes"] == 0, verdict
    assert verdict["frames_within_aim"], verdict
    assert verdict["three_ways_apart"] == {"packets": 0, "bytes": 0}, found.three_ways
    assert verdict["loss_falls"], found.losses
    assert left() == before


def test_a_rank_that_dies_is_one_line_and_leaves_nothing() -> None:
    mode, arch, before = MODES["ddp"], small(2), left()
    settings = Settings(NetworkConfig(2, "namespaces"), 4, 120, fails=(1, 1))
    with pytest.raises(InputError, match=r"rank [01]: ended with status") as raised:
        measure(arch, plan_of(mode, TRAINING, arch, 2), IDS, settings, mode)
    assert "\n" not in str(raised.value)
    assert left() == before


def test_what_a_killed_parent_left_is_taken_down_by_the_next() -> None:
    code = ("import time; from tokenwire.measure.hosts import *\n"
            "with network(NetworkConfig(2, 'namespaces')): print('up', flush=True); time.sleep(60)")  # fmt: skip
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    mine = [name for name in left() if f".{parent.pid}." in name]
    assert len(mine) == 3  # two ranks and the switch
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert set(take_down_stale()) >= set(mine)
    assert not set(left()) & set(mine)


def test_a_request_to_end_takes_all_down() -> None:
    before = left()

    def ended() -> None:
        with network(NetworkConfig(2, "namespaces")):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert left() == before
