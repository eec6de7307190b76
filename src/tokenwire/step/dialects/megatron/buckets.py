"""Megatron's gradient buffer: parameters in reverse order, cut into buckets, padded for the distributed optimizer.

Rules: megatron-core 0.16.1, distributed/param_and_grad_buffer.py, _ParamAndGradBuffer.__init__, and distributed/
distributed_data_parallel.py, DistributedDataParallel.__init__.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

PARAMETER_ALIGNMENT = 64
"""Elements to which the start of a parameter is padded with the distributed optimizer."""
BUCKET_ALIGNMENT = 128
"""Elements to whose common multiple with the group's size the end of a bucket is padded."""
BUSBW_ALIGNMENT = 2**16
"""The further factor that ``pad_buckets_for_high_nccl_busbw`` brings in."""


def default_bucket_size(data_parallel: int) -> int:
    """Return the bucket size in parameters where none is given.

    >>> default_bucket_size(8), default_bucket_size(128)
    (40000000, 128000000)
    """
    return max(40_000_000, 1_000_000 * data_parallel)


def buckets(
    sizes: Sequence[int], alone: Sequence[bool], *, bucket_size: int | None, group_size: int, padded: bool, busbw: bool = False
) -> list[tuple[int, int]]:
    """Return (elements, parameters in them) of each bucket for parameters of ``sizes`` in the order in which they are registered.

    ``alone`` marks parameters that have a bucket to themselves (a tied embedding, with the distributed optimizer);
    ``padded`` is the distributed optimizer's padding to ``group_size``.

    >>> buckets([100, 50], [False, False], bucket_size=None, group_size=4, padded=True)   # 50 -> 64, +100 -> 164 -> 256
    [(256, 150)]
    >>> buckets([100, 50], [False, False], bucket_size=50, group_size=4, padded=False)
    [(50, 50), (100, 100)]
    """
    multiple = math.lcm(group_size, BUCKET_ALIGNMENT, BUSBW_ALIGNMENT if busbw else 1) if padded else 1
    step = PARAMETER_ALIGNMENT if padded else 1
    out: list[tuple[int, int]] = []
    start = end = inside = 0

    def close() -> None:
        nonlocal start, end, inside
        end = -(-end // multiple) * multiple
        out.append((end - start, inside))
        start, inside = end, 0

    for size, own in zip(reversed(sizes), reversed(alone), strict=True):
        own = own and padded
        begin = -(-end // step) * step
        if own and inside:
            close()
            begin = end
        end, inside = begin + size, inside + size
        if own or (bucket_size is not None and end - start >= bucket_size):
            close()
    if inside:
        close()
    return out
