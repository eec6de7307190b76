"""Running plans: each in a forked child of a process that has imported the framework once, with a limit in seconds.

A plan is ``equal`` (every call of both ranks agrees), ``refused`` (an ``InputError``), ``different``, or ``failed`` (anything
else: an exception, a child that dies or is out of time).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.agreement.document import Document, toml

KINDS = ("equal", "refused", "different", "failed")
SECONDS = 120.0
"""The longest that a plan may take."""

_COMMON = (
    "tokenwire.journey",
    "tokenwire.measure.dryrun.compare",
    "tokenwire.formats.hf_config",
    "tokenwire.step",
    "polars",
)


@dataclass(frozen=True)
class Job:
    """A plan to run: ``places`` are its two ranks, as shares of the world; None: one rank of each stage and the last."""

    name: str
    document: Document
    places: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a plan: ``kind`` of ``KINDS``, the message of a refusal or failure, or the rows that differ."""

    kind: str
    ranks: tuple[int, ...] = ()
    message: str = ""
    rows: tuple[dict[str, Any], ...] = ()
    world: int = 0
    calls: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def fault(self) -> frozenset[Any]:
        """Return what is the same in two plans with the same fault: the calls that differ, or where it failed."""
        if self.kind == "different":
            return frozenset((row["op"], row["group"], row["phase"]) for row in self.rows)
        return frozenset({self.message}) if self.kind == "failed" else frozenset()

    def facts(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def framework(name: str) -> ModuleType:
    """Return the module that draws plans of a framework."""
    return import_module(f"tests.agreement.{name}")


def missing(name: str) -> str:
    """Return the first of the framework's packages that is not installed, or an empty string."""
    for package in dict.fromkeys(module.partition(".")[0] for module in framework(name).NEEDS):
        if find_spec(package) is None:
            return package
    return ""


def drawn(name: str, seed: int, count: int) -> Iterator[Job]:
    """Yield ``count`` plans of a framework; each follows from its seed and number alone."""
    draw = framework(name).draw
    for index in range(count):
        dice = random.Random(f"{seed}:{index}")
        document = draw(dice)
        yield Job(f"{name} {seed}:{index}", document, (dice.random(), dice.random()))


def run(
    name: str, jobs: Iterable[Job], processes: int = 1, seconds: float = SECONDS
) -> Iterator[tuple[Job, Outcome]]:
    """Yield each job with its outcome, as they end, ``processes`` at once."""
    _prepare(name)
    context = multiprocessing.get_context("fork")
    waiting = iter(jobs)
    alive: dict[Connection, tuple[Job, Any, float]] = {}
    while True:
        while len(alive) < processes and (job := next(waiting, None)) is not None:
            here, there = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(job, there))
            child.start()
            there.close()
            alive[here] = (job, child, time.monotonic())
        if not alive:
            return
        ready = wait(list(alive), timeout=1.0)
        late = [
            one
            for one, (_, _, start) in alive.items()
            if one not in ready and time.monotonic() - start > seconds
        ]
        for one in [*ready, *late]:
            job, child, start = alive.pop(one)  # type: ignore[index]
            yield job, _ended(one, child, time.monotonic() - start, seconds if one in late else None)


def _ended(pipe: Any, child: Any, seconds: float, limit: float | None) -> Outcome:
    if limit is not None:
        os.killpg(child.pid, signal.SIGKILL)  # and what it has forked
        outcome = Outcome("failed", message=f"takes more than {limit:g} s", seconds=seconds)
    else:
        try:
            outcome = Outcome(**pipe.recv(), seconds=seconds)
        except EOFError:
            child.join()
            outcome = Outcome(
                "failed", message=f"the process ended with status {child.exitcode}", seconds=seconds
            )
    child.join()
    pipe.close()
    return outcome


def _prepare(name: str) -> None:
    # Nothing may start threads here: a child has only the thread that forked it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    for module in (*_COMMON, *framework(name).NEEDS):
        import_module(module)


def _child(job: Job, pipe: Connection) -> None:
    # The frameworks print and warn as they like: what a plan's run prints is none of the answer.
    os.setpgid(0, 0)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    outcome = outcome_of(job)
    facts = outcome.facts()
    del facts["seconds"]
    pipe.send(facts)
    pipe.close()


def outcome_of(job: Job) -> Outcome:
    """Return what comes of a plan, run in this process."""
    from tokenwire.errors import InputError
    from tokenwire.journey import Journey

    ranks: tuple[int, ...] = ()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journey.toml"
            path.write_text(toml(job.document), "utf-8")
            journey = Journey.read(path)
            arch, plan = journey.model().architecture, journey.plan()
        ranks = _ranks(plan, job.places)
        return _compared(arch, plan, ranks)
    except InputError as error:
        return Outcome("refused", ranks, str(error))
    except Exception as error:
        return Outcome("failed", ranks, _where(error))


def _compared(arch: Any, plan: Any, ranks: tuple[int, ...]) -> Outcome:
    from tokenwire.measure.dryrun import check

    rows: list[dict[str, Any]] = []
    calls = 0
    for rank in ranks:
        table = check(arch, plan, rank)
        calls += int(table.filter(table["equal"].is_not_null())["recorded"].sum())
        rows += [{"rank": rank, **row} for row in table.filter(~table["equal"]).iter_rows(named=True)]
    return Outcome("different" if rows else "equal", ranks, "", tuple(rows), plan.world, calls)


def _ranks(plan: Any, places: tuple[float, ...] | None) -> tuple[int, ...]:
    if places is not None:
        return tuple(dict.fromkeys(int(place * plan.world) for place in places))
    first = [plan.grid.rank_of(pp=stage.index) for stage in plan.stages] if plan.pp > 1 else [0]
    return tuple(dict.fromkeys([*first[:8], plan.world - 1]))


def _where(error: Exception) -> str:
    """Return an exception with the innermost places in the framework or here."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    place = frames[-1]
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]} ({Path(place.filename).name}:{place.name})"
