"""The ``[cluster]`` section: which cluster, how large, and what is different from its catalog entry."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field, field_validator

from tokenwire.config import ComputeRate, Positive, Rate, Section, Time
from tokenwire.errors import InputError, unknown
from tokenwire.fabric.facts import ClusterFacts, preset, presets, read_facts

MOST_GPUS = 1 << 20
"""GPUs of the largest cluster that is built."""


class ClusterConfig(Section):
    """A catalog entry (``preset``) or a ``file``; ``nodes`` or ``gpus``; and facts that differ from it.

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
    peak_flops: ComputeRate | None = None
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
    shape: tuple[Positive, ...] | None = Field(default=None, min_length=1, max_length=6)
    routing: Literal["ecmp", "spray", "adaptive", "static", "dmod"] | None = None
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
        base = read_facts(self.file) if self.file else preset(self.preset)
        own = {
            name: getattr(self, name) for name in type(self).model_fields
            if name not in ("preset", "file", "nodes", "gpus") and getattr(self, name) is not None
        }  # fmt: skip
        g = self.gpus_per_node or base.gpus_per_node
        nodes, g = self._size(base.nodes, g)
        if "nics_per_node" not in own and g != base.gpus_per_node:
            # Fewer GPUs a node use as many NICs as they have in the full one.
            own["nics_per_node"] = max(1, base.nics_per_node * g // base.gpus_per_node)
        out = base.model_copy(update={**own, "nodes": nodes, "gpus_per_node": g})
        k = out.nics_per_node
        if k % g and g % k:
            raise InputError(f"nics_per_node = {k}", where="[cluster]", nearest=str(g),
                             rule=f"must divide the {g} GPUs of a node or be a multiple of them")  # fmt: skip
        return out.model_copy(update={"rails": min(out.rails, k)})

    def _size(self, nodes: int, g: int) -> tuple[int, int]:
        if self.nodes is not None and self.gpus is not None and self.nodes * g != self.gpus:
            raise InputError(f"nodes = {self.nodes:,} and gpus = {self.gpus:,}", where="[cluster]",
                             rule=f"a node has {g} GPUs: give one of the two", nearest=f"nodes = {self.nodes}")  # fmt: skip
        if self.gpus is not None:
            if self.gpus > g and self.gpus % g:
                raise InputError(f"gpus = {self.gpus:,}", where="[cluster]", rule=f"must fill nodes of {g} GPUs",
                                 nearest=f"gpus = {self.gpus // g * g}")  # fmt: skip
            nodes, g = max(1, self.gpus // g), min(g, self.gpus)
        elif self.nodes is not None:
            nodes = self.nodes
        if nodes * g > MOST_GPUS:
            name, most = ("gpus", MOST_GPUS) if self.gpus is not None else ("nodes", MOST_GPUS // g)
            raise InputError(f"{name} = {self.gpus or nodes:,}", where="[cluster]",
                             rule=f"a cluster has at most {MOST_GPUS:,} GPUs", nearest=f"{name} = {most}")  # fmt: skip
        return nodes, g

    @property
    def world(self) -> int:
        """Return the number of GPUs. Raises ``InputError`` where nodes and GPUs do not fit each other."""
        return self.facts.nodes * self.facts.gpus_per_node
