"""A step as trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing: one process a stage, computing and waiting as threads.

Format: Google, Trace Event Format (JSON object format; complete events, ``ph`` X, times in microseconds).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.timeline.step_time import StageTime, StepTime

NAMES = {"F": "forward", "B": "backward", "I": "backward for inputs", "W": "backward for weights"}
COMPUTING, END = 0, 1
_THREADS = {COMPUTING: "micro-batches", END: "end of the step"}


def events(step: StepTime) -> Iterator[dict[str, Any]]:
    """Yield the events of one rank of each stage: its micro-batches, then gradients, optimizer and weights."""
    for stage in step.stages:
        pid = stage.stage
        yield _named("process_name", pid, 0, f"stage {pid}")
        for thread, name in _THREADS.items():
            yield _named("thread_name", pid, thread, name)
        for action, start, end in step.run.actions[pid]:
            yield _event(
                f"{action.kind}{action.micro_batch}", NAMES[action.kind], pid, COMPUTING, start, end - start,
                {"stage": action.stage, "micro-batch": action.micro_batch},
            )  # fmt: skip
        yield from _end(step, stage)


def _end(step: StepTime, stage: StageTime) -> Iterator[dict[str, Any]]:
    last = dict(step.tail_seconds)
    at = step.run.ends[stage.stage]
    if stage.exposed.get("gradients"):
        yield _event("gradients", "communication", stage.stage, END, at, stage.exposed["gradients"], {})
    at = step.step_seconds - last["optimizer"]
    for name, kind, seconds in (
        ("norms and flags", "communication", stage.exposed.get("small", 0.0)), ("optimizer", "optimizer", stage.optimizer),
        ("weights", "communication", stage.exposed.get("weights", 0.0)),
    ):  # fmt: skip
        if seconds:
            yield _event(name, kind, stage.stage, END, at, seconds, {})
            at += seconds


def trace(step: StepTime, about: dict[str, Any]) -> dict[str, Any]:
    """Return the whole trace as an object to be written as JSON; ``about`` says what was run."""
    return {"traceEvents": list(events(step)), "displayTimeUnit": "ms", "otherData": about}


def _event(name: str, kind: str, pid: int, tid: int, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "cat": kind, "ph": "X", "pid": pid, "tid": tid, "ts": start * 1e6, "dur": seconds * 1e6, "args": args}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
