"""torchtitan: what each rank of a stage says in one optimizer step of FSDP2, HSDP, TP with SP, PP, CP and EP.

Judged by torch 2.13 itself, put together as pytorch/torchtitan v0.2.2 does (tests/step/test_torchtitan_agreement.py), and by
calls recorded from torchtitan v0.2.2 (tests/step/data/torchtitan.json). One module a mechanism: ``units`` and ``fully_sharded`` (FSDP), ``tensor_parallel``, ``context_parallel``, ``pipeline``,
``experts``, and ``small`` for the messages of a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.step.dialects.torchtitan import (
    context_parallel,
    experts,
    fully_sharded,
    pipeline,
    replicated,
    small,
    tensor_parallel,
)
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Operation

_MECHANISMS = (
    small.data, fully_sharded.operations, replicated.operations, tensor_parallel.operations, context_parallel.operations,
    experts.operations, pipeline.operations, small.optimizer, small.loss,
)  # fmt: skip


def operations(arch: Architecture, plan: Plan) -> Iterable[Operation]:
    """Yield the rows of every stage, stage by stage."""
    sizes = Sizes.of(arch, plan)
    for stage in plan.stages:
        for mechanism in _MECHANISMS:
            yield from mechanism(sizes, stage)
