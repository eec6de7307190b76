"""What Muon updates, and how its distributed forms share the tensors out among the ranks of data parallelism.

Muon keeps one moment of each matrix inside the layers and makes its update orthogonal, for which it needs the matrix whole;
embedding, head and vectors are AdamW's, with two moments (torch 2.13, torch/optim/_muon.py; karpathy/nanochat, nanochat/gpt.py,
setup_optimizers). ``muon`` is that on every rank. ``dist_muon``: Megatron deals tensors out by size (megatron-core 0.16.1,
optimizer/layer_wise_optimizer.py); nanochat stacks tensors of one shape and gives each rank as many of the stack
(karpathy/nanochat at 50413d2, nanochat/muon.py, DistMuon), and cuts AdamW's tensors by their first dimension, those of fewer than
1,024 elements excepted (nanochat/adamw.py, DistAdamW).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tokenwire.model.architecture import Tensor
from tokenwire.plan.training import TrainingConfig

PRODUCTS = ("mixer", "feed_forward", "shared_experts", "experts", "mtp")
"""Parts whose matrices multiply activations inside layers: those that run in fp8, and that Muon updates."""
SMALL = 1024
"""DistAdamW keeps tensors of fewer elements whole."""


def multiplies(tensor: Tensor) -> bool:
    """Return whether a tensor is a matrix that multiplies activations inside a layer."""
    return tensor.part in PRODUCTS and len(tensor.shape) > 1


def uses_muon(training: TrainingConfig) -> bool:
    """Return whether the optimizer is Muon, on every rank or shared out."""
    return training.optimizer in ("muon", "dist_muon")


@dataclass(frozen=True)
class Stack:
    """``count`` matrices of ``shape`` that DistMuon stacks; ``ranks`` get ``each`` of them, the last ones padding."""

    shape: tuple[int, ...]
    count: int
    ranks: int

    @property
    def matrix(self) -> int:
        """Return the elements of a matrix."""
        return self.shape[0] * self.shape[1]

    @property
    def each(self) -> int:
        """Return the matrices of a rank."""
        return -(-self.count // self.ranks)

    @property
    def elements(self) -> int:
        """Return the elements of the stack, with its padding."""
        return self.each * self.ranks * self.matrix


def stacks(held: Iterable[Tensor], ranks: int) -> tuple[Stack, ...]:
    """Return the stacks of the matrices among ``held``, in the order of their shapes; of experts each is a matrix.

    >>> stacks([Tensor(f"{i}", "mixer", (4, 4)) for i in range(9)], 8)[0].elements      # 9 matrices in 16 places
    256
    """
    found: Counter[tuple[int, ...]] = Counter()
    for tensor in held:
        if multiplies(tensor):
            found[tensor.shape[-2:]] += tensor.elements // (tensor.shape[-2] * tensor.shape[-1])
    return tuple(Stack(shape, count, ranks) for shape, count in sorted(found.items()))
