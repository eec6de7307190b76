"""The capture of a run: who listens where, and how much the listener missed.

tcpdump writes whole packets, for gloo's own headers in them say how many messages there are.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.measure.hosts import Network, child, stop

_WAIT, _LOOK, _STILL = 10.0, 0.1, 13
"""Seconds that are waited at most, and between looks; looks in which nothing came: more than the second after which libpcap hands over."""


@dataclass
class Listening:
    """``files`` fill while the block runs; ``dropped`` packets are known when it has ended."""

    files: list[Path] = field(default_factory=list)
    dropped: int = 0


@contextmanager
def capturing(network: Network, folder: Path) -> Iterator[Listening]:
    """Capture every frame of a network once inside the block; nothing where there is no tap.

    Raises ``InputError`` where tcpdump is missing or does not start.
    """
    listening, processes = Listening(), []
    if network.taps and not shutil.which("tcpdump"):
        raise InputError("a capture", rule="needs tcpdump (Debian: tcpdump)", nearest="--no-capture")
    try:
        for number, (enter, interface, direction) in enumerate(network.taps):
            file, said = folder / f"tap{number}.pcap", folder / f"tap{number}.said"
            command = [*enter, "tcpdump", "-i", interface, "-Q", direction, "-n", "-B", "65536", "-s", "0", "-Z", "root",
                       "--time-stamp-precision=nano", "-w", str(file), "tcp"]  # fmt: skip
            with said.open("wb") as words:
                processes.append(child(command, said=words))
            _started(processes[-1], said)
            listening.files.append(file)
        yield listening
        _settled(listening.files)
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(_WAIT)
            except subprocess.TimeoutExpired:
                stop([process])
        for number, (_, interface, direction) in enumerate(network.taps[: len(listening.files)]):
            # Of loopback libpcap leaves out what goes out, for it comes in again.
            one_way = direction != "inout" or interface == "lo"
            listening.dropped += _missed((folder / f"tap{number}.said").read_text(errors="replace"), one_way=one_way)


def _started(process: Any, said: Path) -> None:
    end = time.monotonic() + _WAIT
    while "listening on" not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > end:
            last = said.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise InputError("tcpdump", rule=f"did not start ({last[0][:200]})", nearest="--no-capture")
        time.sleep(0.02)


def _settled(files: list[Path]) -> None:
    # tcpdump lags behind where the machine is busy; what it has not written when it is told to end is lost.
    sizes, still, end = [-1], 0, time.monotonic() + _WAIT
    while files and still < _STILL and time.monotonic() < end:
        time.sleep(_LOOK)
        now = [file.stat().st_size for file in files]
        still = still + 1 if now == sizes else 0
        sizes = now


def _missed(said: str, *, one_way: bool = False) -> int:
    """Return the packets that tcpdump was shown and did not write, by its last words; ``one_way``: it was shown others, too.

    >>> _missed("90 packets captured" + chr(10) + "100 packets received by filter" + chr(10) + "7 packets dropped by kernel")
    17
    """
    counts = {what: int(count) for count, what in re.findall(r"(\d+) packets? (captured|received by filter|dropped by)", said)}
    unread = 0 if one_way else counts.get("received by filter", 0) - counts.get("captured", 0)
    return max(unread, 0) + counts.get("dropped by", 0)
