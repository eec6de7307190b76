"""What users write: the base of every section of a journey file, and field types that take units.

Each room owns the section it reads (``text.TextConfig``, ``plan.PlanConfig`` ...); ``journey`` only strings them
together. Sections are frozen; unknown keys are errors that name the nearest known key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from tokenwire.errors import InputError, closest
from tokenwire.units import parse_bytes, parse_flops, parse_memory, parse_rate, parse_seconds


def _quantity(parse: Any, kind: str, example: str) -> Any:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value)
        raise ValueError(f"a {kind} needs a unit; nearest that works: {example!r}")

    return BeforeValidator(read)


Size = Annotated[int, _quantity(parse_bytes, "size", "64 MiB"), Field(ge=0)]
"""Bytes, written ``"64 MiB"``."""
MemorySize = Annotated[int, BeforeValidator(lambda value: value if isinstance(value, bool) else parse_memory(value)), Field(gt=0, le=2**53)]
"""Bytes of a memory, as torch and nvidia-smi print it: ``"31.74 GiB"``, or a bare number of bytes."""
Rate = Annotated[float, _quantity(parse_rate, "rate", "400 Gb/s"), Field(gt=0)]
"""Bytes a second, written ``"400 Gb/s"``."""
Time = Annotated[float, _quantity(parse_seconds, "time", "3 us"), Field(ge=0)]
"""Seconds, written ``"3 us"``."""
ComputeRate = Annotated[float, _quantity(parse_flops, "compute rate", "989 TFLOP/s"), Field(gt=0)]
"""FLOP/s, written ``"989 TFLOP/s"``."""
Positive = Annotated[int, Field(ge=1, le=2**53)]
"""A whole number of at least 1."""


def _kinds(annotation: Any) -> set[Any]:
    """Return the types that a field takes, unions and annotations taken apart."""
    origin = get_origin(annotation)
    if origin is Literal:
        return {type(value) for value in get_args(annotation)}
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return {kind for part in get_args(annotation) for kind in _kinds(part)}
    return {origin or annotation}


class Section(BaseModel):
    """The base of a section: frozen, no unknown keys, defaults for everything."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic reads true as 1; in a journey file that is a slip.
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("must be a number, not true or false")
        return value


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
    # Of a value that may be of several kinds, the kind that got furthest is the one that was meant.
    problems = [one for one in error.errors() if one["loc"][:1] == error.errors()[0]["loc"][:1]]
    problem = max(problems, key=lambda one: len(one["loc"]))
    path = ".".join(str(part) for part in problem["loc"] if not _is_kind(part))
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


def _is_kind(part: str | int) -> bool:
    # pydantic names the members of a union on the way to a value.
    return isinstance(part, str) and (part in ("str", "int", "float", "bool") or "[" in part)


def _some(known: list[str], most: int = 16) -> str:
    more = len(known) - most
    return ", ".join(known[:most]) + (f" and {more} more" if more > 0 else "")


def _names(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
