"""Reed-Solomon forward error correction of 200, 400 and 800 Gb/s: RS(544, 514) over GF(2^10), 15 symbols corrected.

The field is made by x^10 + x^3 + 1 with primitive element a = x; the code's generator is (x - a^0)(x - a^1) ... (x -
a^29). A codeword is 514 symbols of data and 30 of parity, highest power first.
Source: IEEE 802.3-2022, clauses 91.5.2.7 and 119.2.4.6.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Symbols = npt.NDArray[np.int64]

CODEWORD, DATA, BITS = 544, 514, 10
PARITY = CODEWORD - DATA
_MODULUS, _ORDER = 0x409, 2**BITS - 1


@cache
def _powers() -> tuple[Symbols, Symbols]:
    exp, log = np.zeros(2 * _ORDER, np.int64), np.zeros(_ORDER + 1, np.int64)
    value = 1
    for i in range(_ORDER):
        exp[i] = exp[i + _ORDER] = value
        log[value] = i
        value = value << 1 ^ (_MODULUS if value >> (BITS - 1) else 0)
    return exp, log


def product(a: npt.ArrayLike, b: npt.ArrayLike) -> Symbols:
    """Return a·b in GF(2^10), element by element.

    >>> int(product(2, 2**9))                                  # x · x^9 = x^10 = x^3 + 1
    9
    """
    exp, log = _powers()
    a, b = np.asarray(a), np.asarray(b)
    return np.where((a == 0) | (b == 0), 0, exp[log[a] + log[b]])


@cache
def generator() -> Symbols:
    """Return the coefficients of the generator polynomial, highest power first, the first of them 1."""
    exp, _ = _powers()
    poly = np.array([1], np.int64)
    for i in range(PARITY):
        poly = np.append(poly, 0) ^ np.append(0, product(poly, exp[i]))
    return poly


def parity(data: npt.ArrayLike) -> Symbols:
    """Return the 30 parity symbols of 514 data symbols (10 bits each).

    >>> codeword = np.append(np.arange(514), parity(np.arange(514)))
    >>> len(codeword), int(syndromes(codeword).max())
    (544, 0)
    """
    symbols = np.asarray(data, np.int64)
    if symbols.shape != (DATA,) or symbols.min() < 0 or symbols.max() > _ORDER:
        raise ValueError(f"needs {DATA} symbols of {BITS} bits")
    taps = generator()[1:]
    rest = np.zeros(PARITY, np.int64)
    for symbol in symbols:
        lead = int(symbol) ^ int(rest[0])
        rest = np.append(rest[1:], 0) ^ product(taps, lead)
    return rest


def syndromes(codeword: npt.ArrayLike) -> Symbols:
    """Return the 30 syndromes of a codeword: all 0 where it has no error."""
    exp, _ = _powers()
    points = exp[:PARITY]
    value = np.zeros(PARITY, np.int64)
    for symbol in np.asarray(codeword, np.int64):
        value = product(value, points) ^ int(symbol)
    return value
