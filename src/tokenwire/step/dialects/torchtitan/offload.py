"""FSDP2's CPUOffloadPolicy: what crosses the link to the host.

Sharded parameters stand on the host in fp32: before each gather a rank brings its shard and casts it on the GPU; each reduced shard
of gradients goes to the host in fp32, where the optimizer runs. Source: torch 2.13, torch/distributed/fsdp/_fully_shard/
_fsdp_param.py (all_gather_inputs), _fsdp_collectives.py (foreach_reduce).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.torchtitan import TorchtitanPlan
from tokenwire.step.operation import Operation
from tokenwire.step.transfer import Transfer

_FSDP = "torch 2.13, torch/distributed/fsdp/_fully_shard"


def transfers(arch: Architecture, plan: Plan, calls: Iterable[Operation]) -> Iterator[Transfer]:
    """Yield what each stage's rank moves; ``calls`` is the step table."""
    assert isinstance(plan.config, TorchtitanPlan)
    if not plan.config.offload().any:
        return
    for row in calls:
        if row.parallelism != "fsdp" or row.op not in ("all_gather", "reduce_scatter"):
            continue
        elements = row.count * row.elements / row.group_size
        if row.op == "all_gather":
            yield Transfer(row.stage, "to_gpu", row.phase, 4 * elements, "sharded parameters, fp32, before they are gathered", True,
                           "4·Σ gathered/n", f"4·{elements:,.0f}", f"{_FSDP}/_fsdp_param.py all_gather_inputs")  # fmt: skip
        else:
            # Where gradients of several micro-batches are added, the sum is made on the host, which waits for the copy.
            once = plan.micro_batches == 1 or not plan.config.set_requires_gradient_sync
            yield Transfer(row.stage, "to_host", "backward", 4 * elements, "reduced gradients, fp32", once, "4·Σ reduced/n",
                           f"4·{elements:,.0f}", f"{_FSDP}/_fsdp_collectives.py foreach_reduce")  # fmt: skip
