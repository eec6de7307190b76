"""Fit the settings of src/tokenwire/timeline/catalog/calibrated.toml to measured steps, and find how far off rows are that were left out.

    python -m validation.calibrate

A setting's numbers are those, on a grid of steps of 3 %, with the least mean |log(predicted / measured)| over its runs, found by moving one
number at a time. Cross-validation: the runs are parted into folds, the numbers fitted to all folds but one, and that one predicted with
them. Runs of the same model, plan and batch, in another release or with other micro-batches, are in one fold.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from validation.cases import Case, cases

OUT = Path(__file__).resolve().parent.parent / "src" / "tokenwire" / "timeline" / "catalog" / "calibrated.toml"
NAMES = ("products", "attention", "memory", "beside")
START = (-6, -10, 0, 4)
"""Where the search begins, as places on the grid: 0.84, 0.74, 1, 0.5."""
BOUNDS = ((-45, 9), (-60, 9), (-30, 7), (0, 12))
"""Products and attention at most 1.3 times as fast as alone (the curve that they are held against is itself a guess), memory at most at
its data sheet's rate, calls beside products at most 1.5 of their seconds."""
Place = tuple[int, ...]
UNFITTED: Place = (0, 0, 0, 4)
"""The place of numbers that no run is known for: as fast as alone, and half of what is beside."""


@dataclass(frozen=True)
class Wanted:
    """A setting to be fitted: whom it is for, which runs it is fitted to, which of the four numbers are free.

    ``alike``: attention falls short as products do, by one number: of a dense model both run at the clock that the chip's power allows.
    """

    name: str
    gpus: tuple[str, ...]
    dialects: tuple[str, ...]
    precision: str
    source: str
    member: Callable[[Case], bool]
    free: tuple[int, ...] = (0, 1, 2, 3)
    experts: bool | None = None
    usual: bool = True
    alike: bool = False
    hybrid: bool = False

    def numbers(self, place: Place) -> tuple[float, ...]:
        """Return the four numbers at a place."""
        return numbers_at(place, self.alike)


@dataclass
class Fitted:
    """A setting with its numbers, and the prediction of each run with the numbers of the folds that it is not in."""

    wanted: Wanted
    place: Place
    runs: list[Case]
    left_out: list[float]
    alone: list[float]
    """The same where each run is left out by itself, and the same run of another release is not."""
    grouped: dict[str, list[float]]
    """The same where all runs of its release, model or machine are left out (``GROUPS``)."""

    @property
    def error(self) -> float:
        """Return the mean absolute error of runs left out."""
        return statistics.fmean(abs(seconds / case.seconds - 1) for case, seconds in zip(self.runs, self.left_out, strict=True))


def value(which: int, place: int) -> float:
    """Return a number at a place of the grid.

    >>> value(0, 0), value(3, 4)
    (1.0, 0.5)
    """
    return place / 8 if which == 3 else round(1.03**place, 4)


def numbers_at(place: Place, alike: bool) -> tuple[float, ...]:
    """Return the four numbers at a place; ``alike``: attention's is that of products."""
    numbers = tuple(value(i, place[i]) for i in range(len(NAMES)))
    return (numbers[0], numbers[0], *numbers[2:]) if alike else numbers


class Predictions:
    """The predicted seconds of runs at places of the grid, each computed once."""

    def __init__(self, runs: Sequence[Case], alike: bool = False) -> None:
        """``alike``: attention is slowed as products are."""
        self.runs, self.alike, self.known = runs, alike, dict[tuple[int, Place], float]()

    def of(self, i: int, place: Place) -> float:
        """Return the seconds of run i."""
        if (i, place) not in self.known:
            products, attention, memory, beside = numbers_at(place, self.alike)
            gpu = replace(self.runs[i].gpu, sustained=products, sustained_attention=attention, sustained_memory=memory, beside=beside)
            self.known[i, place] = self.runs[i].predicted(gpu).step_seconds
        return self.known[i, place]

    def off(self, members: Sequence[int], place: Place) -> float:
        """Return the mean |log(predicted / measured)|."""
        return statistics.fmean(abs(math.log(self.of(i, place) / self.runs[i].seconds)) for i in members)

    def best(self, members: Sequence[int], free: Sequence[int], start: Place) -> Place:
        """Return the place with the least error that moving one number at a time finds."""
        place, least = start, self.off(members, start)
        for step in (8, 4, 2, 1):
            moved = True
            while moved:
                moved = False
                for which in free:
                    for way in (step, -step):
                        other = list(place)
                        other[which] = min(max(place[which] + way, BOUNDS[which][0]), BOUNDS[which][1])
                        off = self.off(members, tuple(other))
                        if off < least - 1e-9:
                            place, least, moved = tuple(other), off, True
        return place


