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
from tokenwire.measure.hosts import Network, child, ended, stop
from tokenwire.measure.training.job import Job

MOST_SECONDS = 3600.0


def run(job: Job, network: Network, folder: Path, seconds: float, note: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Run a job on a network and return what each rank wrote: ``losses``, ``marks``, ``calls``.

    ``folder`` takes the job, the ranks' words and results. Raises ``InputError`` for a rank that fails and for a run that takes
    more than ``seconds``; all processes have ended when this returns.
    """
    if not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"timeout = {seconds:g} s", rule=f"must be above 0 and at most {MOST_SECONDS:,.0f} s", nearest="300 s")
    (folder / "job.pickle").write_bytes(pickle.dumps(job))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
                   "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # fmt: skip
    processes = []
    try:
        for host in network.hosts:
            with (folder / f"rank{host.rank}.said").open("wb") as said:
                command = [*host.enter, sys.executable, "-m", "tokenwire.measure.training.rank", str(folder), str(host.rank)]
                processes.append(child(command, environment=environment, said=said))
        _watch(processes, folder, seconds, note)
    finally:
        stop(processes)
    return [json.loads((folder / f"rank{host.rank}.json").read_text()) for host in network.hosts]


def _watch(processes: list[Any], folder: Path, seconds: float, note: Callable[[str], None] | None) -> None:
    end = time.monotonic() + seconds
    while True:
        states = ended(processes)
        failed = [rank for rank, state in enumerate(states) if state]
        if failed:
            # Others fail because one did: the first to fail is the one to name, so look again who says why.
            raise _failure(failed, states, folder)
        if all(state == 0 for state in states):
            return
        if time.monotonic() > end:
            raise InputError(f"the run of {len(processes)} ranks", rule=f"did not end in {seconds:g} s", nearest="a larger --timeout")
        if note is not None:
            note(f"{sum(state == 0 for state in states)} of {len(states)} ranks done")
        time.sleep(0.05)


def _failure(failed: list[int], states: list[int | None], folder: Path) -> InputError:
    rank = failed[0]
    status = states[rank] or 0
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    words = (folder / f"rank{rank}.said").read_text(errors="replace").strip().splitlines()
    last = next((line.strip() for line in reversed(words) if line.strip()), "")
    return InputError(f"rank {rank}", rule=f"{how}{f' ({last[:200]})' if last else ''}; the run is given up")
