"""Numbers of the model: seeded rows of the embedding, positions, and their bits in bfloat16.

Weights are drawn from N(0, 0.02²), as GPT-2 and Megatron (``init_method_std``) begin. Each row of a table has a place of
its own in a counter-based generator (Philox, Salmon et al. 2011), so one row of a table of 128,256 x 16,384 costs as
little as one of 1,000 x 256, and is the same whoever computes it.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint16]

STD = 0.02
"""Standard deviation of the initial weights."""


def draw(name: str, row: int, shape: int | tuple[int, ...], seed: int) -> Floats:
    """Return standard normal numbers for a row of the tensor ``name``: the same for the same name, row and seed."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(name.encode())], dtype=np.uint64)
    # The top word of the counter is the row: rows never meet, however long they are.
    counter = np.array([0, 0, 0, row], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key)).standard_normal(
        shape, dtype=np.float32
    )


def embedding_row(arch: Architecture, token_id: int, seed: int = 0) -> Floats:
    """Return the row of the token table for a token, float32[h]. Raises ``InputError`` for an id without a row.

    >>> from tokenwire.model import preset
    >>> embedding_row(preset("llama-3.1-405b"), 7).shape
    (16384,)
    """
    if not 0 <= token_id < arch.vocabulary_size:
        raise InputError(
            f"token id {token_id}", rule=f"the embedding has rows 0 to {arch.vocabulary_size - 1:,}",
            nearest=str(min(max(token_id, 0), arch.vocabulary_size - 1)),
        )  # fmt: skip
    return table_row("embedding.weight", token_id, arch.embedding_size or arch.hidden_size, seed)


def table_row(name: str, row: int, width: int, seed: int = 0) -> Floats:
    """Return one row of a table of weights, float32[width]."""
    return draw(name, row, width, seed) * np.float32(STD)


def table_rows(name: str, rows: npt.NDArray[Any], width: int, seed: int = 0) -> Floats:
    """Return rows of a table of weights, float32[len(rows), width]."""
    out = np.empty((len(rows), width), dtype=np.float32)
    for i, row in enumerate(rows.tolist()):
        out[i] = table_row(name, row, width, seed)
    return out


def learned_positions(arch: Architecture, positions: npt.NDArray[Any], seed: int = 0) -> Floats:
    """Return rows of the table of learned positions, float32[len(positions), h].

    Raises ``InputError`` for a position beyond the table.
    """
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < max(arch.max_positions, 1):
        raise InputError(
            f"position {int(positions.max()):,}", rule=f"the model has {arch.max_positions:,} learned positions",
            nearest=f"position {arch.max_positions - 1}",
        )  # fmt: skip
    return table_rows("position.weight", positions, arch.hidden_size, seed)


def sinusoidal_positions(positions: npt.NDArray[Any], hidden_size: int) -> Floats:
    """Return sinusoidal positions, float32[len(positions), h] (Vaswani et al. 2017, section 3.5).

    PE(p, 2i) = sin(p / 10000^(2i/h)), PE(p, 2i+1) = cos(p / 10000^(2i/h)).

    >>> sinusoidal_positions(np.array([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    even = np.arange(0, hidden_size, 2)
    angles = positions[:, None] / 10_000.0 ** (even / hidden_size)
    out = np.empty((len(positions), hidden_size), dtype=np.float32)
    out[:, 0::2] = np.sin(angles)
    out[:, 1::2] = np.cos(angles[:, : hidden_size // 2])
    return out


def rotary_angles(
    positions: npt.NDArray[Any], head_dim: int, theta: float = 10_000.0
) -> npt.NDArray[np.float64]:
    """Return the angles by which pairs of a head's numbers are turned, float64[len(positions), d/2] (Su et al. 2021, eq. 15).

    angle(p, i) = p · theta^(-2i/d).

    >>> rotary_angles(np.array([0, 2]), 4).tolist()
    [[0.0, 0.0], [2.0, 0.02]]
    """
    return positions[:, None] * theta ** (-np.arange(0, head_dim - head_dim % 2, 2) / head_dim)


def bfloat16_bits(values: npt.NDArray[np.float32]) -> Bits:
    """Return the bfloat16 bits of float32 numbers, uint16 of the same shape, rounded to nearest, ties to even.

    Too large becomes infinite, not-a-number stays so (quiet, with its sign).

    >>> [f"{bits:04x}" for bits in bfloat16_bits(np.float32([1.0, -2.0, 3.14159274, np.inf]))]
    ['3f80', 'c000', '4049', '7f80']
    """
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Half of the dropped range, less one where the kept part is even: that sends a tie to the even neighbour.
    rounded = (words + np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (words >> np.uint32(16)) | np.uint32(0x40)
    return (
        np.where((words & 0x7FFFFFFF) > 0x7F800000, quiet, rounded)
        .astype(np.uint16)
        .reshape(np.shape(values))
    )


def bfloat16_values(bits: npt.NDArray[np.uint16]) -> Floats:
    """Return the numbers that bfloat16 bits stand for, float32 of the same shape.

    >>> bfloat16_values(np.uint16([0x3F80, 0x4049])).tolist()
    [1.0, 3.140625]
    """
    return (np.asarray(bits, dtype=np.uint32) << np.uint32(16)).view(np.float32)
