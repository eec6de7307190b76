"""64b/66b: eight bytes become a block of two header bits and 64 bits, which are scrambled.

A block of data has the header 01; a control block has 10 and a type byte. A frame begins with a start block (type
0x78: the first preamble byte becomes the start symbol, seven bytes follow), goes on in data blocks, and ends in a
terminate block whose type says how many bytes it still holds. Bits go out lowest first.
Source: IEEE 802.3-2022, clause 49.2.4 (blocks) and 49.2.6 (scrambler, x^58 + x^39 + 1), as in clause 82 for 100 Gb/s.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]

PREAMBLE = bytes.fromhex("555555555555d5")
START = 0x78
TERMINATE = (0x87, 0x99, 0xAA, 0xB4, 0xCC, 0xD2, 0xE1, 0xFF)
"""Block type by the bytes of the frame that a terminate block still holds."""
DATA_HEADER, CONTROL_HEADER = (0, 1), (1, 0)
_TAPS = (39, 58)


def bits_of(data: bytes) -> Bits:
    """Return the bits of ``data`` in the order of the wire: lowest bit of a byte first.

    >>> "".join(map(str, bits_of(b"\\xd5")))
    '10101011'
    """
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


def blocks_64b66b(frame: bytes) -> Bits:
    """Return the blocks of a frame (addresses to FCS), with its preamble, unscrambled, shape (blocks, 66).

    >>> blocks = blocks_64b66b(bytes(60) + b"FCS!")
    >>> blocks.shape, "".join(map(str, blocks[0, :10])), "".join(map(str, blocks[1, :4]))
    ((10, 66), '1000011110', '0100')
    """
    whole, rest = divmod(len(frame), 8)
    body = np.frombuffer(frame[: whole * 8], np.uint8).reshape(-1, 8)
    # A terminate block: type, the bytes that are left, then idle characters of seven zero bits.
    last = bytes([TERMINATE[rest]]) + frame[whole * 8 :] + bytes(7 - rest)
    first = bytes([START]) + PREAMBLE
    words = np.vstack([np.frombuffer(first, np.uint8), body, np.frombuffer(last, np.uint8)])
    out = np.empty((len(words), 66), np.uint8)
    out[:, 2:] = np.unpackbits(words, axis=1, bitorder="little")
    out[:, :2] = DATA_HEADER
    out[[0, -1], :2] = CONTROL_HEADER
    return out


def scrambled(blocks: Bits, state: int = 2**58 - 1) -> Bits:
    """Return the blocks with their 64 bits scrambled; headers stay. ``state`` is the last 58 bits sent, newest lowest.

    Each bit out is the bit in, plus (modulo 2) the bits sent 39 and 58 before.
    """
    return _through(blocks, state, feedback=True)


def descrambled(blocks: Bits, state: int = 2**58 - 1) -> Bits:
    """Return what ``scrambled`` was given; from any ``state`` it is right after 58 bits.

    >>> blocks = blocks_64b66b(bytes(range(64)))
    >>> bool((descrambled(scrambled(blocks)) == blocks).all())
    True
    """
    return _through(blocks, state, feedback=False)


def _through(blocks: Bits, state: int, *, feedback: bool) -> Bits:
    history = np.array([state >> i & 1 for i in range(57, -1, -1)], np.uint8)
    given = blocks[:, 2:].reshape(-1)
    sent = np.concatenate([history, np.zeros_like(given) if feedback else given])
    near, far = _TAPS
    if feedback:
        # 39 bits at a time depend only on bits already sent.
        for start in range(0, len(given), near):
            stop = min(start + near, len(given))
            at = slice(58 + start, 58 + stop)
            sent[at] = (
                given[start:stop]
                ^ sent[58 + start - near : 58 + stop - near]
                ^ sent[58 + start - far : 58 + stop - far]
            )
        result = sent[58:]
    else:
        n = len(given)
        result = given ^ sent[58 - near : 58 - near + n] ^ sent[58 - far : 58 - far + n]
    out = blocks.copy()
    out[:, 2:] = result.reshape(-1, 64)
    return out


def block_lines(frame: bytes, count: int = 6) -> list[str]:
    """Return the first ``count`` blocks of a frame as lines of text: header, then 64 bits scrambled.

    >>> block_lines(bytes(64), 1)[1][:24]
    '10 control 0001111010101'
    """
    sent = scrambled(blocks_64b66b(frame))[:count]
    lines = [
        f"the first {len(sent)} blocks of 64b/66b, scrambled by x^58 + x^39 + 1, in the order of the wire:"
    ]
    for block in sent:
        kind = "control" if tuple(block[:2]) == CONTROL_HEADER else "data   "
        lines.append(f"{block[0]}{block[1]} {kind} {''.join(map(str, block[2:]))}")
    return lines
