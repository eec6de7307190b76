"""A measurement from plan to table: hosts stand up, ranks train, all is counted, prediction is put beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.collectives.gloo import on_connections, summed
from tokenwire.errors import InputError
from tokenwire.measure.calibrate import Calibration, communication_seconds
from tokenwire.measure.compare.bursts import bursts
from tokenwire.measure.compare.frames import FRAME_HEADER, frames
from tokenwire.measure.compare.measured import by_capture, by_sockets
from tokenwire.measure.compare.measurement import COLUMNS, Measurement, Timing
from tokenwire.measure.compare.predicted import by_phase, of_calls, of_step, of_tensor, of_zero
from tokenwire.measure.compare.three_ways import three_ways
from tokenwire.measure.counting.capture import Listening, capturing
from tokenwire.measure.counting.streams import Stream, streams
from tokenwire.measure.dryrun.record import require_torch
from tokenwire.measure.hosts import Network, NetworkConfig, network, own_folder
from tokenwire.measure.training.job import STARTING, Job, require_tokens
from tokenwire.measure.training.modes import Mode, own_mode
from tokenwire.measure.training.task import meeting
from tokenwire.measure.training.timing import least_waiting

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.collectives.tables import Table
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

MOST_STEPS = 1000
LARGEST = 50_000_000
"""Parameters of the largest model: every rank may hold it, its gradients and two moments."""
LOOPBACK_MTU = 65_536
"""Linux, drivers/net/loopback.c."""


@dataclass(frozen=True)
class Settings:
    """How to run: the network, optimizer steps, seconds until it is given up, whether packets are captured. With a
    ``calibration`` calls are timed, and their time is predicted from it."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    steps: int = 5
    timeout: float = 300.0
    capture: bool = True
    learning_rate: float = 3e-3
    calibration: Calibration | None = None
    fails: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Raise ``InputError`` for what cannot be."""
        if not STARTING < self.steps <= MOST_STEPS:
            raise InputError(f"steps = {self.steps}", rule=f"the first {STARTING} set torch up, so {STARTING + 1} to {MOST_STEPS:,}",
                             nearest=str(min(max(self.steps, STARTING + 1), MOST_STEPS)))  # fmt: skip
        if self.calibration is not None and self.steps < STARTING + 2:
            raise InputError(f"steps = {self.steps}", rule="the last one is not timed, so with a calibration there must be one more",
                             nearest=str(STARTING + 2))  # fmt: skip


def measure(
    arch: Architecture, plan: Plan, ids: Any, settings: Settings, mode: Mode | None = None,
    note: Callable[[str], None] | None = None,
) -> Measurement:  # fmt: skip
    """Train for real and return prediction and measurement side by side.

    ``ids`` int[tokens] of the text; ``mode`` what is done besides the plan (None: only the plan). Raises ``InputError`` for what
    cannot be run, a rank that fails, a run that takes too long; ``MissingExtra`` without torch. Nothing is left behind.
    """
    require_torch("a real run")
    _check(arch, plan, ids, settings)
    chosen, began, tell = mode or own_mode(plan), time.monotonic(), note or (lambda _: None)
    with own_folder() as folder:
        with network(settings.network) as net:
            tell(f"{chosen.said}: {net.said}")
            job = Job(
                **meeting(net), arch=arch, plan=plan, ids=np.asarray(ids, dtype=np.int64), steps=settings.steps, zero=chosen.zero,
                sequence_parallel=chosen.sequence_parallel, learning_rate=settings.learning_rate,
                timeout=min(settings.timeout, 300.0), delay=settings.network.delay or 0.0, timed=settings.calibration is not None, fails=settings.fails,
            )  # fmt: skip
            from tokenwire.measure.training.running import run

            with capturing(net, folder) if settings.capture else nullcontext(Listening()) as heard:
                runs = run(job, net, folder, settings.timeout, tell)
        found = streams(heard.files) if heard.files else None
    tell("comparing")
    return _measurement(arch, plan, chosen, settings, net, runs, found, heard.dropped, time.monotonic() - began)


def _check(arch: Architecture, plan: Plan, ids: Any, settings: Settings) -> None:
    from tokenwire.measure.dryrun.torch_model import require_plain
    from tokenwire.model.parameters import parameters

    require_plain(arch)
    require_tokens(ids, plan)
    total = parameters(arch).total
    if total > LARGEST:
        raise InputError(f"model {arch.name} of {total:,} parameters", where="[model]",
                         rule=f"a real run on one machine holds it once a rank, at most {LARGEST:,}",
                         nearest='preset = "dante"')  # fmt: skip
    if plan.world != settings.network.ranks:
        raise InputError(f"a plan of {plan.world:,} ranks", rule=f"does not go with {settings.network.ranks} hosts",
                         nearest=f"--ranks {plan.world}")  # fmt: skip
    highest = int(np.max(ids, initial=0))
    if highest >= arch.vocabulary_size:
        raise InputError(f"token id {highest:,}", where="[tokenizer]",
                         rule=f"the model's embedding has only {arch.vocabulary_size:,} rows")  # fmt: skip


def _measurement(
    arch: Architecture, plan: Plan, mode: Mode, settings: Settings, net: Network, runs: list[dict[str, Any]],
    found: list[Stream] | None, dropped: int, seconds: float,
) -> Measurement:  # fmt: skip
    from tokenwire.step import operations

    table = operations(arch, plan)
    recorded = of_calls([run["calls"] for run in runs])
    predicted, said = of_step(table, plan), "the step table"
    if mode.predicted == "table+zero":
        predicted, said = np.concatenate([predicted, of_zero(arch, plan.world)]), "the step table and ZeroRedundancyOptimizer's broadcasts"
    elif mode.predicted == "tensor":
        predicted, said = of_tensor(arch, plan), "the sums of tensor parallelism where sequences stay whole"
    marks = runs[0]["marks"]
    counted = [(mark, by_sockets(runs, mark), by_capture(found, runs, mark) if found is not None else None)
               for mark in range(1, len(marks))]  # fmt: skip
    timing = None
    if settings.calibration is not None:
        steps = list(zip(*(run["events"] for run in runs), strict=True))
        timing = Timing(communication_seconds(table, arch, plan, mode, settings.calibration), tuple(map(least_waiting, steps)))
    phases = tuple(by_phase(table, plan))
    notes = []
    if dropped:
        notes.append(f"the capture missed {dropped:,} packets: what it says is too little")
    return Measurement(
        mode=mode.name, said=mode.said, network=net.said, prediction=said, ranks=plan.world, steps=settings.steps,
        steady=STARTING + 1, losses=_losses(runs), pairs=_rows(counted, predicted, recorded, settings, net.kind),
        three_ways=three_ways(runs, found) if net.kind == "namespaces" else (), setup_bytes=_at_first(runs, "connections"),
        store_bytes=_store(runs), phases=phases,
        bursts=bursts(found, runs, max(len(marks) - 2, 1), plan, [row["group"] for row in phases]) if found else (), frames_cut=net.kind == "namespaces" and not settings.network.offloads, dropped=dropped, timing=timing, seconds=seconds, notes=tuple(notes),
    )  # fmt: skip


def _rows(
    counted: list[tuple[int, Any, Any]], predicted: Table, recorded: Table, settings: Settings, kind: str
) -> pl.DataFrame:
    import polars as pl

    wanted, made = ({(src, dst): (payload, count) for src, dst, payload, count in summed(table).tolist()} for table in (predicted, recorded))
    stream = on_connections(predicted)
    expected = frames(predicted, settings.network.mtu if kind == "namespaces" else LOOPBACK_MTU)
    rows = []
    for step, sockets, capture in counted:
        pairs = sorted({*stream, *(pair for pair, size in sockets["sent"].items() if size)})
        for pair in pairs:
            payload, count = wanted.get(pair, (0, 0))
            last = step == counted[-1][0]
            said = made.get(pair, (0, 0)) if last else (None, None)
            heard = {name: (None if capture is None else capture[name][pair])
                     for name in ("payload", "messages", "stream_bytes", "data_frames", "acks", "frame_bytes")}  # fmt: skip
            with_data, acks = expected.data[pair], expected.acks[pair]
            rows.append((
                step, *pair, payload, said[0], heard["payload"], count, said[1], heard["messages"], stream.get(pair, 0),
                sockets["sent"][pair], sockets["received"][pair], heard["stream_bytes"], with_data, heard["data_frames"],
                acks, expected.most_acks[pair], heard["acks"], stream.get(pair, 0) + FRAME_HEADER * (with_data + acks),
                heard["frame_bytes"], sockets["resent"][pair],
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=dict.fromkeys(("step", "src", "dst", *COLUMNS), pl.Int64), orient="row")


def _losses(runs: list[dict[str, Any]]) -> tuple[float, ...]:
    steps = zip(*(run["losses"] for run in runs), strict=True)
    return tuple(float(np.mean([loss for loss in step if loss is not None])) for step in steps)


def _at_first(runs: list[dict[str, Any]], kind: str) -> int:
    return sum(connection["sent"] for run in runs for connection in run["marks"][0][kind])


def _store(runs: list[dict[str, Any]]) -> int:
    return sum(connection["sent"] for run in runs for connection in run["marks"][-1]["store"])
