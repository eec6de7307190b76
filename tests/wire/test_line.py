"""Line code, FEC and lanes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.wire.line import LINES, blocks_64b66b, descrambled, on_the_lane, parity, scrambled, syndromes


def test_line_rates_are_those_of_the_standards() -> None:
    # 400 Gb/s x 257/256 = 401.5625; x 544/514 = 425 Gb/s; 4 lanes of 106.25 Gb/s PAM4 = 53.125 GBd, 8 of 53.125 = 26.5625 GBd.
    assert LINES()["400gbase-r4"].symbols_per_second == 53.125e9
    assert LINES()["400gbase-r8"].symbols_per_second == 26.5625e9
    assert LINES()["800gbase-r8"].lane_bits_per_second == 106.25e9
    # 100 Gb/s x 257/256 x 528/514 = 103.125; 4 lanes of 25.78125 GBd, as without FEC (66/64).
    assert LINES()["100gbase-r4"].symbols_per_second == 25.78125e9
    assert LINES()["edr"].symbols_per_second == 25.78125e9


@given(st.integers(0, 2**40), st.sampled_from(sorted(LINES())))
def test_time_by_bytes_is_time_by_symbols(wire_bytes: int, name: str) -> None:
    lane, line = on_the_lane(wire_bytes, name), LINES()[name]
    assert lane.symbols_per_lane / line.symbols_per_second == pytest.approx(
        lane.seconds, rel=1e-12, abs=1e-10
    )
    assert lane.bits_per_lane * line.lanes >= lane.bits >= wire_bytes * 8


def test_unknown_line() -> None:
    with pytest.raises(InputError, match="nearest that works: 400gbase-r4"):
        on_the_lane(1, "400gbase-4")


@given(st.binary(max_size=300))
def test_blocks_hold_the_frame(frame: bytes) -> None:
    blocks = blocks_64b66b(frame)
    # Start block with 8 bytes (one of them the type), then the frame in eights, then a terminate block.
    assert len(blocks) == 2 + len(frame) // 8
    body = np.packbits(blocks[:, 2:], axis=1, bitorder="little")
    rest = len(frame) % 8
    assert body[1:-1].tobytes() + body[-1, 1 : 1 + rest].tobytes() == frame
    assert body[0, 0] == 0x78
    assert (blocks[1:-1, :2] == [0, 1]).all()


@given(st.binary(max_size=200), st.integers(0, 2**58 - 1))
def test_scrambling_is_undone(frame: bytes, state: int) -> None:
    blocks = blocks_64b66b(frame)
    sent = scrambled(blocks, state)
    assert (descrambled(sent, state) == blocks).all()
    # Self-synchronising: with any other state only the first 58 bits can be wrong.
    assert (descrambled(sent, 0).reshape(-1, 66)[1:] == blocks[1:]).all()


def test_the_scrambler_by_hand() -> None:
    # State all ones, zeros in: bit 0 is 0 + s(39) + s(58) = 1 + 1 = 0, and so on for 39 bits; bit 39 = out(0) + s(58) = 0 + 1 = 1.
    blocks = np.zeros((1, 66), np.uint8)
    out = scrambled(blocks)[0, 2:]
    assert out[:39].sum() == 0
    assert out[39:58].tolist() == [1] * 19
    # Bit 58: out(19) + out(0) = 0.
    assert out[58:].tolist() == [0] * 6


@settings(max_examples=10)
@given(st.lists(st.integers(0, 1023), min_size=514, max_size=514), st.integers(0, 543), st.integers(1, 1023))
def test_reed_solomon_sees_every_single_error(data: list[int], place: int, error: int) -> None:
    codeword = np.append(data, parity(data))
    assert not syndromes(codeword).any()
    codeword[place] ^= error
    assert syndromes(codeword).all()


def test_reed_solomon_generator_is_the_standards() -> None:
    from tokenwire.wire.line.reed_solomon import generator

    # IEEE 802.3, table 91-1, column RS(544,514): g0, g1, g2 ...
    assert generator()[::-1][:10].tolist() == [523, 834, 128, 158, 185, 127, 392, 193, 610, 788]
