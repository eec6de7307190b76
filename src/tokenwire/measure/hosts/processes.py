"""Processes that end with the one that started them, also when that is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

_PARENT_DEATH = 1
"""PR_SET_PDEATHSIG, Linux include/uapi/linux/prctl.h."""


def child(
    command: Iterable[str], *, environment: Mapping[str, str] | None = None, said: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own; what it says on both streams goes to ``said``."""
    parent = os.getpid()
    return subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, preexec_fn=lambda: tie(parent),
        env=None if environment is None else dict(environment),
    )  # fmt: skip


def tie(parent: int) -> None:
    """Have this process end when ``parent`` does."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def started(pid: int) -> str:
    """Return when a process started, in ticks since the machine did; empty where there is none."""
    try:
        # The second field, the name in brackets, may hold anything; the 22nd is the 20th after it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def stop(processes: Iterable[subprocess.Popen[bytes]], *, gently: float = 0.0) -> None:
    """End processes with whatever they started; first by an interrupt where they may have ``gently`` seconds to finish."""
    running = [process for process in processes if process.poll() is None]
    if gently > 0:
        for process in running:
            _tell(process, signal.SIGINT)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(gently)
    for process in running:
        _tell(process, signal.SIGKILL)
        process.wait()


def _tell(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
