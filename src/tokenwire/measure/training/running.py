"""A run from outside: a process a rank on its host, watched to its end, and what each wrote down."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.measure.hosts import Network, child, stop
from tokenwire.measure.training.task import Task

MOST_SECONDS = 3600.0


def run(task: Task, network: Network, folder: Path, seconds: float, note: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Run a task on a network and return what each rank wrote.

    ``folder`` takes the task, the ranks' words and results. Raises ``InputError`` for a rank that fails and for a run that takes
    more than ``seconds``; all processes have ended when this returns.
    """
    if not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"timeout = {seconds:g} s", rule=f"must be above 0 and at most {MOST_SECONDS:,.0f} s", nearest="300 s")
    (folder / "task.pickle").write_bytes(pickle.dumps(task))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
                   "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # fmt: skip
    with (folder / "ranks.said").open("wb") as said:
        process = child([sys.executable, "-m", "tokenwire.measure.training.ranks", str(folder)], environment=environment, said=said)
    try:
        _watch(process, task.world, folder, seconds, note)
    finally:
        stop([process])
    return [json.loads((folder / f"rank{host.rank}.json").read_text()) for host in network.hosts]


def _watch(process: Any, ranks: int, folder: Path, seconds: float, note: Callable[[str], None] | None) -> None:
    end, file = time.monotonic() + seconds, folder / "ended"
    while True:
        over = process.poll() is not None
        ended = [tuple(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []
        for rank, status in ended:
            if status:
                raise _failure(f"rank {rank}", status, folder / f"rank{rank}.said")
        if len(ended) == ranks:
            return
        if over:
            raise _failure("the process that starts the ranks", process.returncode, folder / "ranks.said")
        if time.monotonic() > end:
            raise InputError(f"the run of {ranks} ranks", rule=f"did not end in {seconds:g} s", nearest="a larger --timeout")
        if note is not None:
            note(f"{len(ended)} of {ranks} ranks done")
        time.sleep(0.05)


def _failure(what: str, status: int, said: Path) -> InputError:
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    words = said.read_text(errors="replace").strip().splitlines() if said.exists() else []
    last = next((line.strip() for line in reversed(words) if line.strip()), "")
    return InputError(what, rule=f"{how}{f' ({last[:200]})' if last else ''}; the run is given up")
