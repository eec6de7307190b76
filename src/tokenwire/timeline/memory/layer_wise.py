"""State of an optimizer that whole tensors are shared out of, as Muon needs them whole: each rank has that of some tensors.

Tensors are sorted by size and given to the ranks of data parallelism to and fro, ranks 0, 1 ... n-1, n-1 ... 1, 0 (megatron-core,
optimizer/layer_wise_optimizer.py, LayerWiseDistributedOptimizer, ``_shard_params_ping_pong``), so that ranks differ.
"""

from __future__ import annotations

from collections.abc import Sequence

MATRIX, OTHER = 8, 12
"""Bytes of state of an element that Muon updates (master copy and momentum), and of one that Adam does."""


def state(elements: int, matrix: bool) -> int:
    """Return the bytes of state of a tensor."""
    return elements * (MATRIX if matrix else OTHER)


def shared_out(tensors: Sequence[tuple[int, bool]], ranks: int) -> tuple[int, ...]:
    """Return the bytes of state of each rank, of tensors given as elements and whether Muon updates them.

    >>> shared_out([(1, True), (2, True), (3, True), (4, False)], 2)
    (56, 40)
    """
    out = [0] * ranks
    for turn, (elements, matrix) in enumerate(sorted(tensors, key=lambda tensor: tensor[0])):
        lap, place = divmod(turn, ranks)
        out[place if lap % 2 == 0 else ranks - 1 - place] += state(elements, matrix)
    return tuple(out)
