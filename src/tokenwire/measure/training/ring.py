"""Context parallelism for real: torch's ring attention around torch's attention kernel for CPUs.

What goes round is torch's own code (torch 2.13, torch/distributed/tensor/experimental/_context_parallel/_attention.py), which knows kernels
of accelerators only; the one for CPUs is put in their place. Ranks hold the first and the last of what is left of the sequence, so that all have
as much to do: of 2c pieces rank r has pieces r and 2c-1-r.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

from tokenwire.measure.dryrun.torch_model import Decoder, SelfAttention

_SEQUENCE = 2


def own_part(rows: torch.Tensor, c: int, r: int) -> torch.Tensor:
    """Return what rank r of c holds of rows, shape (b, s) to (b, s/c).

    >>> own_part(torch.arange(8)[None, :], 2, 0).tolist()
    [[0, 1, 6, 7]]
    """
    pieces = rows.chunk(2 * c, dim=1)
    return torch.cat((pieces[r], pieces[2 * c - 1 - r]), dim=1)


def attend_in_ring(model: Decoder, group: Any, s: int) -> None:
    """Put the ring with a real kernel in the place of every attention of a decoder; ``s`` is the whole sequence."""
    c, r = group.size(), group.rank()
    held = own_part(torch.arange(s)[None, :], c, r)[0]
    moved = held - torch.arange(len(held))
    for module in model.modules():
        if isinstance(module, SelfAttention):
            module.inner_attention = Ring(group, moved if module.rotary else None)


class Ring(nn.Module):
    """Causal attention over the whole sequence; the decoder has turned queries and keys by their places here, ``moved`` is what is missing."""

    def __init__(self, group: Any, moved: torch.Tensor | None) -> None:
        super().__init__()
        self.group, self.moved = group, moved

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return attention; shapes (b, heads, s/c, d)."""
        if self.moved is not None:
            q, k = _turned(q, self.moved), _turned(k, self.moved)
        out: torch.Tensor = _Attention.apply(q, k, v, self.group)
        return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Any) -> torch.Tensor:
        out, lse, *_ = ring._templated_ring_attention(group, _SEQUENCE, _kernel, q, k, v, is_causal=True)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        grads = ring._templated_ring_attention_backward(
            ctx.group, _SEQUENCE, _kernel_backward, grad, "grad_out", q, k, v, out, lse, is_causal=True
        )
        return (*grads[:3], None)


def _kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool) -> Any:
    times = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(times, dim=1) for x in (key, value))
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal)


def _kernel_backward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor, logsumexp: torch.Tensor, grad_out: torch.Tensor, *,
    is_causal: bool,
) -> Any:  # fmt: skip
    shape = (key.shape[0], key.shape[1], query.shape[1] // key.shape[1], *key.shape[2:])
    key, value = (x.repeat_interleave(shape[2], dim=1) for x in (key, value))
    grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out.contiguous(), query, key, value, out.contiguous(), logsumexp.contiguous(), 0.0, is_causal
    )
    return grads[0], *(grad.reshape(shape).sum(dim=2) for grad in grads[1:])


def _turned(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    angle = by[:, None] / (torch.arange(half) + 1.0)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, x[..., 2 * half :]), dim=-1)
