"""Which scenes there are, in which order, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from tokenwire.errors import unknown
from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import console

SCENES: dict[str, str] = {
    "verse": "The verse",
    "words": "Its words",
    "tokens": "Its tokens",
    "vector": "The vector",
    "model": "The model",
    "plan": "Who holds what",
    "step": "What is said in a step",
    "traffic": "Who talks to whom",
    "links": "The load on the links",
    "packet": "One packet",
    "needs": "What the network must offer",
}
"""Scene by name, with its title. Each is the module of that name, with ``facts(walk)`` and ``picture(facts)``."""


def chosen(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the scenes asked for in the order of the walk; none asked for means all."""
    wanted = [part.strip() for name in names or [] for part in name.split(",")]
    for name in wanted:
        if name not in SCENES:
            raise unknown("scene", name, SCENES, where="--scene")
    return tuple(name for name in SCENES if not wanted or name in wanted)


def facts(walk: Walk, names: Sequence[str]) -> dict[str, Any]:
    """Return the facts of the scenes, by name, and what a careful reader should know (``notes``)."""
    scenes = {name: _module(name).facts(walk) for name in names}
    return {"notes": list(walk.notes()), "scenes": scenes}


def show(walk: Walk, names: Sequence[str]) -> None:
    """Draw the scenes one after the other."""
    out = console()
    # All facts first: where one of them cannot be had, nothing is drawn.
    scenes = [(name, _module(name).facts(walk)) for name in names]
    for note in walk.notes():
        out.print(f"note: {note}", style="yellow")
    for name, shown in scenes:
        number = list(SCENES).index(name) + 1
        out.print()
        out.rule(f" {number}. {SCENES[name]} ", style="bold", align="left", characters="─")
        for part in _module(name).picture(shown):
            out.print(part)


def capture(walk: Walk, path: str) -> None:
    """Write all packets of the message that carries the followed token as a capture (back to back at the NIC's rate)."""
    from tokenwire.report.scenes.packet import packets_of
    from tokenwire.wire.capture import link_type, records, write_capture

    link = link_type(walk.journey.config.wire.transport)
    write_capture(path, records(packets_of(walk), link=link), link)


def _module(name: str) -> Any:
    return import_module(f"tokenwire.report.scenes.{name}")
