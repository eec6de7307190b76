"""A scene of the walk as a file: its first drawing, or all of its drawings in a page of their own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.report.comparison.chart import Chart
from tokenwire.report.comparison.svg import svg
from tokenwire.report.drawn import check_ending, write_drawings
from tokenwire.report.page.rooms import drawings_of
from tokenwire.report.scenes import Walk

if TYPE_CHECKING:
    from tokenwire.journey import Journey


def write_scene(name: str, journey: Journey, path: str) -> None:
    """Write the drawings of a scene to a file, whole or not at all.

    Raises ``InputError`` for an ending that is not drawn, and for a scene with nothing to draw (a plan of too many ranks).
    """
    check_ending(path)
    walk = Walk(journey)
    drawn = drawings_of(name, walk, import_module(f"tokenwire.report.scenes.{name}").facts(walk))
    if not drawn:
        raise InputError(f"--plot {path}"[:120], rule=f"there is nothing to draw of this {name}: it is too large, or says nothing",
                         nearest="tokenwire explore")  # fmt: skip
    write_drawings(path, name, [(svg(one.what) if isinstance(one.what, Chart) else one.what, one.caption) for one in drawn])
