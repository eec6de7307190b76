"""The pages, in the order of the walk. Each is the module of its name in ``pages``, with ``page(view)``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from tokenwire.web.view import View


class Room(NamedTuple):
    """A page: its ``title`` in the menu, and the ``line`` below its heading."""

    title: str
    line: str


ROOMS: dict[str, Room] = {
    "words": Room("Words", "The text that is trained on, its words and their laws."),
    "tokens": Room("Tokens", "The text cut into pieces, each with the number that a model knows it by."),
    "vectors": Room("Vectors", "Each id is a row of a table: the numbers that a token becomes, bit by bit."),
    "model": Room("Model", "What the vector passes through: layers, their tensors, their parameters."),
    "plan": Room("Plan", "No GPU holds it all: who holds what, and who forms a group with whom."),
    "step": Room("Step", "What is said in one training step: every call, with its formula."),
    "collective": Room("Collective", "How it is said: one call as messages between ranks, round by round."),
    "fabric": Room("Fabric", "Where it goes: devices, links, and the bytes of a step on each."),
    "flows": Room("Flows", "Who talks to whom, and who is in whose way."),
    "timeline": Room("Timeline", "When it is said: computing, waiting and sending over one step."),
    "packet": Room("Packet", "The packet that carries the token, byte by byte, down to the bits on the wire."),
    "needs": Room("Needs", "What the network must offer, and why."),
    "compare": Room("Compare", "Two journeys side by side, what differs first."),
}


def page_of(name: str) -> Callable[[View], list[Any]]:
    """Return the function that makes a page."""
    function: Callable[[View], list[Any]] = import_module(f"tokenwire.web.pages.{name}").page
    return function


def fields_of(name: str) -> Callable[[View], list[Any]]:
    """Return the function that makes a page's fields, which stand there even where the page itself cannot be made."""
    function: Callable[[View], list[Any]] = import_module(f"tokenwire.web.pages.{name}").fields
    return function
