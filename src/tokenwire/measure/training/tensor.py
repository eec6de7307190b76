"""What tensor parallelism says where sequences stay whole: sums of activations, and those of the loss.

Symbols: b micro-batch, s sequence, h hidden, L layers, m micro-batches; q of a layer the products that are cut by columns (queries, keys,
values, gate, up; one where they are fused). Forward sums the embedding and two outputs a layer; backward sums the gradient of the input
of each product that is cut by columns, also of the head; each of b·s·h. The loss sums maxima, exponentials and the wanted logits, each of b·s.
Source: torch 2.13, torch/distributed/tensor/parallel/style.py (ColwiseParallel, RowwiseParallel) and loss.py (_log_softmax, _nll_loss_forward).
"""

from __future__ import annotations

from tokenwire.model.architecture import Architecture, Attention, FeedForward, Layer
from tokenwire.plan import Plan


def sums(arch: Architecture, plan: Plan) -> list[tuple[int, int]]:
    """Return the all_reduces of a step over all ranks, in fp32: (elements, how many of these)."""
    t, m, L = plan.training, plan.micro_batches, len(arch.layers)
    tokens = t.micro_batch * t.sequence_length
    forward, backward = 1 + 2 * L, 1 + sum(map(_columns, arch.layers))
    return [(tokens * arch.hidden_size, m * (forward + backward)), (tokens, 3 * m)]


def _columns(layer: Layer) -> int:
    assert isinstance(layer.mixer, Attention)
    assert isinstance(layer.feed_forward, FeedForward)
    gates = 2 if layer.feed_forward.gated and not layer.feed_forward.fused else 1
    return (1 if layer.mixer.fused_qkv else 3) + gates
