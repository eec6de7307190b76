"""A decoder in plain torch, built from an ``Architecture``: what the dry runs of torch's frameworks run.

Parameters are registered in the order of ``model.tensors``. Attention with grouped KV heads, gated or plain feed-forward,
RMSNorm or LayerNorm, rotary or learned positions, tied or untied head; modules are named as in torchtitan's Llama.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tokenwire.errors import InputError
from tokenwire.model.architecture import (
    Architecture,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Norm,
)


def require_plain(arch: Architecture, *, experts: bool = False) -> None:
    """Raise ``InputError`` for a model that this decoder cannot be; ``experts``: whether mixtures are built."""
    for layer in arch.kinds:
        mixer, feed = layer.mixer, layer.feed_forward
        if isinstance(mixer, LatentAttention):
            plain = experts and not mixer.qkv_bias and not mixer.output_bias and arch.norm.kind == "rms"
        else:
            plain = isinstance(mixer, Attention) and mixer.qk_norm in ("none", "head") and not mixer.sinks and not mixer.gate
        fed = isinstance(feed, FeedForward) or (experts and isinstance(feed, Experts) and _plain_experts(feed))
        if not plain or not fed or layer.norms != 2 or layer.parallel:
            raise InputError(f"model {arch.name}", rule=f"this dry run builds decoders of plain {'or latent ' if experts else ''}attention, "
                             f"{'gated experts or ' if experts else ''}dense feed-forward and two norms a layer")  # fmt: skip
    if arch.embedding_size or arch.mtp_layers or arch.embedding_norm:
        raise InputError(f"model {arch.name}", rule="the dry run builds decoders without extra projections or layers")


def _plain_experts(e: Experts) -> bool:
    shared = e.shared is None or (e.shared.gated and not e.shared.bias and not e.shared.fused)
    return shared and e.gated and not (e.bias or e.router_bias or e.correction_parameter or e.shared_gate or e.latent_size)


def make_norm(norm: Norm, size: int) -> nn.Module:
    """Return the normalisation over ``size`` numbers."""
    if norm.kind == "rms":
        return nn.RMSNorm(size, elementwise_affine=norm.weight)
    return nn.LayerNorm(size, elementwise_affine=norm.weight, bias=norm.bias)


class SelfAttention(nn.Module):
    """Queries, keys, values (or one fused product), the kernel, the output projection."""

    def __init__(self, hidden: int, a: Attention, rotary: bool) -> None:
        super().__init__()
        self.a, self.rotary = a, rotary
        q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
        if a.fused_qkv:
            self.qkv = nn.Linear(hidden, q + 2 * kv, bias=a.qkv_bias)
        else:
            self.wq = nn.Linear(hidden, q, bias=a.qkv_bias)
            self.wk = nn.Linear(hidden, kv, bias=a.qkv_bias and a.key_bias)
            self.wv = nn.Linear(hidden, kv, bias=a.qkv_bias)
        self.wo = nn.Linear(q, hidden, bias=a.output_bias)
        self.q_norm: Any = nn.RMSNorm(a.head_dim) if a.qk_norm == "head" else None
        self.k_norm: Any = nn.RMSNorm(a.head_dim) if a.qk_norm == "head" else None
        self.inner_attention = Kernel()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return attention over ``x``, shape (b, s, h); with tensor parallelism over this rank's heads."""
        batch, length, d = x.shape[0], x.shape[1], self.a.head_dim
        if self.a.fused_qkv:
            product = self.qkv(x)
            per_group = self.a.heads // self.a.kv_heads
            width = product.shape[-1] // (per_group + 2)
            q, k, v = product.split([per_group * width, width, width], dim=-1)
        else:
            q, k, v = self.wq(x), self.wk(x), self.wv(x)
        q, k, v = (y.reshape(batch, length, -1, d) for y in (q, k, v))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        out = self.inner_attention(q, k, v)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class LatentSelfAttention(nn.Module):
    """Queries, keys and values out of compressed ones (DeepSeek V3), in the order of torchtitan's models/deepseek_v3/model/model.py."""

    def __init__(self, hidden: int, a: LatentAttention) -> None:
        super().__init__()
        self.a = a
        width = a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
        if a.q_lora_rank is None:
            self.wq = nn.Linear(hidden, width, bias=False)
        else:
            self.wq_a = nn.Linear(hidden, a.q_lora_rank, bias=False)
            self.q_norm = nn.RMSNorm(a.q_lora_rank)
            self.wq_b = nn.Linear(a.q_lora_rank, width, bias=False)
        self.wkv_a = nn.Linear(hidden, a.kv_lora_rank + a.qk_rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(a.kv_lora_rank)
        self.wkv_b = nn.Linear(a.kv_lora_rank, a.heads * (a.qk_nope_head_dim + a.v_head_dim), bias=False)
        self.wo = nn.Linear(a.heads * a.v_head_dim, hidden, bias=False)
        self.inner_attention = Kernel()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return attention over ``x``, shape (b, s, h); with tensor parallelism products stay DTensors up to the kernel."""
        a, batch, length = self.a, x.shape[0], x.shape[1]
        q = self.wq(x) if a.q_lora_rank is None else self.wq_b(self.q_norm(self.wq_a(x)))
        q = q.view(batch, length, -1, a.qk_nope_head_dim + a.qk_rope_head_dim)
        q_plain, q_turned = torch.split(q, [a.qk_nope_head_dim, a.qk_rope_head_dim], dim=-1)
        q = torch.cat([q_plain, _turned(q_turned)], dim=-1)
        kv, k_turned = torch.split(self.wkv_a(x), [a.kv_lora_rank, a.qk_rope_head_dim], dim=-1)
        k_turned = _turned(k_turned.unsqueeze(2))
        kv = self.wkv_b(self.kv_norm(kv)).view(batch, length, -1, a.qk_nope_head_dim + a.v_head_dim)
        k_plain, v = torch.split(kv, [a.qk_nope_head_dim, a.v_head_dim], dim=-1)
        k = torch.cat([k_plain, k_turned.expand(-1, -1, a.heads, -1)], dim=-1)
        out = self.inner_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        out = out.transpose(1, 2).contiguous().view(batch, length, -1)
        return self.wo(out)


def _turned(x: torch.Tensor) -> torch.Tensor:
    # The rotation multiplies pairs by numbers of unit length, which every rank has; what it is multiplied with moves nothing.
    turned = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(turned * 1j).flatten(3).to(x.dtype)


class Kernel(nn.Module):
    """The attention kernel by itself, so that context parallelism has a place to step in."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return causal attention; shapes (b, heads, s, d)."""
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def _rotated(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] / (torch.arange(half, device=x.device) + 1.0)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat((a * cos - b * sin, a * sin + b * cos, x[..., 2 * half :]), dim=-1)


class FeedForwardBlock(nn.Module):
    """Gated: w2(silu(w1 x)·w3 x); plain: w2(gelu(w1 x)); registered gate, up, down."""

    def __init__(self, hidden: int, f: FeedForward) -> None:
        super().__init__()
        self.f = f
        if f.gated and f.fused:
            self.w13 = nn.Linear(hidden, 2 * f.width, bias=f.bias)
        else:
            self.w1 = nn.Linear(hidden, f.width, bias=f.bias)
            if f.gated:
                self.w3 = nn.Linear(hidden, f.width, bias=f.bias)
        self.w2 = nn.Linear(f.width, hidden, bias=f.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the feed-forward part of ``x``."""
        if self.f.gated and self.f.fused:
            gate, up = self.w13(x).chunk(2, dim=-1)
            return self.w2(F.silu(gate) * up)
        return self.w2(F.silu(self.w1(x)) * self.w3(x) if self.f.gated else F.gelu(self.w1(x)))


class Block(nn.Module):
    """Norm, attention, norm, feed-forward, with residuals."""

    def __init__(self, arch: Architecture, layer: Layer) -> None:
        super().__init__()
        self.attention_norm = make_norm(arch.norm, arch.hidden_size)
        self.attention: Any
        if isinstance(layer.mixer, LatentAttention):
            self.attention = LatentSelfAttention(arch.hidden_size, layer.mixer)
        else:
            assert isinstance(layer.mixer, Attention)
            self.attention = SelfAttention(arch.hidden_size, layer.mixer, arch.positions == "rotary")
        self.ffn_norm = make_norm(arch.norm, arch.hidden_size)
        self.feed_forward: Any
        if isinstance(layer.feed_forward, Experts):
            from tokenwire.measure.dryrun.torch_experts import Mixture

            self.feed_forward = Mixture(arch.hidden_size, layer.feed_forward)
        else:
            assert isinstance(layer.feed_forward, FeedForward)
            self.feed_forward = FeedForwardBlock(arch.hidden_size, layer.feed_forward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output; shape (b, s, h)."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    """A decoder, or the part of it that a pipeline stage keeps (``layers``, with or without embedding and head)."""

    def __init__(
        self, arch: Architecture, layers: Iterable[int] | None = None, *, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        require_plain(arch, experts=True)
        kept = range(len(arch.layers)) if layers is None else layers
        self.tok_embeddings: Any = nn.Embedding(arch.vocabulary_size, arch.hidden_size) if first else None
        self.positions: Any = None
        if first and arch.positions == "learned":
            self.positions = nn.Embedding(arch.max_positions + arch.position_offset, arch.hidden_size)
        self.layers = nn.ModuleDict({str(index): Block(arch, arch.layers[index]) for index in kept})
        self.norm: Any = make_norm(arch.norm, arch.hidden_size) if last and arch.final_norm else None
        head = nn.Linear(arch.hidden_size, arch.vocabulary_size, bias=arch.head_bias)
        self.output = head if last else None
        if first and last and arch.tied_embeddings:
            head.weight = self.get_parameter("tok_embeddings.weight")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (or the stage's activations) of token ids (or of activations)."""
        if self.tok_embeddings is not None:
            ids = x
            x = self.tok_embeddings(ids)
            if self.positions is not None:
                x = x + self.positions(torch.arange(ids.shape[1], device=ids.device)[None, :])
        for layer in self.layers.values():
            x = layer(x)
        if self.norm is not None:
            x = self.norm(x)
        return self.output(x) if self.output is not None else x
