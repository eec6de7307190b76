"""Seeded rows, bfloat16, positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenwire.errors import InputError
from tokenwire.model import (
    bfloat16_bits,
    bfloat16_values,
    embedding_row,
    learned_positions,
    preset,
    rotary_angles,
    sinusoidal_positions,
)
from tokenwire.model.vectors import table_rows


def test_a_row_is_the_same_alone_and_in_the_table():
    arch = preset("dante", 50)
    table = table_rows("embedding.weight", np.arange(50), 256, seed=3)
    for token in (0, 17, 49):
        assert np.array_equal(table[token], embedding_row(arch, token, seed=3))
    assert not np.array_equal(embedding_row(arch, 1, seed=3), embedding_row(arch, 1, seed=4))
    assert len({row.tobytes() for row in table}) == 50


def test_rows_are_normal_with_the_initial_deviation():
    table = table_rows("embedding.weight", np.arange(200), 1024)
    # 204,800 numbers: the mean is within 5·0.02/sqrt(204800) = 2.2e-4, the deviation within 5·0.02/sqrt(2·204800) = 1.6e-4.
    assert abs(table.mean()) < 2.3e-4
    assert abs(table.std() - 0.02) < 1.6e-4
    # Neighbouring rows do not depend on each other: |r| < 5/sqrt(199·1024)
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.012


def test_rows_of_the_largest_table_are_there():
    assert embedding_row(preset("llama-3.1-405b"), 128_255).shape == (16_384,)


@pytest.mark.parametrize("token", [-1, 1000, 10**12])
def test_an_id_without_a_row_is_an_error(token):
    with pytest.raises(InputError, match="rows 0 to 999"):
        embedding_row(preset("dante", 1000), token)


def test_bfloat16_by_hand():
    # 1 + 2^-8 lies between 1 (0x3f80) and 1 + 2^-7 (0x3f81): a tie, to even. 1 + 3·2^-8 ties up to 0x3f82.
    values = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -0.0, np.inf, -np.inf, 3.4e38])
    assert [f"{bits:04x}" for bits in bfloat16_bits(values)] == [
        "3f80",
        "3f82",
        "3f81",
        "8000",
        "7f80",
        "ff80",
        "7f80",
    ]


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000])
def test_not_a_number_stays_so(bits):
    out = bfloat16_bits(np.array([bits], dtype=np.uint32).view(np.float32))
    assert np.isnan(bfloat16_values(out)[0])
    assert int(out[0]) >> 15 == bits >> 31


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_is_the_nearest(value):
    bits = int(bfloat16_bits(np.float32([value]))[0])
    got = float(bfloat16_values(np.uint16([bits]))[0])
    if np.isinf(got):
        # Beyond the largest finite number and half a step: (2 - 2^-7 + 2^-8)·2^127
        assert abs(value) >= (2 - 2**-8) * 2.0**127
        return
    for near in (bits - 1, bits + 1):
        if 0 <= near <= 0xFFFF and np.isfinite(other := float(bfloat16_values(np.uint16([near]))[0])):
            assert abs(value - got) <= abs(value - other)


@given(st.integers(0, 0xFFFF))
def test_bfloat16_round_trips(bits):
    value = bfloat16_values(np.uint16([bits]))
    if not np.isnan(value[0]):
        assert int(bfloat16_bits(value)[0]) == bits


@pytest.mark.torch
def test_bfloat16_is_that_of_torch():
    import torch

    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(bfloat16_bits(values), theirs)


def test_bits_keep_their_shape():
    assert bfloat16_bits(np.zeros((2, 3), np.float32)).shape == (2, 3)
    assert bfloat16_bits(np.float32(1.0)).shape == ()


def test_positions():
    arch = preset("dante", 10)
    assert learned_positions(arch, np.arange(4)).shape == (4, 256)
    with pytest.raises(InputError, match="256 learned positions"):
        learned_positions(arch, np.array([256]))
    table = sinusoidal_positions(np.array([3]), 6)[0]
    # sin and cos of 3, 3/10000^(1/3), 3/10000^(2/3)
    angles = [3 / 10_000 ** (i / 3) for i in range(3)]
    assert np.allclose(table, [f(a) for a in angles for f in (np.sin, np.cos)], atol=1e-7)
    assert sinusoidal_positions(np.array([1]), 5).shape == (1, 5)
    assert np.allclose(rotary_angles(np.array([5]), 8, 100.0)[0], [5 * 100 ** (-i / 4) for i in range(4)])
