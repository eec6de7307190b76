"""From the ``[cluster]`` section to a fabric: each topology registers how it is built."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tokenwire.errors import InputError
from tokenwire.fabric.choice import DETOURS, WITHOUT_DETOURS
from tokenwire.fabric.config import ClusterConfig
from tokenwire.fabric.fabric import Fabric
from tokenwire.fabric.facts import ClusterFacts

TOPOLOGIES: dict[str, tuple[str, str]] = {
    "clos": ("tokenwire.fabric.clos", "build_clos"),
    "torus": ("tokenwire.fabric.torus", "build_torus"),
    "hyperx": ("tokenwire.fabric.hyperx", "build_hyperx"),
    "file": ("tokenwire.fabric.own", "build_own"),
    "dragonfly": ("tokenwire.fabric.dragonfly", "build_dragonfly"),
    "dragonfly_plus": ("tokenwire.fabric.dragonfly", "build_dragonfly_plus"),
}
"""Topology by name: the module and the function (name, facts) -> Fabric."""


def build(config: ClusterConfig) -> Fabric:
    """Return the fabric of a ``[cluster]`` section. Raises ``InputError`` for a cluster that cannot be.

    >>> from tokenwire.fabric import ClusterConfig
    >>> dict(build(ClusterConfig(nodes=127)).kinds)["leaf"], dict(build(ClusterConfig(nodes=127)).kinds)["spine"]
    (32, 16)
    """
    facts = config.facts
    if facts.routing in DETOURS and facts.topology in WITHOUT_DETOURS:
        raise InputError(f'routing = "{facts.routing}"', where="[cluster]", nearest='routing = "adaptive"',
                         rule="takes detours over a third group, which dragonfly, HyperX and torus have")  # fmt: skip
    module, name = TOPOLOGIES[facts.topology]
    make: Callable[[str, ClusterFacts], Fabric] = getattr(import_module(module), name)
    name = config.file or config.preset
    if config.file and config.file.lower().endswith(".xml"):
        from tokenwire.fabric.pcie import build_with_node

        return build_with_node(config.file, lambda told: make(name, told), facts)
    return make(name, facts)
