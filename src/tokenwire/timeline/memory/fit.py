"""What fits in the GPU's memory: by how much not, at which stage, and the smallest change of the plan that makes it fit.

Changes are tried in the order of what they cost a step (``changes.of_plan``), each really evaluated: the plan is resolved and
its memory predicted again; then two at once; then, from what came nearest, one more at a time until it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory.changes import Change, beyond, of_plan
from tokenwire.timeline.memory.prediction import Memory, memory

RESERVE = 0.05
"""Share of the memory that is left for what is not predicted: CUDA's context, buffers of NCCL, fragments of the allocator (assumed)."""
MOST_PAIRS = 64
"""Pairs of changes that are tried."""


@dataclass(frozen=True)
class Tried:
    """A change, or several at once, that was tried: the highest ``peak`` of a stage after it, None where the plan's rules refuse it."""

    settings: Mapping[str, Any]
    words: str
    peak: int | None

    def fits(self, room: float) -> bool:
        """Return whether the peak is at most ``room`` bytes."""
        return self.peak is not None and self.peak <= room

    def lower_than(self, other: Tried | None) -> bool:
        """Return whether it reached less than another, or anything where there is none."""
        return self.peak is not None and (other is None or other.peak is None or self.peak < other.peak)


@dataclass(frozen=True)
class Fit:
    """Whether a plan fits: ``room`` is what the GPU's memory leaves, ``over`` by how much the ``stage`` exceeds it (negative: is free).

    ``change`` is the smallest change that makes it fit, None where it fits already or nothing that was tried does; ``tried`` has
    every single change in the order of its cost; ``least`` is what came nearest where nothing fits, and ``beyond`` in
    words what is left then.
    """

    room: int
    stage: int
    over: int
    change: Tried | None = None
    tried: tuple[Tried, ...] = ()
    least: Tried | None = None
    beyond: str = ""

    @property
    def fits(self) -> bool:
        """Return whether every stage fits."""
        return self.over <= 0


def fit(arch: Architecture, plan: Plan, found: Memory, *, reserve: float = RESERVE) -> Fit:
    """Return whether ``found``, the memory of ``plan``, fits in its GPU, and what makes it fit.

    ``reserve`` is the share of the memory that must stay free. Raises ``InputError`` for a share below 0 or from 1 on.

    >>> from tokenwire.model import preset
    >>> arch = preset("llama-3.1-8b")
    >>> plan = resolve(read_plan({"tp": 2}), TrainingConfig(sequence_length=4096, global_batch=64), arch, 16)
    >>> result = fit(arch, plan, memory(arch, plan))
    >>> result.fits, result.change.words
    (False, 'use_distributed_optimizer = true')
    """
    if not 0 <= reserve < 1:
        raise InputError(f"reserve {reserve:.0%}", rule="must be at least 0% and less than 100%", nearest=f"{RESERVE:.0%}")
    room, worst = int(found.capacity * (1 - reserve)), found.worst
    over = worst.peak - room
    if over <= 0:
        return Fit(room, worst.stage, over)
    changes = tuple(of_plan(arch, plan))
    singles = tuple(_try(arch, plan, found, (change,)) for change in changes)
    least: Tried | None = None
    for one in _tried(arch, plan, found, changes, singles):
        if one.fits(room):
            return Fit(room, worst.stage, over, one, singles)
        least = one if one.lower_than(least) else least
    return Fit(room, worst.stage, over, None, singles, least, beyond(plan))


def _tried(
    arch: Architecture, plan: Plan, found: Memory, changes: tuple[Change, ...], singles: tuple[Tried, ...]
) -> Iterator[Tried]:
    yield from singles
    helping = [(c, one) for c, one in zip(changes, singles, strict=True) if one.lower_than(Tried({}, "", found.worst.peak))]
    if not helping:
        return
    helps = [change for change, _ in helping]
    alone, change = min(((one, change) for change, one in helping), key=lambda each: each[0].peak or 0)
    least, taken = alone, tuple[Change, ...]((change,))
    for i, j in sorted(combinations(range(len(helps)), 2), key=sum)[:MOST_PAIRS]:
        if _apart(helps[i], helps[j]):
            one = _try(arch, plan, found, (helps[i], helps[j]))
            yield one
            least, taken = (one, (helps[i], helps[j])) if one.lower_than(least) else (least, taken)
    yield from _further(arch, plan, found, helps, least, taken)


def _apart(one: Change, other: Change) -> bool:
    return not set(one.settings) & set(other.settings)


def _further(
    arch: Architecture, plan: Plan, found: Memory, helps: list[Change], least: Tried, taken: tuple[Change, ...]
) -> Iterator[Tried]:
    """Yield, from the least that was reached, each change added to it, cheapest first; then the same from the least of those."""
    more = [(_try(arch, plan, found, (*taken, change)), (*taken, change)) for change in helps]
    yield from (one for one, _ in more)
    if lower := [each for each in more if each[0].lower_than(least)]:
        yield from _further(arch, plan, found, helps, *min(lower, key=lambda each: each[0].peak or 0))


def _try(arch: Architecture, plan: Plan, found: Memory, changes: tuple[Change, ...]) -> Tried:
    settings = {key: value for change in changes for key, value in change.settings.items()}
    # Of changes of the same option the later, which is the stronger, stands.
    words = ", ".join(_said(key, value) for key, value in settings.items())
    training = {key.removeprefix("training."): value for key, value in settings.items() if key.startswith("training.")}
    options = {key: value for key, value in settings.items() if not key.startswith("training.")}
    try:
        config = read_plan({**plan.config.model_dump(), **options})
        new = resolve(config, TrainingConfig(**{**plan.training.model_dump(), **training}), arch, plan.world)
        peak = memory(arch, new, found.software).worst.peak
    except InputError:
        peak = None
    return Tried(settings, words, peak)


def _said(key: str, value: Any) -> str:
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"{key} = {list(shown) if isinstance(shown, tuple) else shown}"
