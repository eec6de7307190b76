"""Megatron-Core: what each rank of a stage says in one optimizer step.

Judged by megatron-core 0.16.1 (tests/step/test_megatron_agreement.py). One module a mechanism: ``tensor_parallel``, ``adapters``,
``context_parallel``, ``experts``, ``next_tokens``, ``pipeline``, ``gradients`` with ``buckets``, ``fully_sharded``, ``low_precision`` and ``amax`` for fp8,
``small`` for the messages of a few bytes that tables forget.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
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
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import PHASES, Operation

_MECHANISMS = (
    small.data, tensor_parallel.operations, adapters.operations, next_tokens.operations, context_parallel.operations, experts.operations, pipeline.operations,
    amax.operations, gradients.operations, fully_sharded.operations, small.optimizer, small.loss,
)  # fmt: skip


def operations(arch: Architecture, plan: Plan) -> Iterable[Operation]:
    """Yield the rows of every stage, stage by stage, in the order of the phases of a step."""
    longer, stages = next_tokens.with_their_layers(arch, plan)
    sizes = Sizes.of(longer, plan)
    for stage in stages:
        rows = [row for mechanism in _MECHANISMS for row in mechanism(sizes, stage)]
        yield from sorted(rows, key=lambda row: PHASES.index(row.phase))
