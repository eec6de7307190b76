"""Megatron-Core: what each rank of a stage says in one optimizer step.

Judged by megatron-core 0.16.1 (tests/step/test_megatron_agreement.py). One module a mechanism: ``tensor_parallel``, ``adapters``,
``context_parallel``, ``experts``, ``next_tokens``, ``pipeline``, ``gradients`` with ``buckets``, ``fully_sharded``, ``low_precision`` and ``amax`` for fp8,
``small`` for the messages of a few bytes that tables forget.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.step.dialects.megatron import (
    adapters,
    amax,
    context_parallel,
    experts,
    fully_sharded,
    gradients,
    next_tokens,
    pipeline,
    small,
    tensor_parallel,
)
from tokenwire.step.dialects.megatron.low_precision import in_fp8
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import PHASES, Operation, spoken

_MECHANISMS = (
    small.data, tensor_parallel.operations, adapters.operations, next_tokens.operations, context_parallel.operations, experts.operations, pipeline.operations,
    amax.operations, gradients.operations, fully_sharded.operations, small.optimizer, small.loss,
)  # fmt: skip


def operations(arch: Architecture, plan: Plan) -> Iterable[Operation]:
    """Yield the rows of every stage, stage by stage, in the order of the phases of a step."""
    longer, stages = next_tokens.with_their_layers(arch, plan)
    sizes = Sizes.of(longer, plan)
    known: dict[Hashable, tuple[int, list[Operation]]] = {}
    for stage in stages:
        kind = _kind(sizes, stage)
        if kind not in known:
            said = spoken(row for mechanism in _MECHANISMS for row in mechanism(sizes, stage))
            known[kind] = stage.index, sorted(said, key=lambda row: PHASES.index(row.phase))
        first, rows = known[kind]
        yield from (row.moved(stage.index - first) for row in rows)


def _kind(z: Sizes, stage: Stage) -> Hashable:
    """Return what stages have in common that say the same: those at the ends are like no other, those between by their layers."""
    if stage.index in (0, z.plan.pp - 1) or stage.has_embedding or stage.has_head or stage.has_next_tokens:
        return stage.index
    behind = any(other.has_next_tokens for other in z.plan.stages[: stage.index])
    layers = z.arch.layers
    return behind, tuple(tuple((id(layers[i]), in_fp8(z, i), z.config.cp_comm_of(i), i == z.own - 1) for i in chunk) for chunk in stage.chunks)
