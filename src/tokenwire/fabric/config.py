"""The ``[cluster]`` section: which cluster, how large, and what is different from its catalog entry."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import PurePath
from typing import Literal

from pydantic import Field, field_validator

from tokenwire.config import ComputeRate, MemorySize, Positive, Rate, Section, Time
from tokenwire.errors import InputError, unknown
from tokenwire.fabric.facts import ClusterFacts, preset, presets, read_facts, with_peak

_OF_A_GPU = ("gpu", "peak_flops", "gpu_memory", "gpu_capability", "memory_rate", "processors", "matmul_efficiency")
_BESIDE_A_FILE = ("preset", "file", "nodes", "gpus", *_OF_A_GPU, "routing", "hash", "queue_pairs")

MOST_GPUS = 1 << 20
"""GPUs of the largest cluster that is built."""


class ClusterConfig(Section):
    """A catalog entry (``preset``) or a ``file``; ``nodes`` or ``gpus``; and facts that differ from it.

    A ``file`` is facts (TOML), links (``.csv``, ``.graphml``; see ``own_links``) or NCCL's topology of a node (``.xml``), whose
    network is that of the preset.

    >>> ClusterConfig(nodes=2, gpus_per_node=4).world
    8
    """

    preset: str = "dgx-h100-superpod"
    file: str | None = None
    nodes: Positive | None = None
    gpus: Positive | None = None
    gpus_per_node: Positive | None = None
    nics_per_node: Positive | None = None
    nic_rate: Rate | None = None
    domain_rate: Rate | None = None
    uplink_rate: Rate | None = None
    link_latency: Time | None = None
    domain_latency: Time | None = None
    gpu: str | None = Field(default=None, min_length=1, max_length=60)
    peak_flops: ComputeRate | None = None
    gpu_memory: MemorySize | None = None
    gpu_capability: int | None = Field(default=None, ge=0, le=99)
    memory_rate: Rate | None = None
    processors: Positive | None = None
    matmul_efficiency: float | None = Field(default=None, gt=0, le=1)
    rails: Positive | None = None
    rail_only: bool | None = None
    planes: Positive | None = None
    nodes_per_unit: Positive | None = None
    units_per_pod: Positive | None = None
    deep_units_per_pod: Positive | None = None
    uplinks: Positive | None = None
    oversubscription: float | None = Field(default=None, gt=0, le=1024)
    core_oversubscription: float | None = Field(default=None, gt=0, le=1024)
    leaf_radix: Positive | None = None
    spine_radix: Positive | None = None
    core_radix: Positive | None = None
    dimensions: int | None = Field(default=None, ge=1, le=6)
    global_links: Positive | None = None
    shape: tuple[Positive, ...] | None = Field(default=None, min_length=1, max_length=6)
    routing: Literal["ecmp", "spray", "adaptive", "static", "dmod", "valiant", "ugal"] | None = None
    hash: Literal["crc32", "toeplitz", "mixed"] | None = None
    queue_pairs: int | None = Field(default=None, ge=1, le=128)

    @field_validator("preset")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in presets():
            raise unknown("cluster preset", name[:80], presets())
        return name

    @cached_property
    def facts(self) -> ClusterFacts:
        """Return all facts of the cluster, with ``nodes`` and ``gpus_per_node`` settled.

        Raises ``InputError`` where they do not fit each other.
        """
        base = self._base()
        own = {
            name: getattr(self, name) for name in type(self).model_fields
            if name not in ("preset", "file", "nodes", "gpus") and getattr(self, name) is not None
        }  # fmt: skip
        g = self.gpus_per_node or base.gpus_per_node
        nodes, g = self._size(base.nodes, g)
        if "nics_per_node" not in own and g != base.gpus_per_node:
            # Fewer GPUs a node use as many NICs as they have in the full one.
            own["nics_per_node"] = max(1, base.nics_per_node * g // base.gpus_per_node)
        out = base.model_copy(update={**with_peak(own), "nodes": nodes, "gpus_per_node": g})
        k = out.nics_per_node
        if k % g and g % k:
            raise InputError(f"nics_per_node = {k}", where="[cluster]", nearest=str(g),
                             rule=f"must divide the {g} GPUs of a node or be a multiple of them")  # fmt: skip
        return out.model_copy(update={"rails": min(out.rails, k)})

    def _base(self) -> ClusterFacts:
        if not self.file:
            return preset(self.preset)
        ending = PurePath(self.file).suffix.lower()
        if ending == ".xml":
            from tokenwire.fabric.nccl_xml import node_facts

            node = node_facts(self.file)
            return preset(self.preset).model_copy(update={"rails": node["nics_per_node"], **node})
        if ending not in (".csv", ".graphml"):
            return read_facts(self.file)
        from tokenwire.fabric.own import own_facts

        base = own_facts(self.file)
        told = [name for name in self.model_fields_set if getattr(self, name) is not None and name not in _BESIDE_A_FILE]
        if told:
            raise InputError(f"{min(told)} = {getattr(self, min(told))}"[:80], where="[cluster]",
                             rule=f"comes from the topology file {self.file!r}"[:160], nearest="leave it out")  # fmt: skip
        have = base.nodes * base.gpus_per_node
        if max(self.gpus or 0, (self.nodes or 0) * base.gpus_per_node) > have:
            raise InputError(f"{max(self.gpus or 0, (self.nodes or 0) * base.gpus_per_node):,} ranks", where=f"topology file {self.file!r}",
                             rule=f"has {have:,} GPUs", nearest=f"cluster.gpus = {have}")  # fmt: skip
        return base

    def _size(self, nodes: int, g: int) -> tuple[int, int]:
        if self.nodes is not None and self.gpus is not None and self.nodes * g != self.gpus:
            raise InputError(f"nodes = {self.nodes:,} and gpus = {self.gpus:,}", where="[cluster]",
                             rule=f"a node has {g} GPUs: give one of the two", nearest=f"nodes = {self.nodes}")  # fmt: skip
        if self.gpus is not None:
            if self.gpus > g and self.gpus % g:
                raise InputError(f"gpus = {self.gpus:,}", where="[cluster]", rule=f"must fill nodes of {g} GPUs",
                                 nearest=self._filled(self.gpus, g))  # fmt: skip
            nodes, g = max(1, self.gpus // g), min(g, self.gpus)
        elif self.nodes is not None:
            nodes = self.nodes
        if nodes * g > MOST_GPUS:
            name, most = ("gpus", MOST_GPUS) if self.gpus is not None else ("nodes", MOST_GPUS // g)
            raise InputError(f"{name} = {self.gpus or nodes:,}", where="[cluster]",
                             rule=f"a cluster has at most {MOST_GPUS:,} GPUs", nearest=f"{name} = {most}")  # fmt: skip
        return nodes, g

    def _filled(self, gpus: int, g: int) -> str:
        """Return what fills nodes: smaller ones that the GPUs fill, of as many GPUs as can be, or else fewer GPUs."""
        for fewer in (n for n in range(g - 1, 1, -1) if gpus % n == 0):
            with contextlib.suppress(InputError):
                self.model_copy(update={"gpus_per_node": fewer}).facts  # noqa: B018 - raises where they do not fit
                return f"gpus_per_node = {fewer} ({gpus // fewer:,} nodes)"
        return f"gpus = {gpus // g * g}"

    @property
    def world(self) -> int:
        """Return the number of GPUs. Raises ``InputError`` where nodes and GPUs do not fit each other."""
        return self.facts.nodes * self.facts.gpus_per_node
