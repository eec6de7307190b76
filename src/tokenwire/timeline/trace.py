"""A step as trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing: a process a stage, micro-batches and the end as threads.

Format: Google, Trace Event Format (JSON object format; complete events, ``ph`` X, times in microseconds). Transfers between stages are
flow events (``ph`` s and f) from the action that sends to the one that waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.timeline.stage_time import Load
from tokenwire.timeline.step_time import StepTime

NAMES = {"F": "forward", "B": "backward", "I": "backward for inputs", "W": "backward for weights"}
COMPUTING, END = 0, 1
_THREADS = {COMPUTING: "micro-batches", END: "end of the step"}


def trace(step: StepTime, about: dict[str, Any]) -> dict[str, Any]:
    """Return the whole trace as an object to be written as JSON; ``about`` says what was run."""
    return {"traceEvents": list(events(step)), "displayTimeUnit": "ms", "otherData": about}


def events(step: StepTime) -> Iterator[dict[str, Any]]:
    """Yield the events of one rank of each stage: its micro-batches, then gradients, optimizer and weights."""
    run = step.run
    for one in step.loads:
        pid = one.stage.index
        yield _named("process_name", pid, 0, f"stage {pid}")
        for thread, name in _THREADS.items():
            yield _named("thread_name", pid, thread, name)
        exposed = _exposed(one)
        for x in run.of_rank(pid):
            action, cost = run.graph.actions[x], run.graph.cost[x]
            yield _event(
                f"{action.kind}{action.micro_batch}", NAMES[action.kind], pid, COMPUTING, run.started[x], run.ended[x] - run.started[x],
                {"stage": action.stage, "micro-batch": action.micro_batch, "exposed communication (s)": exposed.get(cost, 0.0)},
            )  # fmt: skip
        yield from _end(step, one)
    yield from _flows(step)


def _exposed(one: Load) -> dict[tuple[str, int], float]:
    out: dict[tuple[str, int], float] = {}
    for chunk, wait in enumerate(one.waiting):
        out["F", chunk] = sum(wait["forward"].values())
        out["B", chunk] = out["I", chunk] = sum(wait["backward"].values())
    return out


def _end(step: StepTime, one: Load) -> Iterator[dict[str, Any]]:
    stage, run = one.stage.index, step.run
    left_out = run.left_out * run.pace
    at = run.ends[stage] - left_out
    if one.tail.gradients:
        yield _event("gradients", "communication", stage, END, at, one.tail.gradients, {})
    at = step.pipeline_seconds + step.gradients_seconds - left_out
    for name, kind, seconds in (
        ("norms and flags", "communication", one.tail.small), ("optimizer", "optimizer", one.optimizer),
        ("weights", "communication", one.tail.weights),
    ):  # fmt: skip
        if seconds:
            yield _event(name, kind, stage, END, at, seconds, {})
            at += seconds


def _flows(step: StepTime) -> Iterator[dict[str, Any]]:
    graph, run = step.run.graph, step.run
    for x in range(len(graph.actions)):
        for y in (graph.one[x], graph.two[x]):
            if y >= 0 and graph.rank[y] != graph.rank[x]:
                both = {"name": "activation" if graph.actions[x].kind == "F" else "gradient", "cat": "transfer", "id": f"{y}-{x}", "tid": COMPUTING}
                yield {**both, "ph": "s", "pid": graph.rank[y], "ts": run.ended[y] * 1e6}
                yield {**both, "ph": "f", "bp": "e", "pid": graph.rank[x], "ts": run.started[x] * 1e6}


def _event(name: str, kind: str, pid: int, tid: int, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "cat": kind, "ph": "X", "pid": pid, "tid": tid, "ts": start * 1e6, "dur": seconds * 1e6, "args": args}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
