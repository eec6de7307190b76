"""Megatron's gradient buffer: parameters in reverse order, cut into buckets, padded for the distributed optimizer.

Rules: megatron-core 0.16.1, distributed/param_and_grad_buffer.py, _ParamAndGradBuffer.__init__, and distributed/
distributed_data_parallel.py, DistributedDataParallel.__init__.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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


class Length(NamedTuple):
    """Parameters one after the other: how many ``elements``, and their ``extent`` with the padding between them.

    ``alone`` marks one that has a bucket to itself (a tied embedding, with the distributed optimizer).
    """

    elements: int
    extent: int
    alone: bool = False


def joined(lengths: Sequence[Length], *, padded: bool) -> tuple[Length, ...]:
    """Return lengths of which those that stand together are one, for a buffer that is not cut between them.

    >>> joined([Length(100, 100), Length(50, 50)], padded=True)   # from the last: 50 -> 64, +100
    (Length(elements=150, extent=164, alone=False),)
    """
    step = PARAMETER_ALIGNMENT if padded else 1
    if not lengths or any(one.alone for one in lengths):
        return tuple(lengths)
    first, *others = lengths
    return (Length(sum(one.elements for one in lengths), first.extent + sum(-(-one.extent // step) * step for one in others)),)


def buckets(
    lengths: Sequence[Length], *, bucket_size: int | None, group_size: int, padded: bool, busbw: bool = False
) -> list[tuple[int, int]]:  # fmt: skip
    """Return (elements, parameters in them) of each bucket for parameters in the order in which they are registered.

    ``padded`` is the distributed optimizer's padding to ``group_size``.

    >>> two = [Length(100, 100), Length(50, 50)]
    >>> buckets(two, bucket_size=None, group_size=4, padded=True)   # 50 -> 64, +100 -> 164 -> 256
    [(256, 150)]
    >>> buckets(two, bucket_size=50, group_size=4, padded=False)
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

    for elements, extent, alone in reversed(lengths):
        own = alone and padded
        begin = -(-end // step) * step
        if own and inside:
            close()
            begin = end
        end, inside = begin + extent, inside + elements
        if own or (bucket_size is not None and end - start >= bucket_size):
            close()
    if inside:
        close()
    return out
