"""A matrix of bytes from a CSV file: a line for each sender, a whole number for each receiver."""

from __future__ import annotations

import numpy as np

from tokenwire.collectives.algorithm import MOST_BYTES
from tokenwire.collectives.tables import Ints
from tokenwire.collectives.uneven import check_matrix
from tokenwire.errors import InputError
from tokenwire.files import read_limited

LARGEST_FILE = 64 << 20


def read_matrix(path: str, ranks: int | None = None) -> Ints:
    """Return the matrix of the file, int64[n, n] (``ranks`` is n, where it is said). Empty lines at the end do not count.

    Raises ``InputError`` in one line for a file that is not there or too large, for lines that differ, for what is no whole number
    from zero on, for a matrix that is not square or not of ``ranks``.
    """
    data = read_limited(path, limit=LARGEST_FILE, what="matrix")
    try:
        lines = data.decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError:
        raise InputError(f"matrix {path!r}", rule="is not text", nearest="a CSV file of whole numbers") from None
    if not lines:
        raise InputError(f"matrix {path!r}", rule="is empty", nearest="a line for each sender, a number for each receiver")
    n = len(lines)
    if ranks is not None and n != ranks:
        raise InputError(f"--ranks {ranks:,}", rule=f"matrix {path!r} has {n:,} lines", nearest=f"--ranks {n}")
    matrix = np.zeros((n, n), dtype=np.int64)
    for i, line in enumerate(lines):
        cells = line.split(",")
        if len(cells) != n:
            raise InputError(f"line {i + 1} of matrix {path!r}", rule=f"has {len(cells):,} numbers, the matrix {n:,} lines: must be square")
        matrix[i] = [_whole(cell, i, j) for j, cell in enumerate(cells)]
    check_matrix(matrix)
    return matrix


def _whole(cell: str, i: int, j: int) -> int:
    text = cell.strip()
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MOST_BYTES:
        return int(text)
    raise InputError(f"{text[:40]!r} in line {i + 1}, column {j + 1} of the matrix", rule="must be a whole number of bytes, 0 to 2^60",
                     nearest="0")  # fmt: skip
