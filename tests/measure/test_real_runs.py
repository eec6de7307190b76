"""Real runs in network namespaces: every mode at four ranks, and that nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
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


def left(pid: int | None = None) -> list[str]:
    """Return the namespaces that a process (this one) has made and that are there."""
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"tokenwire.{pid or os.getpid()}.*")) if folder.is_dir() else []


@pytest.mark.parametrize("name", MODES)
def test_mode_is_predicted_to_the_byte(name: str) -> None:
    mode, arch = MODES[name], small({"pp-interleaved": 8, "pp-gpipe": 4, "pp-1f1b": 4}.get(name, 2))
    found = measure(arch, plan_of(mode, TRAINING, arch, 4), IDS, Settings(NetworkConfig(4, "namespaces"), 4, 250), mode)
    verdict = found.verdict()
    assert verdict["payload_within_aim"], verdict
    assert verdict["messages_exact"], verdict
    assert verdict["capture_minus_sockets_bytes"] == 0, verdict
    assert verdict["frames_within_aim"], verdict
    assert verdict["three_ways_apart"] == {"packets": 0, "bytes": 0}, found.three_ways
    assert verdict["loss_falls"], found.losses
    assert not left()


def test_a_rank_that_dies_is_one_line_and_leaves_nothing() -> None:
    mode, arch = MODES["ddp"], small(2)
    settings = Settings(NetworkConfig(2, "namespaces"), 4, 120, fails=(1, 1))
    with pytest.raises(InputError, match=r"rank [01]: ended with status") as raised:
        measure(arch, plan_of(mode, TRAINING, arch, 2), IDS, settings, mode)
    assert "\n" not in str(raised.value)
    assert not left()


def test_what_a_killed_parent_left_is_taken_down_by_the_next() -> None:
    code = ("import time; from tokenwire.measure.hosts import *\n"
            "with network(NetworkConfig(2, 'namespaces')): print('up', flush=True); time.sleep(60)")  # fmt: skip
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    mine = left(parent.pid)
    assert len(mine) == 3  # two ranks and the switch
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert set(take_down_stale()) >= set(mine)
    assert not left(parent.pid)


@pytest.mark.parametrize("routed", [False, True])
def test_two_tiers_and_jumbo_frames(routed: bool) -> None:
    mode, arch = MODES["ddp"], small(2)
    config = NetworkConfig(4, "namespaces", mtu=9000, ranks_per_node=2, routed=routed)
    found = measure(arch, plan_of(mode, TRAINING, arch, 4), IDS, Settings(config, 4, 250), mode)
    verdict = found.verdict()
    assert (verdict["pairs_different"], verdict["messages_missed"], found.dropped) == (0, 0, 0), verdict
    assert verdict["three_ways_apart"] == {"packets": 0, "bytes": 0}, found.three_ways
    assert verdict["frames_within_aim"], verdict


def test_a_router_joins_a_subnet_a_node() -> None:
    with network(NetworkConfig(4, "namespaces", ranks_per_node=2, routed=True)) as net:
        assert [host.address for host in net.hosts] == ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2"]
        assert "a router between the 2 nodes" in net.said
        assert len(left()) == 6  # four ranks, the switch and the router
    assert not left()


def test_sends_that_a_card_cuts_are_not_compared_as_frames() -> None:
    mode, arch = MODES["ddp"], small(2)
    found = measure(arch, plan_of(mode, TRAINING, arch, 2), IDS, Settings(NetworkConfig(2, "namespaces", offloads=True), 4, 250), mode)
    verdict = found.verdict()
    assert (verdict["pairs_different"], verdict["messages_missed"]) == (0, 0), verdict
    assert verdict["data_frames_off"] is None
    assert found.apart() is None
    assert (found.total("data_frames_captured") or 0) < (found.total("data_frames_predicted") or 0)


@pytest.mark.parametrize("capture", [True, False])
def test_loopback_has_an_address_a_rank(capture: bool) -> None:
    mode, arch = MODES["fsdp2"], small(2)
    found = measure(arch, plan_of(mode, TRAINING, arch, 2), IDS, Settings(NetworkConfig(2, "loopback"), 4, 250, capture), mode)
    verdict = found.verdict()
    assert (verdict["pairs_different"], found.dropped) == (0, 0), verdict
    assert verdict["messages_missed"] == (0 if capture else None)
    assert verdict["three_ways_apart"] is None
    assert verdict["loss_falls"]


def test_a_run_that_takes_too_long_is_given_up() -> None:
    mode, arch = MODES["ddp"], small(2)
    with pytest.raises(InputError, match=r"did not end in 0\.5 s; nearest that works: a larger --timeout"):
        measure(arch, plan_of(mode, TRAINING, arch, 2), IDS, Settings(NetworkConfig(2, "namespaces"), 4, 0.5), mode)
    assert not left()


def test_a_delay_stands_or_is_refused_in_one_line() -> None:
    said = ""
    try:
        with network(NetworkConfig(2, "namespaces", delay=0.001)):
            assert len(left()) == 3
    except InputError as error:
        said = str(error)
    assert not said or re.fullmatch(r"delay = 0\.001 s: needs netem .*", said)
    assert not left()


def test_an_interrupt_is_one_line_and_leaves_nothing() -> None:
    folders = set(Path(tempfile.gettempdir()).glob("tokenwire-measure.*"))
    command = [sys.executable, "-m", "tokenwire", "measure", "--mode", "ddp", "--ranks", "2", "--steps", "400"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not left(running.pid):
        assert running.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in said
    assert not left(running.pid)
    assert set(Path(tempfile.gettempdir()).glob("tokenwire-measure.*")) <= folders


def test_a_request_to_end_takes_all_down() -> None:
    def ended() -> None:
        with network(NetworkConfig(2, "namespaces")):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert not left()
