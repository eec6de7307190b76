"""Below the packet: line code, scrambling, forward error correction, lanes and symbols.

In: bytes on the wire, or a frame. Out: bits and symbols on each lane with their derivation, and the blocks themselves.
"""

from tokenwire.wire.line.blocks import block_lines, blocks_64b66b, descrambled, scrambled
from tokenwire.wire.line.lanes import LINES, Lane, Line, on_the_lane
from tokenwire.wire.line.reed_solomon import parity, syndromes

__all__ = [
    "LINES", "Lane", "Line", "block_lines", "blocks_64b66b", "descrambled", "on_the_lane", "parity", "scrambled", "syndromes"
]  # fmt: skip
