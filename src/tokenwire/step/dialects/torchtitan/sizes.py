"""The sizes that every row needs, and how a row is written.

Symbols: b micro-batch, s sequence, h hidden, V vocabulary, t tensor, c context, n shard ranks (dp_shard·cp), r replicas,
m micro-batches. torch cuts a dimension of d into n parts of ceil(d/n), the last ones shorter or empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenwire.model.architecture import Architecture, Tensor
from tokenwire.model.tensors import tensors
from tokenwire.plan import Plan, Stage
from tokenwire.plan.torchtitan import TorchtitanPlan
from tokenwire.step.operation import Op, Operation, Phase


@dataclass(frozen=True)
class Sizes:
    """An architecture under a plan; ``activation`` is b·s/c·h elements, ``shards`` n, ``replicas`` r."""

    arch: Architecture
    plan: Plan
    config: TorchtitanPlan
    activation: int
    shards: int
    replicas: int

    @staticmethod
    def of(arch: Architecture, plan: Plan) -> Sizes:
        """Return the sizes of a plan of this dialect."""
        config = plan.config
        assert isinstance(config, TorchtitanPlan)
        training = plan.training
        return Sizes(
            arch, plan, config, training.micro_batch * (training.sequence_length // plan.cp) * arch.hidden_size,
            plan.group_size("fsdp"), plan.group_size("dp_replicate"),
        )  # fmt: skip

    @property
    def sharded(self) -> bool:
        """Return whether FSDP is applied: torchtitan does so where dp_shard or cp is above 1."""
        return self.shards > 1

    @property
    def compute_dtype(self) -> str:
        """Return the dtype of activations: mixed precision comes with FSDP, else parameters are fp32."""
        return self.config.param_dtype(self.plan.training) if self.sharded else "fp32"

    @property
    def local_sequence(self) -> int:
        """Return the tokens of a sequence on a context-parallel rank, s/c."""
        return self.plan.training.sequence_length // self.plan.cp

    def stage_tensors(self, stage: Stage) -> list[Tensor]:
        """Return the tensors of a stage, the tied head counted once where embedding and head are on one stage."""
        layers = set(stage.layers)
        out = [x for x in tensors(self.arch) if x.layer in layers or (x.layer is None and self._placed(x, stage))]
        if self.arch.tied_embeddings and stage.has_head and not stage.has_embedding:
            h = self.arch.hidden_size
            out.append(Tensor("head.weight", "head", (self.arch.vocabulary_size, h), None, "vocabulary", 0))
        return out

    @staticmethod
    def _placed(tensor: Tensor, stage: Stage) -> bool:
        return stage.has_head if tensor.part in ("final_norm", "head") else stage.has_embedding

    def local_shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape on tensor-parallel rank 0."""
        shape = list(tensor.shape)
        if tensor.split_dim is not None:
            shape[tensor.split_dim] = -(-shape[tensor.split_dim] // self.plan.tp)
        return tuple(shape)

    def row(
        self, stage: Stage, op: Op, group: str, phase: Phase, count: int, elements: int, dtype: str, parallelism: str,
        what: str, **more: Any,
    ) -> Operation:
        """Return a row on a group of the plan, under the shortest name that its ranks have."""
        group = common_name(self.plan, group)
        return Operation(stage.index, op, group, self.plan.group_size(group), phase, count, elements, dtype, parallelism,
                         what, **more)  # fmt: skip


_COMMON = ("tp", "cp", "dp", "dp_cp", "ep", "edp", "dp_shard")


def common_name(plan: Plan, group: str) -> str:
    """Return the plainest name of a group's ranks: FSDP's group is ``dp`` where nothing is replicated and cp is 1.

    >>> from tokenwire.model import preset
    >>> from tokenwire.plan import TrainingConfig, resolve
    >>> plan = resolve(TorchtitanPlan(), TrainingConfig(), preset("dante", 1000), 8)
    >>> common_name(plan, "fsdp")
    'dp'
    """
    wanted = _spread(plan, group)
    return next((name for name in _COMMON if _spread(plan, name) == wanted), group)


def _spread(plan: Plan, group: str) -> tuple[object, frozenset[str]]:
    grid, axes = plan.group(group)
    return grid, frozenset(axis for axis in axes if grid.size(axis) > 1)
