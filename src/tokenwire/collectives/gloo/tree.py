"""Gloo's broadcast: a binomial tree in which those who have the tensor double in each round.

Source: pytorch/gloo, gloo/broadcast.cc.
"""

from __future__ import annotations

import numpy as np

from tokenwire.collectives.gloo.pairs import pairs
from tokenwire.collectives.tables import Table


def broadcast(n: int, S: int, root: int) -> Table:
    """Return who sends what: in round i places 0 to 2^i - 1 (the root is place 0) send to the place 2^i on.

    >>> broadcast(4, 10, 0)[["src", "dst", "payload"]].tolist()
    [(0, 1, 10), (0, 2, 10), (1, 3, 10)]
    """
    child = np.arange(1, n, dtype=np.int64)
    # A place is reached in the round of its highest bit, from the place without that bit.
    parent = child - (1 << (np.frexp(child)[1] - 1)).astype(np.int64)
    return pairs((parent + root) % n, (child + root) % n, S, 1)
