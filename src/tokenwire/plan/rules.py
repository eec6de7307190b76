"""Checking a plan: the first rule that is broken, said in one line with the nearest value that really works.

A framework gives a function that yields ``Broken`` rules for a ``Choice`` (plan, training and GPUs together). The nearest
value is found by trying: the values of the named key, nearest first, until every rule holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from tokenwire.errors import InputError
from tokenwire.plan.base import PlanConfig
from tokenwire.plan.training import TrainingConfig

MOST_GPUS = 2**24
"""The largest number of GPUs that a plan is made for."""


@dataclass(frozen=True)
class Choice:
    """What is checked together: the sections ``[plan]`` and ``[training]``, and the number of GPUs."""

    config: PlanConfig
    training: TrainingConfig
    gpus: int

    def value(self, section: str, key: str) -> object:
        """Return the value of ``key`` in ``plan``, ``training`` or ``cluster`` (``gpus``)."""
        if section == "cluster":
            return self.gpus
        return getattr(self.config if section == "plan" else self.training, key)

    def changed(self, section: str, key: str, value: object) -> Choice:
        """Return the choice with one value changed."""
        if section == "cluster":
            assert isinstance(value, int)
            return replace(self, gpus=value)
        if section == "plan":
            return replace(self, config=self.config.model_copy(update={key: value}))
        return replace(self, training=self.training.model_copy(update={key: value}))


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold: whose value it is, the rule in words, and other keys that may mend it, best first."""

    section: str
    key: str
    rule: str
    mend: tuple[tuple[str, str], ...] = ()


Rules = Callable[[Choice], Iterable[Broken]]


def hold(choice: Choice, rules: Rules) -> None:
    """Return if every rule holds, else raise ``InputError`` for the first, with the nearest value that works."""
    if not 1 <= choice.gpus <= MOST_GPUS:
        raise InputError(f"gpus = {choice.gpus:,}", where="[cluster]", rule=f"must be from 1 to {MOST_GPUS:,}",
                         nearest=f"gpus = {min(max(choice.gpus, 1), MOST_GPUS)}")  # fmt: skip
    broken = next(iter(rules(choice)), None)
    if broken is None:
        return
    value = choice.value(broken.section, broken.key)
    shown = f"{broken.key} = {str(value).lower() if isinstance(value, bool) else value}"
    raise InputError(shown, where=f"[{broken.section}]", rule=broken.rule, nearest=_nearest(choice, rules, broken))


def _nearest(choice: Choice, rules: Rules, broken: Broken) -> str:
    # A value for which every rule holds; where another rule is broken besides, one for which at least this rule holds.
    partly = ""
    for section, key in ((broken.section, broken.key), *broken.mend):
        for value in _candidates(choice, section, key):
            left = list(rules(choice.changed(section, key, value)))
            shown = f"{key} = {str(value).lower() if isinstance(value, bool) else value}"
            if section != broken.section:
                shown = f"[{section}] {shown}"
            if not left:
                return shown
            if not partly and all(_kind(other) != _kind(broken) for other in left):
                partly = shown
    return partly


def _kind(broken: Broken) -> str:
    return broken.section + "".join(c for c in broken.rule if not c.isdigit())


def _candidates(choice: Choice, section: str, key: str) -> Iterator[object]:
    value = choice.value(section, key)
    # Nearest first, the smaller of two that are equally near: it asks for less. Large values by their likely divisors.
    if isinstance(value, bool):
        yield not value
        return
    if value is None:
        # Not given: a whole number where the key takes one.
        kind = str(type(choice.config).model_fields[key].annotation) if section == "plan" else ""
        yield from range(1, 257) if "int" in kind and "tuple" not in kind else ()
        return
    if not isinstance(value, int):
        return
    near = chain.from_iterable((value - step, value + step) for step in range(1, 1025))
    powers = sorted((2**n for n in range(25)), key=lambda power: abs(power - value))
    for candidate in chain(near, powers):
        if 1 <= candidate <= MOST_GPUS and candidate != value:
            yield candidate
