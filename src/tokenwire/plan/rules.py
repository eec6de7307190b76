"""Checking a plan: the first rule that is broken, said in one line with the nearest value that really works.

A framework gives a function that yields ``Broken`` rules for a ``Choice`` (plan, training and GPUs together). The nearest
value is found by trying: the values of the named key, nearest first, until every rule holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal, get_args, get_origin

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
    """A rule that does not hold: whose value it is, the rule in words, and other keys that may mend it, best first.

    ``values`` are tried for the key before those near to its own.
    """

    section: str
    key: str
    rule: str
    mend: tuple[tuple[str, str], ...] = ()
    values: tuple[object, ...] = ()


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
    raise InputError(_shown(broken.key, value), where=f"[{broken.section}]", rule=broken.rule, nearest=_nearest(choice, rules, broken))


def _nearest(choice: Choice, rules: Rules, broken: Broken) -> str:
    # A value for which every rule holds; else one for which at least this rule holds, best with a next rule that one more value mends.
    own = (broken.section, broken.key)
    # The first value that leaves each choice of rules broken.
    partly: dict[str, tuple[str, Choice, Broken]] = {}
    for shown, changed in _changes(choice, broken):
        left = list(rules(changed))
        if not left:
            return shown
        if all(_kind(other) != _kind(broken) for other in left):
            partly.setdefault(" ".join(map(_kind, left)), (shown, changed, left[0]))
    for shown, changed, next_one in islice(partly.values(), MOST_TRIED):
        further = (other for _, other in _changes(changed, next_one, NEAR) if other.value(*own) == changed.value(*own))
        if any(not any(rules(other)) for other in further):
            return shown
    return next(iter(partly.values()))[0] if partly else ""


MOST_TRIED, NEAR = 6, 32
"""Choices of rules left broken, and how far from its own a value is sought, where two values have to change."""


def _changes(choice: Choice, broken: Broken, reach: int = 1024) -> Iterator[tuple[str, Choice]]:
    """Yield choices with one value changed, and that value in words: those that a broken rule names, nearest first."""
    own = (broken.section, broken.key)
    tried = [(own, broken.values), *((pair, _candidates(choice, *pair, reach)) for pair in (own, *broken.mend)), (own, _words(choice, *own))]
    for (section, key), values in tried:
        for value in values:
            shown = _shown(key, value)
            yield shown if section == broken.section else f"[{section}] {shown}", choice.changed(section, key, value)


def _shown(key: str, value: object) -> str:
    # As it stands in the file of a journey.
    if value is None:
        return f"no {key}"
    if isinstance(value, bool):
        return f"{key} = {str(value).lower()}"
    if isinstance(value, (tuple, list)):
        return f"{key} = [{', '.join(_shown('', one).removeprefix(' = ') for one in value)}]"
    return f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"


_NUMBERS = str.maketrans("", "", "0123456789,·")


def _kind(broken: Broken) -> str:
    return broken.section + broken.rule.translate(_NUMBERS)


def _candidates(choice: Choice, section: str, key: str, reach: int) -> Iterator[object]:
    value = choice.value(section, key)
    # Nearest first, the smaller of two that are equally near: it asks for less. Large values by their likely divisors.
    if isinstance(value, bool):
        yield not value
        return
    if value is None:
        # Not given: a whole number or a word, where the key takes one.
        kind = str(type(choice.config).model_fields[key].annotation) if section == "plan" else ""
        yield from range(1, 257) if "int" in kind and "tuple" not in kind else _words(choice, section, key)
        return
    if not isinstance(value, int):
        return
    near = chain.from_iterable((value - step, value + step) for step in range(1, reach + 1))
    powers = sorted((2**n for n in range(25)), key=lambda power: abs(power - value))
    for candidate in chain(near, powers):
        if 1 <= candidate <= MOST_GPUS and candidate != value:
            yield candidate


def _words(choice: Choice, section: str, key: str) -> Iterator[object]:
    # The other words that a key may be, last: another value or key that works asks for less.
    if section == "plan":
        value, kind = choice.value(section, key), type(choice.config).model_fields[key].annotation
        yield from (word for word in _literals(kind) if word != value)


def _literals(kind: object) -> tuple[object, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for part in get_args(kind) for word in _literals(part))


def divides_gpus(choice: Choice) -> Iterator[Broken]:
    """Yield the rule that tensor, pipeline and context parallelism together must divide the GPUs."""
    config = choice.config
    sizes = {"pp": config.pp, "tp": config.tp, "cp": config.cp}
    model = config.tp * config.pp * config.cp
    if choice.gpus % model:
        largest = max(sizes, key=lambda name: sizes[name])
        yield Broken("plan", largest, f"tp·pp·cp = {config.tp}·{config.pp}·{config.cp} = {model:,} must divide the "
                     f"{choice.gpus:,} GPUs", (("plan", "tp"), ("plan", "pp"), ("plan", "cp"), ("cluster", "gpus")))  # fmt: skip
