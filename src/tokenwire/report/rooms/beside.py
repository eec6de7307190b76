"""Two journeys side by side, what differs first: their configuration, and the figures of every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenwire.errors import InputError
from tokenwire.units import format_quantity

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey


_FILES = {("text", "source"), ("tokenizer", "file"), ("model", "config"), ("cluster", "file")}


class Item(NamedTuple):
    """One figure of a journey: its room, what it is, how it is written, its value where it is a number."""

    room: str
    what: str
    text: str
    value: float | None


def configuration(journey: Journey) -> Iterator[Item]:
    """Yield every value of the journey file that says something."""
    for section, values in journey.config.model_dump(exclude_none=True).items():
        for key, value in values.items():
            number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
            # Of a file its name says enough, and where it lies on this machine is nobody's business.
            text = PurePath(value).name if (section, key) in _FILES else str(value)
            yield Item(f"[{section}]", key, text[:120], number)


def figures(journey: Journey) -> Iterator[Item]:
    """Yield the figures of the rooms in the order of the walk; rooms that the journey has no answer in are left out."""
    tokens, model, plan = journey.tokens(), journey.model(), journey.plan()
    yield _number("tokens", "tokens of the text", tokens.tokens, "tokens")
    yield _number("tokens", "tokens a word", tokens.fertility, "1")
    yield _number("model", "parameters", model.parameters.total, "1")
    yield _number("model", "layers", len(model.architecture.layers), "1")
    yield _number("model", "hidden size", model.architecture.hidden_size, "1")
    for name in ("world", "tp", "pp", "cp", "dp", "ep", "micro_batches"):
        yield _number("plan", name.replace("_", "-"), getattr(plan, name), "1")
    step = journey.step()
    yield _number("step", "calls of all stages", int(step["count"].sum()), "1")
    totals = journey.traffic().totals
    for name in ("sent_bytes", "nvlink_bytes", "network_bytes", "sent_bytes_per_gpu", "network_bytes_per_token"):
        yield _number("traffic", name.replace("_bytes", "").replace("_", " ") + ", a step", totals[name], "B")
    for tier in journey.traffic().per_tier.iter_rows(named=True):
        yield _number("links", f"busiest link of {tier['tier']}", tier["busiest_bytes"], "B")
    yield from _time(journey)
    for need in journey.needs():
        yield _number("needs", need.name, need.value, need.unit)


def _time(journey: Journey) -> Iterator[Item]:
    from tokenwire.report.rooms.time import timed

    try:
        step = timed(journey)
    except InputError:
        return
    yield _number("time", "a step", step.step_seconds, "s")
    yield _number("time", "exposed communication", step.exposed_communication_seconds, "s")
    yield _number("time", "bubble", step.bubble_seconds, "s")
    yield _number("time", "MFU", step.mfu, "%")


def _number(room: str, what: str, value: float, unit: str) -> Item:
    text = f"{value:,}" if unit == "1" and isinstance(value, int) else format_quantity(value, unit)
    return Item(room, what, text, float(value))


def compared(first: Journey, second: Journey, items: Any) -> pl.DataFrame:
    """Return ``items`` (``configuration`` or ``figures``) of two journeys: room, what, first, second, ratio, differs; what differs first.

    ``ratio`` is the second over the first, where both are numbers.
    """
    import polars as pl

    left, right = ({(one.room, one.what): one for one in items(journey)} for journey in (first, second))
    rows = []
    for key in dict.fromkeys([*left, *right]):
        one, two = left.get(key), right.get(key)
        ratio = two.value / one.value if one and two and one.value and two.value is not None else None
        rows.append((*key, one.text if one else "-", two.text if two else "-", ratio, (one and one.text) != (two and two.text)))
    schema = {"room": pl.String, "what": pl.String, "first": pl.String, "second": pl.String, "ratio": pl.Float64, "differs": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("differs", descending=True, maintain_order=True)
