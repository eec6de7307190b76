"""What torch's caching allocator reserves of the device for what is allocated in it: blocks that are kept, and what is left between them.

It is reserved memory that has to fit. FSDP allocates and frees whole units as layers run, which leaves more between blocks than buffers
that stand from the first step on. Shares of reserved memory in use, each of measured runs:

- FSDP2 and ZeRO-3: 1/1.1943, least squares of what is predicted over what six runs of Llama 3.1 8B reserved at most
  (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, rows of 8B, whose launcher sets expandable_segments). Runs of 70B
  and 405B in the same table were left for the test: 0.71 to 0.92 in use, reserved memory is predicted with a mean error of 8 %.
- what stands in buffers: 28.82 of 29.97 GiB (NVIDIA/Megatron-LM, issue 525: at the failure, when all that was whole had been given back).
"""

from __future__ import annotations

from tokenwire.plan.base import PlanConfig

GATHERED = 1 / 1.1943
STANDING = 28.82 / 29.97


def in_use(config: PlanConfig) -> float:
    """Return the share of reserved memory that is allocated at the peak.

    >>> from tokenwire.plan import read_plan
    >>> round(in_use(read_plan({"dialect": "torchtitan"})), 3), round(in_use(read_plan({})), 3)
    (0.837, 0.962)
    """
    return GATHERED if config.gathers_weights else STANDING
