"""torch's caching allocator, against its rules worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.timeline.memory.allocator import counted, rounded, segments

MIB = 2**20


@pytest.mark.parametrize(
    ("request_bytes", "block", "reserved"),
    [
        (0, 0, 0),
        (1, 512, 2 * MIB),  # the smallest block, in a segment of small ones
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),  # above 1 MiB: a segment of 20 MiB
        (10 * MIB, 10 * MIB, 10 * MIB),  # from 10 MiB on a segment of its own, in steps of 2 MiB
        (11 * MIB, 12 * MIB, 12 * MIB),  # the rest of 1 MiB is not cut off
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # the rest of 1 MiB + 512 is
    ],
)
def test_blocks_and_segments(request_bytes: int, block: int, reserved: int) -> None:
    assert counted(request_bytes) == block
    assert segments(request_bytes) == reserved


@given(st.integers(1, 2**40))
def test_a_block_holds_its_request_and_little_more(size: int) -> None:
    assert size <= rounded(size) < size + 512
    assert rounded(size) <= counted(size) <= rounded(size) + MIB
    assert counted(size, expandable=True) == rounded(size)
    assert segments(size) >= counted(size)
