"""How each real framework says a step: one package a framework, looked up by the name in ``[plan] dialect``.

A package offers ``operations(arch, plan) -> Iterable[Operation]``. Packages of others register by the entry-point group
``tokenwire.dialects``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from tokenwire.errors import unknown
from tokenwire.step.operation import Operation

if TYPE_CHECKING:
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

Dialect = Callable[["Architecture", "Plan"], Iterable[Operation]]

OFFLOADING = ("deepspeed", "torchtitan")
"""Dialects that say what moves between GPU and host: ``offload.transfers(arch, plan, calls)``."""
BUILT_IN = ("megatron", "torchtitan", "deepspeed", "ddp")


def dialect(name: str) -> Dialect:
    """Return the function of a dialect. Raises ``InputError`` with the known names."""
    if name in BUILT_IN:
        found: Dialect = import_module(f"tokenwire.step.dialects.{name}").operations
        return found
    others = {entry.name: entry for entry in entry_points(group="tokenwire.dialects")}
    if name not in others:
        raise unknown("dialect", name, [*BUILT_IN, *others], where="[plan]")
    loaded: Dialect = others[name].load()
    return loaded
