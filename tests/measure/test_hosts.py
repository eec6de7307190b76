"""Hosts: folders of runs that were killed, loopback's addresses, what cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tokenwire.errors import InputError
from tokenwire.measure.counting.capture import _missed
from tokenwire.measure.hosts import NetworkConfig, child, network, own_folder, stop
from tokenwire.measure.hosts.folder import remove_stale
from tokenwire.measure.hosts.processes import started


def test_folders_of_processes_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pid = os.getpid()
    gone, other = tmp_path / f"tokenwire-measure.{pid}.12.abc", tmp_path / f"tokenwire-measure.{pid}.{started(pid)}.abc"
    for folder in (gone, other, tmp_path / "tokenwire-measure.x.1.abc"):
        folder.mkdir()
    assert remove_stale() == [gone]
    with own_folder() as mine:
        assert mine.parent == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((other.name, "tokenwire-measure.x.1.abc"))


def test_loopback_gives_each_rank_an_address_and_a_free_port() -> None:
    with network(NetworkConfig(3, "loopback")) as net:
        addresses = [host.address for host in net.hosts]
        assert len(set(addresses)) == 3
        assert all(address.startswith("127.") for address in addresses)
        assert not net.namespaces
        assert net.store_port > 1023


def test_loopback_cannot_be_shaped() -> None:
    with pytest.raises(InputError, match="rate: cannot be set on loopback"), network(NetworkConfig(2, "loopback", rate=1e6)):
        pass


def test_children_end_with_the_one_that_started_them() -> None:
    code = "import sys; from tokenwire.measure.hosts import child; print(child(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert started(pid)
    parent.kill()
    parent.communicate()
    for _ in range(100):
        if not started(pid) or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        subprocess.run(["sleep", "0.02"], check=True)
    pytest.fail("the child lives on")


def test_stopped_processes_are_gone_with_what_they_started() -> None:
    process = child(["sh", "-c", "sleep 60 & wait"])
    stop([process])
    assert process.returncode == -9


def test_packets_that_were_missed() -> None:
    said = "10 packets captured\n14 packets received by filter\n1 packet dropped by kernel\n"
    assert _missed(said) == 5
    assert _missed(said, one_way=True) == 1


def test_without_torch_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenwire.errors import MissingExtra
    from tokenwire.measure.dryrun.record import require_torch

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="measure") as raised:
        require_torch("a real run")
    assert "\n" not in str(raised.value)


def test_without_root_it_is_loopback_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with network(NetworkConfig(2)) as net:
        assert net.kind == "loopback"
        assert "need root" in net.said
    with pytest.raises(InputError, match="need root; nearest that works: --network loopback"), network(NetworkConfig(2, "namespaces")):
        pass


UNPRIVILEGED = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
"""Root in name alone, as in many containers: without any capability."""


@pytest.mark.skipif(not shutil.which("setpriv") or not shutil.which("tcpdump"), reason="needs setpriv and tcpdump")
def test_who_may_not_capture_is_counted_by_sockets_alone() -> None:
    if subprocess.run([*UNPRIVILEGED, "true"], capture_output=True).returncode:
        pytest.skip("privileges cannot be dropped here")
    asks = "from tokenwire.measure.hosts import *; n = network(NetworkConfig(2)).__enter__(); print(n.kind, len(n.taps), n.said)"
    done = subprocess.run([*UNPRIVILEGED, sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("loopback 0 ")
    assert "network namespaces" in done.stdout
