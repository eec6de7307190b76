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

_WAIT = 10.0


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
            command = [*enter, "tcpdump", "-i", interface, "-Q", direction, "-n", "-U", "-B", "65536", "-s", "0", "-Z", "root",
                       "--time-stamp-precision=nano", "-w", str(file), "tcp"]  # fmt: skip
            with said.open("wb") as words:
                processes.append(child(command, said=words))
            _started(processes[-1], said)
            listening.files.append(file)
        yield listening
        time.sleep(0.2)
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(_WAIT)
            except subprocess.TimeoutExpired:
                stop([process])
        for number in range(len(listening.files)):
            listening.dropped += _dropped((folder / f"tap{number}.said").read_text(errors="replace"))


def _started(process: Any, said: Path) -> None:
    end = time.monotonic() + _WAIT
    while "listening on" not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > end:
            last = said.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise InputError("tcpdump", rule=f"did not start ({last[0][:200]})", nearest="--no-capture")
        time.sleep(0.02)


def _dropped(said: str) -> int:
    return sum(int(found) for found in re.findall(r"(\d+) packets? dropped by", said))
