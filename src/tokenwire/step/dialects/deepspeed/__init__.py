"""DeepSpeed: what each rank says in one optimizer step of ZeRO 0 to 3, ZeRO++, Ulysses, and its pipeline.

Judged by DeepSpeed 0.19.8 itself on a fake process group (tests/step/test_deepspeed_agreement.py, and recorded in
tests/step/data/deepspeed.json): ZeRO 0 to 3 with their buckets, ZeRO++ with stand-ins for its kernels, Ulysses, and the pipeline
divided by its blocks (partition_method "type:..."). The table is of a step after the first ones, in which ZeRO-3 learns the order
of modules.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.step.dialects.deepspeed import parameters, pipeline, ulysses, zero
from tokenwire.step.dialects.deepspeed.sizes import Sizes
from tokenwire.step.operation import Operation

_MECHANISMS = (parameters.operations, ulysses.operations, pipeline.operations, zero.operations)


def operations(arch: Architecture, plan: Plan) -> Iterable[Operation]:
    """Yield the rows of every stage, stage by stage."""
    sizes = Sizes.of(arch, plan)
    for stage in plan.stages:
        for mechanism in _MECHANISMS:
            yield from mechanism(sizes, stage)
