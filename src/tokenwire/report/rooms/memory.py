"""Memory to read: what stands at the peak of each stage, when that is, whether it fits in the GPU, and what would make it fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenwire.config import read_section
from tokenwire.errors import InputError, unknown
from tokenwire.report.terminal import bar, console, folded, table
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    from tokenwire.journey import Journey
    from tokenwire.report.comparison.chart import Chart
    from tokenwire.timeline.memory import Fit, Memory

KINDS = ("weights", "gradients", "optimizer", "activations", "head", "buffers", "workspaces")
SOME = 12
"""Stages that are printed; of more, the first, the last and the worst."""


@dataclass(frozen=True)
class Found:
    """A journey's memory and whether it fits.

    ``gpu`` is the GPU's name, empty where the memory was given and no GPU was; ``assumed`` says that nothing named the GPU.
    ``notes`` name what of the model is not counted, or counts as something else.
    """

    memory: Memory
    fit: Fit
    gpu: str
    assumed: bool
    notes: tuple[str, ...] = ()

    @property
    def whose(self) -> str:
        """Return whose memory it must fit in, in words."""
        if not self.gpu:
            return "GiB given"
        return f"GiB of a {self.gpu}" + (" (no GPU was given: that of the default cluster)" if self.assumed else "")


    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return the defaults that were taken: the framework's, and the GPU's generation where only its memory is given."""
        software = self.memory.software
        if self.gpu or software.gpu_capability is not None:
            return self.memory.assumptions
        capability = f"compute capability {software.facts.capability}, by which libraries size their workspaces: give --option gpu_capability=7 for another"
        return (*self.memory.assumptions, capability)


def found(journey: Journey, options: Sequence[str] | None, gpu: str | None, reserve: float) -> Found:
    """Return the memory of a journey. ``options`` are texts ``KEY=VALUE`` of ``Software``; raises ``InputError`` for what these cannot be."""
    from tokenwire.plan.described import unpredicted
    from tokenwire.timeline.memory import Software, fit, memory, software_on

    values = dict(_option(text) for text in options or ())
    asked = gpu or str(values.get("gpu") or "")
    software = read_section(Software, {**values, "gpu": asked or journey.config.cluster.facts.gpu}, where="--option")
    if not asked:  # what the cluster says of its GPU is not said of another
        software = software_on(journey.config.cluster.facts).model_copy(update={n: getattr(software, n) for n in software.model_fields_set})
    gpu, assumed = _named(journey, asked, sized="gpu_memory" in values)
    arch, plan = journey.model().architecture, journey.plan()
    result = memory(arch, plan, software)
    return Found(result, fit(arch, plan, result, reserve=reserve), gpu, assumed, unpredicted(arch))


def _named(journey: Journey, asked: str, *, sized: bool) -> tuple[str, bool]:
    """Return the GPU's name and whether nothing gave it; no name where only its memory is given (``sized``: by an option)."""
    cluster = journey.config.cluster
    given = asked or cluster.gpu or ""
    if given or sized or cluster.gpu_memory is not None:
        return given, False
    return cluster.facts.gpu or "H100", not (cluster.facts.gpu and cluster.model_fields_set & {"preset", "file"})


