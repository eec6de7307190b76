"""What the network must offer: the requirements, each with its derivation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.report.rooms import needs as room
from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table

SMALL = 1000
"""Bytes a step below which a volume is not drawn."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the requirements of each journey."""
    return {"journeys": [{"name": name, **room.facts(journey.needs())} for name, journey in walk.journeys]}


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield one list with derivations, or a table of several."""
    from rich.padding import Padding
    from rich.text import Text

    lists = facts["journeys"]
    if len(lists) > 1:
        names = list(dict.fromkeys(need["name"] for one in lists for need in one["requirements"]))
        held = [{need["name"]: need["text"] for need in one["requirements"]} for one in lists]
        heads = [one["name"] for one in lists]
        yield table([(name, *[h.get(name, "-") for h in held]) for name in names], ["requirement", *heads], right=heads)
        return
    yield ""
    large = [need for need in lists[0]["requirements"] if need["unit"] != "B" or need["value"] >= SMALL]
    for need in large:
        yield Text.assemble((f"{need['text']:>12}", "bold green"), "  ", need["name"])
        how = need["derivation"] if need["formula"] else need["because"]
        if how:
            yield Padding(Text(how, style="dim"), (0, 0, 0, 14))
    if len(large) < len(lists[0]["requirements"]):
        yield f"{'':14}Volumes below {SMALL:,} B are left out: see `tokenwire needs`."
