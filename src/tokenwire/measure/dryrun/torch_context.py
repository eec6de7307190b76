"""Context parallelism: torch's ring attention around a stand-in kernel.

What goes round the ring is torch's own code (torch 2.13, torch/distributed/tensor/experimental/_context_parallel/_attention.py,
_templated_ring_attention and its backward); the attention kernel, which sends nothing and needs an accelerator, is replaced by
zeros of the right shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

from tokenwire.measure.dryrun.torch_model import Decoder, LatentSelfAttention, SelfAttention

_SEQUENCE = 2


def apply_ring(model: Decoder, group: Any, rotate_method: str) -> None:
    """Put ring attention over ``group`` in the place of every attention kernel of the model."""
    ring.set_rotate_method(rotate_method)
    for module in model.modules():
        if isinstance(module, (SelfAttention, LatentSelfAttention)):
            # The module stays, with what tensor parallelism does to its inputs.
            setattr(module.inner_attention, "forward", RingKernel(group).forward)  # noqa: B010


class RingKernel(nn.Module):
    """Attention whose keys and values go round the context-parallel ranks."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return attention over the whole sequence; shapes (b, heads, s/c, d)."""
        out: torch.Tensor = _Ring.apply(q, k, v, self.group)
        return out


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Any) -> torch.Tensor:
        out, lse, *_ = ring._templated_ring_attention(group, _SEQUENCE, _kernel, q, k, v, is_causal=True)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.group = group
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        grads = ring._templated_ring_attention_backward(
            ctx.group, _SEQUENCE, _kernel_backward, grad, "grad_out", q, k, v, out, lse, is_causal=True
        )
        return (*grads[:3], None)


def _kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
    return query.new_zeros(*query.shape[:-1], value.shape[-1]), torch.zeros(query.shape[:-1], dtype=torch.float32)


def _kernel_backward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
    return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
