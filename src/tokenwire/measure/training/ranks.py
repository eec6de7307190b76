"""All ranks of a run out of one process: torch is read once, then each rank is a fork of it that goes to its own host.

Run as ``python -m tokenwire.measure.training.ranks FOLDER``; FOLDER has the task. ``ended`` takes a line "rank status" as each ends,
so that the first to fail is known.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import traceback
from importlib import import_module
from pathlib import Path

from tokenwire.measure.hosts.processes import tie
from tokenwire.measure.training.task import Task

_NETWORK = 0x40000000
"""CLONE_NEWNET, Linux include/uapi/linux/sched.h."""

_READ = (
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks", "torch.distributed.optim", "tokenwire.measure.training.rank",
    "tokenwire.measure.calibrate.probing", "tokenwire.measure.training.trainers", "tokenwire.measure.training.ring", "tokenwire.measure.dryrun.torch_pipeline",
)  # fmt: skip
"""All that a trainer may ask for, so that no rank reads it by itself."""


def start(folder: Path) -> None:
    """Start a process a rank and note how each ends."""
    for module in _READ:
        import_module(module)
    task: Task = pickle.loads((folder / "task.pickle").read_bytes())
    mine, running = os.getpid(), {}
    for rank in range(task.world):
        pid = os.fork()
        if pid == 0:
            _be(rank, task, folder, mine)
        running[pid] = rank
    with (folder / "ended").open("w") as ended:
        while running:
            pid, status = os.wait()
            print(running.pop(pid), os.waitstatus_to_exitcode(status), file=ended, flush=True)


def _be(rank: int, task: Task, folder: Path, parent: int) -> None:
    status = 1
    try:
        tie(parent)
        said = os.open(folder / f"rank{rank}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        if task.namespaces:
            enter(task.namespaces[rank])
        import_module(task.module).run(folder, rank, task)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def enter(namespace: str) -> None:
    """Go into a network namespace, given as the file that stands for it. Raises ``OSError`` where that cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(file, _NETWORK):
            raise OSError(ctypes.get_errno(), f"the namespace {namespace} cannot be entered")
    finally:
        os.close(file)


if __name__ == "__main__":
    start(Path(sys.argv[1]))
