"""How torch's caching allocator counts a request: rounded up, and with the rest of a block that it does not cut off.

Rules: pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (``round_size``, ``get_allocation_size``, ``should_split``). Sizes are
rounded to 512 bytes. Requests of up to 1 MiB share segments of 2 MiB; of less than 10 MiB, segments of 20 MiB; larger ones
get a segment of their own, a multiple of 2 MiB. A rest of at most 1 MiB of a large block stays with the request and is
counted as allocated. What is reused finds other blocks than a fresh request, so a measured sum can differ by such rests.
"""

from __future__ import annotations

ROUND = 512
SMALL = 2**20
"""Largest request that is served from the pool of small blocks."""
SEGMENT_SMALL = 2 * 2**20
SEGMENT_LARGE = 20 * 2**20
OWN_SEGMENT = 10 * 2**20
"""Requests from this size on get a segment of their own."""
GRAIN = 2 * 2**20


def rounded(size: int) -> int:
    """Return the bytes of a block for a request.

    >>> rounded(1), rounded(512), rounded(513), rounded(0)
    (512, 512, 1024, 0)
    """
    return -(-size // ROUND) * ROUND


def counted(size: int, *, expandable: bool = False) -> int:
    """Return what a fresh request adds to ``allocated_bytes``: its block, with a rest too small to be cut off.

    >>> counted(11 * 2**20) / 2**20, counted(11 * 2**20, expandable=True) / 2**20
    (12.0, 11.0)
    >>> counted(21 * 2**19) / 2**20       # 10.5 MiB in 12: the rest of 1.5 MiB is cut off
    10.5
    """
    block = rounded(size)
    if expandable or block < OWN_SEGMENT:
        return block
    segment = -(-block // GRAIN) * GRAIN
    return segment if segment - block <= SMALL else block


def segments(size: int) -> int:
    """Return what a fresh request reserves from the device.

    >>> segments(1000) == SEGMENT_SMALL, segments(2 * 2**20) == SEGMENT_LARGE, segments(11 * 2**20) / 2**20
    (True, True, 12.0)
    """
    if size <= 0:
        return 0
    if size <= SMALL:
        return SEGMENT_SMALL
    return SEGMENT_LARGE if size < OWN_SEGMENT else -(-size // GRAIN) * GRAIN
