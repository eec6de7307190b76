"""What users write: the base of every section of a journey file, and field types that take units.

Each room owns the section it reads (``text.TextConfig``, ``plan.PlanConfig`` ...); ``journey`` only strings them
together. Sections are frozen; unknown keys are errors that name the nearest known key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tokenwire.errors import InputError, closest
from tokenwire.units import parse_bytes, parse_flops, parse_rate, parse_seconds


def _quantity(parse: Any, kind: str, example: str) -> Any:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value)
        raise ValueError(f"a {kind} needs a unit; nearest that works: {example!r}")

    return BeforeValidator(read)


Size = Annotated[int, _quantity(parse_bytes, "size", "64 MiB"), Field(ge=0)]
"""Bytes, written ``"64 MiB"``."""
Rate = Annotated[float, _quantity(parse_rate, "rate", "400 Gb/s"), Field(gt=0)]
"""Bytes a second, written ``"400 Gb/s"``."""
Time = Annotated[float, _quantity(parse_seconds, "time", "3 us"), Field(ge=0)]
"""Seconds, written ``"3 us"``."""
ComputeRate = Annotated[float, _quantity(parse_flops, "compute rate", "989 TFLOP/s"), Field(gt=0)]
"""FLOP/s, written ``"989 TFLOP/s"``."""
Positive = Annotated[int, Field(ge=1, le=2**53)]
"""A whole number of at least 1."""


class Section(BaseModel):
    """The base of a section: frozen, no unknown keys, defaults for everything."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)


S = TypeVar("S", bound=BaseModel)


def read_section(model: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """Return ``values`` as a ``model``, or raise one clear line about the first thing that is wrong.

    >>> class Demo(Section):
    ...     tp: Positive = 1
    >>> read_section(Demo, {"tp": 4}, where="[plan]").tp
    4
    >>> read_section(Demo, {"tq": 4}, where="[plan]")
    Traceback (most recent call last):
        ...
    tokenwire.errors.InputError: [plan] unknown key 'tq': known are tp; nearest that works: tp
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{values!r}", where=where, rule="must be a table of keys and values")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise _first_line(error, model, where) from None


def _first_line(error: ValidationError, model: type[BaseModel], where: str) -> InputError:
    problem = error.errors()[0]
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = list(_names(model))
        key = str(problem["loc"][-1])
        return InputError(
            f"unknown key {key!r}", where=where, rule=f"known are {_some(known)}", nearest=closest(key, known)
        )
    given = problem.get("input")
    shown = repr(given) if not isinstance(given, (dict, list)) else type(given).__name__
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message.replace("Input should be", "must be")
    # A rule of the whole section names its keys itself.
    whole = "" if isinstance(given, dict) else shown[:80]
    return InputError(f"{path} = {shown[:80]}" if path else whole, where=where, rule=message)


def _some(known: list[str], most: int = 16) -> str:
    more = len(known) - most
    return ", ".join(known[:most]) + (f" and {more} more" if more > 0 else "")


def _names(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
