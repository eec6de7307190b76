"""The names that pages of the book may use in ``{{ … }}`` and in their programs."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from tokenwire.collectives import cost
from tokenwire.figures import Figure
from tokenwire.journey import Journey
from tokenwire.journey import scale as journey_at
from tokenwire.report.comparison.chart import Chart, Series
from tokenwire.report.comparison.svg import svg
from tokenwire.report.page import Drawn, drawings, sections
from tokenwire.report.scenes import Walk
from tokenwire.report.scenes import facts as scene_facts
from tokenwire.units import (
    format_bytes,
    format_memory_rate,
    format_quantity,
    format_rate,
    format_seconds,
)


@cache
def dante(*overrides: str) -> Journey:
    """Return the built-in walk, with overrides as ``--set`` takes them."""
    return Journey.read(None, overrides)


@cache
def at_scale(name: str) -> Journey:
    """Return the journey of a real model (8b, 70b, 405b)."""
    return journey_at(name)


@cache
def scene(name: str, *overrides: str) -> dict[str, Any]:
    """Return the facts of a scene of the built-in walk, with overrides as ``--set`` takes them."""
    found: dict[str, Any] = scene_facts(Walk(dante(*overrides)), [name])["scenes"][name]
    return found


@cache
def _rooms() -> dict[str, tuple[Drawn, ...]]:
    return {room.name: room.drawings for room in sections(Walk(dante()))}


def room(name: str, number: int = 0) -> str:
    """Return a drawing that the report of the built-in walk has in a room, with its caption."""
    drawn = _rooms()[name][number]
    return picture(drawn.what, drawn.caption, paper=drawn.paper)


def drawing(name: str, number: int = 0) -> str:
    """Return a drawing that the report of the built-in walk has in a room, as SVG alone."""
    what = _rooms()[name][number].what
    return svg(what) if isinstance(what, Chart) else what


def picture(what: str | Chart, caption: str, *, paper: bool = False) -> str:
    """Return a drawing or a chart as a figure of the page, on one line, as Markdown takes it; ``paper``: it is drawn on white."""
    chart = paper or isinstance(what, Chart)
    inner = svg(what) if isinstance(what, Chart) else what
    joined = " ".join(line.strip() for line in inner.splitlines())
    return f'<figure class="tw{" tw-chart" if chart else ""}" tabindex="0">{joined}<figcaption>{escape(caption)}</figcaption></figure>'


def row(journey: Journey, *, stage: int = 0, **wanted: str) -> dict[str, Any]:
    """Return the first row of a step whose columns have these values (``op="all_gather"``, ``group="tp"`` ...)."""
    for found in journey.step().iter_rows(named=True):
        if found["stage"] == stage and all(found[key] == value for key, value in wanted.items()):
            return dict(found)
    raise LookupError(f"no row of the step has {wanted}")


def need(journey: Journey, begins: str) -> Figure:
    """Return the first requirement whose name begins so."""
    return next(figure for figure in journey.needs() if figure.name.startswith(begins))


def derive(figure: Figure) -> str:
    """Return a figure with its formula, the values put in, and its source, as a box of the page."""
    lines = "".join(
        f"<p><span>{escape(name)}</span> {escape(said)}</p>"
        for name, said in (("formula", figure.formula), ("with values", figure.values), ("gives", figure.text), ("because", figure.because),
                           ("source", figure.source)) if said
    )  # fmt: skip
    return f'<div class="tw-derive"><p><b>{escape(figure.name)}</b></p>{lines}</div>'


def percent(share: float, digits: int = 1) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.{digits}f} %"


def binary(value: float) -> str:
    """Return bytes in KiB, MiB, GiB."""
    return format_bytes(value, binary=True)


def flops(value: float) -> str:
    """Return FLOPs with their prefix."""
    return format_quantity(value, "FLOP")


def names() -> dict[str, Any]:
    """Return the names that a page begins with; each page has its own copy."""
    return {
        "dante": dante, "at_scale": at_scale, "scene": scene, "room": room, "picture": picture, "row": row, "need": need, "derive": derive,
        "cost": cost, "percent": percent, "size": format_bytes, "binary": binary, "rate": format_rate, "memory_rate": format_memory_rate,
        "seconds": format_seconds, "flops": flops, "draw": drawings, "Chart": Chart, "Series": Series, "Walk": Walk,
    }  # fmt: skip