def fold(case: Case) -> str:
    """Return what runs have in common that are left out together: model, plan, batch, GPU; of MPT each run is a fold of its own."""
    given = case.run.sections
    if case.table in ("MPT", "torchtitan"):
        return case.run.case
    plan = {key: given["plan"].get(key, 1) for key in ("tp", "pp", "cp", "ep", "vpp", "recompute_granularity")}
    return f"{sorted(given['model'].items())} {sorted(plan.items(), key=str)} {given['training']['sequence_length']} {case.gpu.kind}"


def fit(wanted: Wanted, all_cases: Sequence[Case]) -> Fitted:
    """Return a setting fitted to its runs, with the predictions of runs left out (at most 12 folds)."""
    runs = [case for case in all_cases if wanted.member(case)]
    predictions = Predictions(runs, wanted.alike)
    sound = [i for i, case in enumerate(runs) if not case.slowed]
    whole = predictions.best(sound, wanted.free, tuple(s if i in wanted.free else UNFITTED[i] for i, s in enumerate(START)))
    names = list(dict.fromkeys(fold(case) for case in runs))

    def without(group: Callable[[int], object]) -> list[float]:
        """Return the prediction of each run with numbers fitted to those of other groups; unfitted where there are none."""
        out, places = [], dict[object, Place]()
        for i in range(len(runs)):
            if (mine := group(i)) not in places:
                others = [j for j in sound if group(j) != mine]
                places[mine] = predictions.best(others, wanted.free, whole) if others else UNFITTED
            out.append(predictions.of(i, places[mine]))
        return out

    bridge = any(case.table == "Megatron-Bridge" for case in runs)
    return Fitted(
        wanted, whole, runs, without(lambda i: names.index(fold(runs[i])) % 12), without(lambda i: i),
        {kind: without([of(case) for case in runs].__getitem__) for kind, of in GROUPS.items()} if bridge else {},
    )  # fmt: skip


GROUPS: dict[str, Callable[[Case], object]] = {
    "model": lambda case: case.run.sections["model"]["preset"],
    "release": lambda case: case.run.software["release"],
    "machine": lambda case: case.gpu.kind,
}
"""What of Megatron-Bridge's runs is left out as a whole, too."""


NEWER = ("b300", "gb200", "gb300")
"""GPUs that run experts' kernels of the same chips and software, and share two numbers: fewer are fitted than there are models."""


def megatron_bridge() -> list[Wanted]:
    """Return the settings of Megatron-Bridge: by GPU and precision; with experts by chip and by whether the whole step is one CUDA graph.

    Models with state-space blocks too have settings of their own, but on H100, where one such run is known: that is with the experts.
    """
    source = "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary"
    dense = (("h100", "fp8"), ("b200", "fp8"), ("gb200", "fp8"), ("gb200", "mxfp8"), ("gb300", "fp8"), ("gb300", "mxfp8"), ("gb300", "nvfp4"))
    experts = (("h100", ("h100",), "fp8", False), ("b200", ("b200",), "mxfp8", False), ("nvl72", ("gb200", "gb300"), "bf16", False),
               ("blackwell", NEWER, "mxfp8", False), ("blackwell", NEWER, "mxfp8", True))  # fmt: skip

    def of_dense(gpu: str, precision: str) -> Callable[[Case], bool]:
        return lambda c: c.table == "Megatron-Bridge" and not c.experts and c.gpu.kind == gpu and c.precision == precision

    out = [
        Wanted(f"{gpu}-megatron-bridge-{precision}", (gpu,), ("megatron",), precision, source, of_dense(gpu, precision), (0,), False, alike=True)
        for gpu, precision in dense
    ]
    for name, gpus, precision, graph in experts:

        def member(c: Case, gpus: tuple[str, ...] = gpus, precision: str = precision, graph: bool = graph) -> bool:
            mine = c.table == "Megatron-Bridge" and c.experts and (not c.hybrid or gpus == ("h100",)) and c.gpu.kind in gpus
            return mine and (c.precision == "bf16") == (precision == "bf16") and c.run.software["whole_graph"] == graph

        out.append(
            Wanted(f"{name}-megatron-bridge-experts-{precision}" + "-graph" * graph, gpus, ("megatron",), precision, source, member, (0, 2), True,
                   graph or gpus != NEWER)
        )  # fmt: skip
    for name, gpus in (("b200", ("b200",)), ("blackwell", NEWER)):

        def hybrid(c: Case, gpus: tuple[str, ...] = gpus) -> bool:
            return c.table == "Megatron-Bridge" and c.hybrid and c.gpu.kind in gpus and c.precision != "bf16"

        out.append(Wanted(f"{name}-megatron-bridge-hybrid-mxfp8", gpus, ("megatron",), "mxfp8", source, hybrid, (0, 2), True, hybrid=True))
    return out


