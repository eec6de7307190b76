"""The process of one rank: joins the others, trains, and writes down what the kernel counted between steps.

The folder of the run takes ``rank<RANK>.json``.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tokenwire.measure.counting.sockets import connections
from tokenwire.measure.training.job import STARTING, Job
from tokenwire.measure.training.task import join
from tokenwire.measure.training.timing import timed

_REST = 0.06
"""Seconds in which what is on its way arrives: more than the 40 ms after which TCP acknowledges at the latest."""
_LOOKS = 50


class Marks:
    """Moments when all ranks are at rest, and what the kernel has counted by then."""

    def __init__(self, store: Any, job: Job) -> None:
        self.store, self.job, self.taken = store, job, []  # type: tuple[Any, Job, list[dict[str, Any]]]

    def take(self, name: str, began: int = 0) -> None:
        """Wait for all, let the network come to rest, read the counts, wait for all again."""
        ended = time.time_ns()
        self._all(f"{name}/there")
        time.sleep(_REST + 3 * self.job.delay)
        self.taken.append({"mark": name, "began_ns": began, "ended_ns": ended, **self._counts()})
        self._all(f"{name}/read")

    def _counts(self) -> dict[str, Any]:
        # All counts are of one moment: they are read again where a frame crossed meanwhile.
        for _ in range(_LOOKS):
            crossed, own, now = interface(self.job.interface), list(connections()), time.time_ns()
            if interface(self.job.interface) == crossed:
                break
        return {"time_ns": now, "interface": crossed, "connections": [c for c in own if not self._stores(c)],
                "store": [c for c in own if self._stores(c)]}  # fmt: skip

    def _stores(self, connection: dict[str, Any]) -> bool:
        return self.job.store_port in (connection["local"][1], connection["remote"][1])

    def part(self, rank: int) -> None:
        """Say goodbye; rank 0, which keeps the store, waits for all others."""
        if rank:
            self.store.add("gone", 1)
        else:
            self._until("gone", self.job.world - 1)

    def _all(self, key: str) -> None:
        self.store.add(key, 1)
        self._until(key, self.job.world)

    def _until(self, key: str, count: int) -> None:
        waited = 0.0
        while int(self.store.add(key, 0)) < count:
            time.sleep(0.01)
            waited += 0.01
            if waited > self.job.timeout:
                raise TimeoutError(f"the other ranks did not come to {key}")


def interface(name: str) -> dict[str, int]:
    """Return bytes and packets that an interface of this process's network has sent and received."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        label, _, counts = line.partition(":")
        if label.strip() == name:
            numbers = [int(x) for x in counts.split()]
            return {"rx_bytes": numbers[0], "rx_packets": numbers[1], "tx_bytes": numbers[8], "tx_packets": numbers[9]}
    return {}


def run(folder: Path, rank: int, job: Job) -> None:
    """Train as ``rank``."""
    import torch
    import torch.distributed as dist

    store = join(job, rank)
    from tokenwire.measure.training.recording import RootRecorder
    from tokenwire.measure.training.trainers import trainer

    recorder, marks, losses, events = RootRecorder(), Marks(store, job), [], []  # type: Any, Marks, list[float | None], list[Any]
    step = trainer(job, rank, recorder)
    marks.take("set-up")
    for index in range(job.steps):
        if job.fails == (rank, index):
            os._exit(3)
        inputs, labels = (torch.from_numpy(part) for part in job.batch(index, rank))
        began = time.time_ns()
        if index == job.steps - 1:
            # The last step is written down call by call; it sends what the others send.
            with recorder.recording():
                losses.append(step(inputs, labels))
        else:
            with timed(events) if job.timed and index >= STARTING else nullcontext():
                losses.append(step(inputs, labels))
        marks.take(f"step {index + 1}", began)
    calls = [{"op": c.op, "members": c.members, "elements": c.elements, "dtype": c.dtype, "phase": c.phase, "peer": c.peer,
              "root": root, "shift": shift} for c, root, shift in zip(recorder.calls, recorder.roots, recorder.shifts, strict=True)]  # fmt: skip
    (folder / f"rank{rank}.json").write_text(json.dumps({"rank": rank, "losses": losses, "marks": marks.taken, "calls": calls,
                                                     "events": events}))
    marks.take("end")
    dist.destroy_process_group()
    marks.part(rank)

