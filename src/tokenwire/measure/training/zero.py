"""Which rank updates which parameter under ZeroRedundancyOptimizer, and so broadcasts it after each step.

Largest first, each parameter goes to the rank that has least so far; each is broadcast by itself. Source: torch 2.13,
torch/distributed/optim/zero_redundancy_optimizer.py (_partition_parameters, _sync_params).
"""

from __future__ import annotations

from collections import Counter

from tokenwire.model.architecture import Architecture
from tokenwire.model.tensors import tensors

FP32 = 4


def broadcasts(arch: Architecture, n: int) -> list[tuple[int, int, int]]:
    """Return the broadcasts of a step among n ranks: (owner, bytes, how many of these)."""
    held, out = [0] * n, Counter[tuple[int, int]]()
    for elements in sorted((tensor.elements for tensor in tensors(arch)), reverse=True):
        owner = held.index(min(held))
        held[owner] += elements
        out[owner, elements * FP32] += 1
    return [(owner, size, count) for (owner, size), count in out.items()]