def wanted() -> list[Wanted]:
    """Return all settings."""
    torch = ("torchtitan", "ddp", "deepspeed")
    foundry = "mosaicml/llm-foundry, scripts/train/benchmarking"

    def mpt(platform: str, fp8: bool = False) -> Callable[[Case], bool]:
        return lambda c: c.table == "MPT" and c.run.platform == platform and (c.precision == "fp8") == fp8

    return [
        Wanted("a100-llm-foundry", ("a100", "a100-64gb", "a100-pcie"), torch, "bf16", foundry, mpt("a100_80gb")),
        Wanted("a100-40gb-llm-foundry", ("a100-40gb",), torch, "bf16", foundry, mpt("a100_40gb")),
        Wanted("h100-llm-foundry", ("h100", "h200"), torch, "bf16", foundry, mpt("h100_80gb"), usual=False),
        Wanted("h100-llm-foundry-fp8", ("h100", "h200"), torch, "fp8", foundry, mpt("h100_80gb", True), (0, 1), usual=False),
        Wanted("h100-500w-torchtitan", ("h100", "h200"), torch, "fp8", "pytorch/torchtitan, benchmarks", lambda c: c.table == "torchtitan", (0, 1)),
        Wanted("a100-megatron-2021", ("a100", "a100-40gb", "a100-64gb", "a100-pcie"), ("megatron",), "bf16",
               "Narayanan et al. 2021, table 1; Korthikanti et al. 2022, tables 3 to 5",
               lambda c: c.table in ("SC21", "sequence parallelism"), (0, 2)),
        Wanted("b200-megatron", ("b200",), ("megatron",), "bf16", "MooreThreads/SimuMax, docs/b200", lambda c: c.table == "B200", (0, 3)),
        *megatron_bridge(),
    ]  # fmt: skip


def toml(fitted: Sequence[Fitted]) -> str:
    """Return the catalog of settings."""
    lines = ["# Written by validation/calibrate.py, which says how: change that, not this.",
             "# error: mean absolute error of runs that were left out when the numbers were fitted (cross-validation)."]  # fmt: skip
    for one in fitted:
        w = one.wanted
        lines += [
            "", f'["{w.name}"]', f"gpus = {list(w.gpus)!r}".replace("'", '"'), f"dialects = {list(w.dialects)!r}".replace("'", '"'),
            f'precision = "{w.precision}"', *([f"experts = {str(w.experts).lower()}"] if w.experts is not None else []),
            *(["hybrid = true"] if w.hybrid else []),
            *(f"{name} = {number}" for name, number in zip(NAMES, w.numbers(one.place), strict=True)), f"rows = {len(one.runs)}",
            f"error = {round(one.error, 4)}", f'source = "{w.source}"', f"usual = {str(w.usual).lower()}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def fit_all(said: Sequence[Case]) -> list[Fitted]:
    """Return all settings fitted, and write the catalog; says what was found."""
    fitted = []
    for one in wanted():
        fitted.append(fit(one, said))
        numbers = ", ".join(f"{name} {number:.2f}" for name, number in zip(NAMES, one.numbers(fitted[-1].place), strict=True))
        print(f"{one.name}: {len(fitted[-1].runs)} runs, {numbers}, left out {fitted[-1].error:.1%}", flush=True)
    OUT.write_text(toml(fitted), encoding="utf-8")
    return fitted


if __name__ == "__main__":
    fit_all(cases()[0])