def _option(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise InputError(f"--option {text[:60]}", rule="must be KEY=VALUE", nearest="--option attention_backend=flash")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value.strip()
    # A version is no number: 2.10 is not 2.1.
    return key.strip(), value.strip() if key.strip() in ("torch", "transformer_engine") else parsed


def facts(one: Found) -> dict[str, Any]:
    """Return the memory as plain facts; sizes in bytes."""
    stages = one.memory.stages
    return {
        "peak_memory_bytes_by_stage": [stage.peak for stage in stages],
        "between_steps_bytes_by_stage": [stage.between for stage in stages],
        "gpu": one.gpu or None, "assumptions": list(one.assumptions), "notes": list(one.notes), "gpu_memory_bytes": one.memory.capacity, "usable_bytes": one.fit.room, "fits": one.fit.fits,
        "verdict": one.fit.verdict, "reserved_bytes": one.fit.reserved, "allocated_share_of_reserved": one.memory.in_use,
        "routing_tail": one.fit.tail, "routing_skew_limit": one.fit.skew,
        "over_bytes": max(one.fit.over, 0), "free_bytes": max(-one.fit.over, 0), "worst_stage": one.fit.stage,
        "change": _tried(one.fit.change) if one.fit.change else None,
        "least": _tried(one.fit.least) if one.fit.least else None,
        "tried": [_tried(each) for each in one.fit.tried],
        "stages": [
            {"stage": stage.stage, "peak_bytes": stage.peak, "moment": stage.moment, "between_steps_bytes": stage.between,
             "by_kind": {kind: stage.of(kind) for kind in KINDS},
             "parts": [{"kind": p.kind, "what": p.what, "bytes": p.size, "moments": p.moments, "formula": p.formula, "values": p.values,
                        "source": p.source} for p in stage.parts]}
            for stage in stages
        ],
    }  # fmt: skip


def _tried(each: Any) -> dict[str, Any]:
    return {"settings": dict(each.settings), "peak_bytes": each.peak}


def show(one: Found) -> None:
    """Print the stages, what stands at the worst one's peak, and whether it fits."""
    stages = one.memory.stages
    shown = stages if len(stages) <= SOME else [stages[i] for i in sorted({0, 1, len(stages) - 1, one.fit.stage})]
    size, unit = (_gib, "GiB") if one.memory.worst.peak >= 2**30 else (_mib, "MiB")
    rows = [(stage.stage, size(stage.peak), stage.moment, *(size(stage.of(kind)) for kind in KINDS[:5]),
             size(stage.of("buffers") + stage.of("workspaces"))) for stage in shown]  # fmt: skip
    columns = ("stage", "peak", "at", "weights", "grads", "optim.", "activ.", "head", "other")
    print_ = console().print
    print_(table(rows, columns, right=[c for c in columns if c != "at"], title=f"{unit} of a rank at its peak, by stage"))
    worst = one.memory.worst
    print_(folded(f"stage {worst.stage} is highest {_moments()[worst.moment]}; between steps it holds {size(worst.between)} {unit}"))
    print_()
    share = worst.peak / one.memory.capacity
    print_(folded(f"{bar(min(share, 1.0), 40)} {share:.1%} of the {_gib(one.memory.capacity)} {one.whose}"))
    for line in verdict(one.fit):
        print_(folded(line))
    for line in one.assumptions:
        print_(folded(f"assumed: {line}"))
    for line in one.notes:
        print_(folded(f"note: {line}"))


def verdict(fit: Fit) -> list[str]:
    """Return in words whether it fits, by how much not, and what would help.

    >>> from tokenwire.timeline.memory import Fit
    >>> verdict(Fit(80 * 2**30, 0, -(2**30), 79 * 2**30))
    ['fits: 1.00 GiB are free of the 80.00 GiB that can be used; 79.00 GiB reserved, fragments included']
    """
    held = f"{_gib(fit.reserved)} GiB reserved, fragments included" + (f", experts {fit.tail:.1%} above the mean" if fit.tail else "")
    if fit.fits:
        words = "fits" if fit.skew is None else f"fits unless routing is skewed: up to {fit.skew:.0%} more rows of experts than the mean fit"
        return [f"{words}: {_gib(-fit.over)} GiB are free of the {_gib(fit.room)} GiB that can be used; {held}"]
    lines = [f"likely does not fit: stage {fit.stage} needs {_gib(fit.over)} GiB more than the {_gib(fit.room)} GiB that can be used; {held}"]
    if fit.change and fit.change.peak is not None:
        lines.append(f"the smallest change that fits: {fit.change.words} (peak {_gib(fit.change.peak)} GiB)")
    else:
        lines.append(f"nothing that was tried makes it fit: {fit.beyond}")
        if fit.least and fit.least.peak is not None:
            lines.append(f"the least that was reached: {_gib(fit.least.peak)} GiB with {fit.least.words}")
    lines += [f"  tried: {one.words}: peak {_gib(one.peak)} GiB" for one in fit.tried if one.peak is not None]
    return lines


def derivations(one: Found, kind: str) -> list[str]:
    """Return the derivation of each part of a kind (or all) at the worst stage's peak. Raises ``InputError`` for a kind that is none."""
    if kind not in (*KINDS, "all"):
        raise unknown("kind of part", kind[:40], [*KINDS, "all"], where="--explain")
    worst = one.memory.worst
    chosen = [p for p in worst.parts if p.size and kind in (p.kind, "all")]
    lines = [f"stage {worst.stage}, highest {_moments()[worst.moment]}"]
    for p in chosen:
        when = "" if worst.moment in p.moments else f"; not at the peak, but {_moments()[p.moments[0]]}"
        lines.append(f"{p.what}: {p.formula} = {p.values} = {format_bytes(p.size, binary=True)} ({p.source}{when})")
    return lines


def chart(one: Found) -> Chart:
    """Return the kinds of each stage's peak as stacked bars, in GiB."""
    from tokenwire.report.comparison.chart import Chart, Series

    stages = one.memory.stages
    series = [Series(kind, tuple(stage.of(kind) / 2**30 for stage in stages)) for kind in KINDS]
    title = f"Memory of a rank at its peak, of {_gib(one.memory.capacity)} {one.whose}"
    return Chart(title, "stacked", "pipeline stage", "GiB", tuple(str(stage.stage) for stage in stages), tuple(series), log_y=False)


def _moments() -> dict[str, str]:
    from tokenwire.timeline.memory.part import MOMENTS

    return {str(key): words for key, words in MOMENTS.items()}


def _gib(size: float) -> str:
    return f"{size / 2**30:,.2f}"


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f}"
