"""A checked parallel plan: sizes, rank grid, process groups, stages. ``resolve`` makes it, everything later reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from tokenwire.config import read_section
from tokenwire.errors import InputError, unknown
from tokenwire.model.architecture import Architecture
from tokenwire.plan.base import PlanConfig
from tokenwire.plan.described import unpredicted
from tokenwire.plan.grid import Grid, Ranks
from tokenwire.plan.pipelining import PipelineSchedule
from tokenwire.plan.training import TrainingConfig

DIALECTS: dict[str, tuple[str, str]] = {
    "megatron": ("tokenwire.plan.megatron", "MegatronPlan"),
    "torchtitan": ("tokenwire.plan.torchtitan", "TorchtitanPlan"),
    "deepspeed": ("tokenwire.plan.deepspeed", "DeepspeedPlan"),
    "ddp": ("tokenwire.plan.ddp", "DdpPlan"),
}
"""The section class of each framework: module and name, imported when a plan asks for it."""

ALIASES = {"torch": "torchtitan", "fsdp2": "torchtitan", "fsdp": "torchtitan"}

_EXPERT_GROUPS: dict[str, tuple[str, ...]] = {
    "ep": ("ep",),
    "etp": ("etp",),
    "tp_ep": ("etp", "ep"),
    "tp_ep_pp": ("etp", "ep", "pp"),
    "edp": ("edp", "edp_shard", "edp_replicate"),
    "edp_shard": ("edp_shard",),
    "edp_replicate": ("edp_replicate",),
    "optimizer_instance": ("etp", "ep", "edp_shard", "pp"),
}
_DP = ("dp", "dp_shard", "dp_replicate")
_GROUPS: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": _DP,
    "dp_cp": ("cp", *_DP),
    "tp_cp": ("tp", "cp"),
    "tp_dp": ("tp", *_DP),
    "tp_dp_cp": ("tp", "cp", *_DP),
    "pp": ("pp",),
    "mp": ("tp", "pp"),
    "dp_shard": ("dp_shard",),
    "dp_replicate": ("dp_replicate",),
    "dp_shard_cp": ("cp", "dp_shard"),
    "fsdp": ("cp", "dp_shard"),
    "embedding": ("pp",),
    "position_embedding": (),
}


@dataclass(frozen=True)
class Stage:
    """One pipeline rank: ``chunks`` are its virtual stages, each a tuple of layer indices in the order they run.

    ``has_embedding`` and ``has_head`` say whether the rank holds the token embedding and the output head,
    ``has_next_tokens`` whether it holds the layers of multi-token prediction.
    """

    index: int
    chunks: tuple[tuple[int, ...], ...]
    has_embedding: bool
    has_head: bool
    has_next_tokens: bool = False

    @property
    def layers(self) -> tuple[int, ...]:
        """Return the layer indices of all chunks, ascending by chunk."""
        return tuple(layer for chunk in self.chunks for layer in chunk)


@dataclass(frozen=True)
class Plan:
    """Who does what: sizes (ranks), micro-batches a step, grids, and the stages of the pipeline.

    ``vocabulary_size`` is padded as the framework pads it. ``embedding_stages`` are those that hold a copy of the embedding (the
    group ``embedding``); left out, the first and the last. ``notes`` are things a careful reader should know, such as an
    option that the framework turns off by itself.
    """

    config: PlanConfig
    training: TrainingConfig
    world: int
    tp: int
    pp: int
    cp: int
    dp: int
    ep: int
    etp: int
    edp: int
    vpp: int
    micro_batches: int
    grid: Grid
    expert_grid: Grid
    stages: tuple[Stage, ...]
    vocabulary_size: int
    sequence_parallel: bool = False
    notes: tuple[str, ...] = ()
    extra_groups: Mapping[str, tuple[Grid, tuple[str, ...]]] = field(default_factory=dict)
    embedding_stages: tuple[int, ...] = ()

    @property
    def schedule(self) -> PipelineSchedule:
        """Return which order of micro-batches the pipeline runs."""
        return self.config.pipeline_schedule(self)

    def _embedding_stages(self) -> list[int]:
        return list(self.embedding_stages) or sorted({0, self.pp - 1})

    def group(self, name: str) -> tuple[Grid, tuple[str, ...]]:
        """Return the grid and the axes along which the group ``name`` runs (axes that the grid has).

        The ``embedding`` group is some ranks along ``pp`` (``embedding_stages``): use ``groups`` or ``members`` for ranks.
        """
        if name in self.extra_groups:
            return self.extra_groups[name]
        if name == "world":
            return self.grid, tuple(axis for axis, _ in self.grid.axes)
        grid = self.expert_grid if name in _EXPERT_GROUPS else self.grid
        axes = _EXPERT_GROUPS.get(name) or _GROUPS.get(name)
        if axes is None and name != "position_embedding":
            raise unknown("group", name, self.group_names())
        present = {axis for axis, _ in grid.axes}
        return grid, tuple(axis for axis in axes or () if axis in present)

    def group_names(self) -> tuple[str, ...]:
        """Return the names that ``group`` knows."""
        return ("world", *_GROUPS, *_EXPERT_GROUPS, *self.extra_groups)

    def group_size(self, name: str) -> int:
        """Return how many ranks a group has."""
        if name == "embedding":
            return len(self._embedding_stages())
        grid, axes = self.group(name)
        return math.prod(grid.size(axis) for axis in axes)

    def groups(self, name: str, stage: int | None = None) -> Ranks:
        """Return all groups of a name, shape (groups, members), ascending; ``stage``: those with a rank in that stage."""
        grid, axes = self.group(name)
        out = grid.groups(*axes)
        if name == "embedding" and self.pp > 1:
            out = out[:, self._embedding_stages()]
        if stage is not None:
            per_stage = self.world // self.pp
            out = out[np.any(out // per_stage == stage, axis=1)]
        return out

    def members(self, name: str, rank: int) -> Ranks:
        """Return the ranks of the group ``name`` that ``rank`` is in, ascending. Raises ``InputError`` for no such rank."""
        if not 0 <= rank < self.world:
            raise InputError(f"rank {rank}", rule=f"the plan has ranks 0 to {self.world - 1:,}",
                             nearest=str(min(max(rank, 0), self.world - 1)))  # fmt: skip
        grid, axes = self.group(name)
        ranks = grid.group_of(rank, *axes)
        if name == "embedding" and self.pp > 1:
            holders = ranks[self._embedding_stages()]
            return holders if rank in holders else ranks[:0]
        return ranks

    def stage_of(self, rank: int) -> int:
        """Return the pipeline stage of a rank."""
        return self.grid.coordinates(rank).get("pp", 0)


def read_plan(values: Mapping[str, Any]) -> PlanConfig:
    """Return the section of the framework that ``dialect`` names (megatron where it is not said).

    >>> read_plan({"dialect": "megatron", "tp": 2, "sequence_parallel": True}).tp
    2
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{values!r}"[:80], where="[plan]", rule="must be a table of keys and values")
    given = values.get("dialect", "megatron")
    dialect = ALIASES.get(given, given) if isinstance(given, str) else given
    if not isinstance(dialect, str) or dialect not in DIALECTS:
        raise unknown("dialect", str(given)[:80], [*DIALECTS, *ALIASES], where="[plan]")
    module, name = DIALECTS[dialect]
    section: type[PlanConfig] = getattr(import_module(module), name)
    return read_section(section, {**values, "dialect": dialect}, where="[plan]")


def alike(section: Mapping[str, Any], config: PlanConfig, training: TrainingConfig) -> PlanConfig:
    """Return the plan of ``section`` with what ``config`` has whatever its sizes: of another framework the precision of gradients.

    >>> from tokenwire.plan import TrainingConfig
    >>> own = read_plan({"dialect": "megatron", "tp": 2, "grad_reduce_in_fp32": True})
    >>> alike({"dialect": "megatron"}, own, TrainingConfig()).grad_reduce_in_fp32
    True
    >>> own = read_plan({"dialect": "megatron"})
    >>> alike({"dialect": "torchtitan"}, own, TrainingConfig()).mixed_precision_reduce
    'bfloat16'
    """
    bare = read_plan(section)
    same = bare.dialect == config.dialect
    kept = config.kept() if same else bare.reducing_in(config.gradient_dtype(training))
    return read_plan({**kept, **section})


def resolve(config: PlanConfig, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
    """Return the checked plan of ``config`` for a model on ``gpus`` ranks.

    Raises ``InputError`` naming key, value, rule and the nearest value that works.
    """
    plan = config.resolve(training, arch, gpus)
    return replace(plan, notes=(*plan.notes, *unpredicted(arch))) if arch.left_out else plan
