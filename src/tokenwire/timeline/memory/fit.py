"""What fits in the GPU's memory: by how much not, at which stage, and the smallest change of the plan that makes it fit.

What has to fit is what the allocator reserves (``reserved``), with the rows that the fullest rank of experts must be expected to get
(``skew``). Changes are tried in the order of what they cost a step (``changes.of_plan``), each really evaluated: the plan is resolved and
its memory predicted again; then two at once; then, from what came nearest, one more at a time until it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Any

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory.changes import Change, beyond, of_plan
from tokenwire.timeline.memory.part import MOMENTS
from tokenwire.timeline.memory.prediction import Memory, memory
from tokenwire.timeline.memory.skew import skews

RESERVE = 0.05
"""Share of the memory that is left for what torch's allocator does not hold: CUDA's context, buffers of NCCL (assumed)."""
HALVINGS = 12
"""How often the interval of skews is halved: to a 4,000th of it."""
MOST_PAIRS = 64
"""Pairs of changes that are tried."""


class Verdict(StrEnum):
    """Whether a plan fits; of experts, whether it does for every routing."""

    FITS = "fits"
    UNLESS_SKEWED = "fits unless routing is skewed"
    LIKELY_NOT = "likely not"


@dataclass(frozen=True)
class Tried:
    """A change, or several at once, that was tried.

    ``peak`` is the highest of a stage after it, ``reserved`` what has to fit then; None where the plan's rules refuse it.
    """

    settings: Mapping[str, Any]
    words: str
    peak: int | None
    reserved: int | None = None

    def fits(self, room: float) -> bool:
        """Return whether what is reserved is at most ``room`` bytes."""
        return self.reserved is not None and self.reserved <= room

    def lower_than(self, other: Tried | None) -> bool:
        """Return whether it reached less than another, or anything where there is none."""
        return self.peak is not None and (other is None or other.peak is None or self.peak < other.peak)


@dataclass(frozen=True)
class Fit:
    """Whether a plan fits: ``room`` is what the GPU's memory leaves, ``over`` by how much the ``stage`` exceeds it (negative: is free).

    ``reserved`` is what has to fit, with experts at the ``tail`` of even routing (a share above the mean). ``skew`` is the share above
    the mean from which on it does not fit any more, None where no routing does that.
    ``change`` is the smallest change that makes it fit, None where it fits already or nothing that was tried does; ``tried`` has
    every single change in the order of its cost; ``least`` is what came nearest where nothing fits, and ``beyond`` in
    words what is left then.
    """

    room: int
    stage: int
    over: int
    reserved: int = 0
    tail: float = 0.0
    skew: float | None = None
    change: Tried | None = None
    tried: tuple[Tried, ...] = ()
    least: Tried | None = None
    beyond: str = ""

    @property
    def fits(self) -> bool:
        """Return whether every stage fits, with even routing."""
        return self.over <= 0

    @property
    def verdict(self) -> Verdict:
        """Return whether it fits, and whether for every routing."""
        if not self.fits:
            return Verdict.LIKELY_NOT
        return Verdict.FITS if self.skew is None else Verdict.UNLESS_SKEWED


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
    room, worst = room_of(found, reserve), found.worst
    tail, most = skews(arch, plan)
    reserved = reserved_at(arch, plan, found, tail)
    over = reserved - room
    if over <= 0:
        return Fit(room, worst.stage, over, reserved, tail, _limit(arch, plan, found, room, tail, most))
    changes = tuple(of_plan(arch, plan))
    singles = tuple(_try(arch, plan, found, (change,)) for change in changes)
    least: Tried | None = None
    for one in _tried(arch, plan, found, changes, singles):
        if one.fits(room):
            return Fit(room, worst.stage, over, reserved, tail, None, one, singles)
        least = one if one.lower_than(least) else least
    return Fit(room, worst.stage, over, reserved, tail, None, None, singles, least, beyond(plan))


def room_of(found: Memory, reserve: float = RESERVE) -> int:
    """Return the bytes of the GPU's memory that torch's allocator can have."""
    return int(found.capacity * (1 - reserve))


def reserved_at(arch: Architecture, plan: Plan, found: Memory, skew: float) -> int:
    """Return the bytes that are reserved with experts that get ``skew`` more rows than the mean.

    Rows beyond the mean get blocks of their own, since their number changes from one micro-batch to the next: what they add at any
    moment is added to what is reserved (assumed; pytorch/torchtitan, issue 1789: 58.3 GiB in the first step of a plan, 73.3 in its tenth).
    """
    if not skew:
        return found.reserved
    skewed = memory(arch, plan, found.software, skew).stages
    grown = (max(new.at(moment) - old.at(moment) for moment in MOMENTS) for new, old in zip(skewed, found.stages, strict=True))
    return max(round(old.peak / found.in_use) + more for old, more in zip(found.stages, grown, strict=True))


def _limit(arch: Architecture, plan: Plan, found: Memory, room: int, tail: float, most: float) -> float | None:
    """Return the skew above which what is reserved exceeds ``room``, None where no routing reaches it."""
    if reserved_at(arch, plan, found, most) <= room:
        return None
    low, high = tail, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if reserved_at(arch, plan, found, middle) <= room else (low, middle)
    return low


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
        made = memory(arch, new, found.software)
        return Tried(settings, words, made.worst.peak, reserved_at(arch, new, made, skews(arch, new)[0]))
    except InputError:
        return Tried(settings, words, None)


def _said(key: str, value: Any) -> str:
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"{key} = {list(shown) if isinstance(shown, tuple) else shown}"
