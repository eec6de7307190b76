"""Fabric: where it goes. A cluster's devices and links as columns, and the routes between its GPUs.

In: the ``[cluster]`` section (a catalog entry or a file, its size, what differs). Out of ``build``: a ``Fabric``: GPUs,
NICs, switches, directed links with ``rate`` in bytes/s, ``latency`` in s and ``tier``. ``routes`` gives the links of many pairs
of GPUs at once. ``without`` takes failed devices or links away. ``catalog/`` has real clusters with their sources; a
topology is a module named in ``build.TOPOLOGIES``.
"""

from tokenwire.fabric.build import build
from tokenwire.fabric.config import ClusterConfig
from tokenwire.fabric.fabric import TIERS, Fabric, Routes, routes
from tokenwire.fabric.facts import ClusterFacts, preset, presets
from tokenwire.fabric.failures import without
from tokenwire.fabric.ways import Ways, ways

__all__ = [
    "TIERS", "ClusterConfig", "ClusterFacts", "Fabric", "Routes", "Ways", "build", "preset", "presets", "routes", "ways", "without",
]  # fmt: skip
