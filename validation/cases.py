"""The timed runs of data/, each with what a prediction of its step needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.fabric import ClusterConfig, ClusterFacts
from tokenwire.model import ModelConfig, architecture
from tokenwire.model.architecture import Architecture, Experts, StateSpace
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.step import Operation, calls_of
from tokenwire.timeline import Accelerator, StepTime, accelerator, step_time
from tokenwire.timeline.calibration import precision_of
from validation.run import DATA, Run
from validation.tables import (
    b200_runs,
    bridge_runs,
    foundry_runs,
    korthikanti_runs,
    narayanan_runs,
    titan_runs,
)

TABLES: dict[str, tuple[Callable[[str | Path], tuple[Run, ...]], str]] = {
    "B200": (b200_runs, "b200_megatron_runs.csv"), "SC21": (narayanan_runs, "megatron_sc21.csv"),
    "sequence parallelism": (korthikanti_runs, "megatron_seqpar.csv"), "MPT": (foundry_runs, "mpt_fsdp_runs.csv"),
    "torchtitan": (titan_runs, "torchtitan_runs.csv"), "Megatron-Bridge": (bridge_runs, "megatron_bridge_runs.csv"),
}  # fmt: skip
"""Name of a table: its importer and its file."""
CLUSTERS = {"B200": "dgx-b200-superpod"}
"""Clusters of runs whose importer names none."""


@dataclass(frozen=True)
class Case:
    """A run with all that its prediction needs."""

    table: str
    run: Run
    arch: Architecture
    plan: Plan
    rows: tuple[Operation, ...]
    facts: ClusterFacts
    gpu: Accelerator

    @property
    def seconds(self) -> float:
        """Return the seconds of a step that were measured."""
        return self.run.measured["step_seconds"]

    @property
    def experts(self) -> bool:
        """Return whether its model has experts."""
        return any(isinstance(layer.feed_forward, Experts) for layer in self.arch.layers)

    @property
    def hybrid(self) -> bool:
        """Return whether its model has state-space blocks."""
        return any(isinstance(layer.mixer, StateSpace) for layer in self.arch.layers)

    @property
    def slowed(self) -> bool:
        """Return whether its publisher says that a fault slowed it: it is predicted, and fits nothing."""
        return bool(self.run.software.get("slowed"))

    @property
    def precision(self) -> str:
        """Return the precision of its products; nvfp4 where the run says so."""
        return str(self.run.software.get("precision") or precision_of(self.plan))

    def predicted(self, gpu: Accelerator | None = None) -> StepTime:
        """Return the prediction, on its GPU as the catalog has it, or on ``gpu``."""
        attention: Literal["flash", "unfused"] = "unfused" if self.run.software.get("attention") == "unfused" else "flash"
        return step_time(self.arch, self.plan, self.rows, self.facts, gpu=gpu or self.gpu, attention=attention)


def case_of(table: str, run: Run) -> Case:
    """Return a run with what its prediction needs. Raises ``InputError`` for what no plan allows."""
    given = run.sections
    arch = architecture(read_section(ModelConfig, given["model"], where="[model]"))
    training = read_section(TrainingConfig, given["training"], where="[training]")
    cluster = {"preset": CLUSTERS.get(run.software["gpu"]), **given["cluster"]}
    facts = read_section(ClusterConfig, cluster, where="[cluster]")
    plan = resolve(read_plan(given["plan"]), training, arch, facts.world)
    gpu = accelerator(str(run.software["gpu"]))
    if run.software.get("precision") == "nvfp4":
        gpu = gpu.in_four_bits()
    return Case(table, run, arch, plan, calls_of(arch, plan), facts.facts, gpu)


def cases(folder: Path = DATA, *names: str) -> tuple[list[Case], list[tuple[str, Run, str]]]:
    """Return all runs that can be said, and those that cannot, with the reason."""
    said, unsaid = [], []
    for table, run in _runs(folder, names):
        if run.reasons:
            unsaid.append((table, run, run.reasons[0]))
            continue
        try:
            said.append(case_of(table, run))
        except InputError as error:
            unsaid.append((table, run, str(error)))
    return said, unsaid


def _runs(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, Run]]:
    for table, (reader, file) in TABLES.items():
        if not names or table in names:
            for run in reader(folder / file):
                yield table, run
