"""Replicas without sharding: torchtitan falls back on DistributedDataParallel with buckets of 100 MiB.

Source: pytorch/torchtitan v0.2.2, torchtitan/models/llama3/infra/parallelize.py, apply_ddp. Parameters are fp32, products run
under autocast.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.plan.ddp import DdpPlan
from tokenwire.step.dialects import ddp
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Operation

BUCKETS = DdpPlan(bucket_cap_mb=100)


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none where parameters are sharded."""
    if z.sharded or z.replicas == 1:
        return
    yield from ddp.construction(z.arch, z.plan, BUCKETS, "dp")
    yield from ddp.step(z.arch, z.plan, BUCKETS, "dp")
