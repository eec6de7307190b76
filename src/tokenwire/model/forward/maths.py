"""The functions between the products: norms, activations, rotary turns, causal attention. All float32."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tokenwire.errors import unknown
from tokenwire.model.architecture import Norm
from tokenwire.model.vectors import Floats, rotary_angles

_EPSILON = np.float32(1e-5)


def normalised(x: Floats, norm: Norm, bias: Floats | None) -> Floats:
    """Return LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over the last axis, weights being ones."""
    if norm.kind == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    scaled: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + _EPSILON)
    return scaled if bias is None else scaled + bias


def gelu(x: Floats) -> Floats:
    """Return GELU by its tanh approximation (Hendrycks and Gimpel 2016), as GPT-2 has it."""
    # x·√(2/π)·(1 + 0.044715·x²), in one array.
    inner: Floats = x * x
    inner *= np.float32(0.044715 * math.sqrt(2 / math.pi))
    inner += np.float32(math.sqrt(2 / math.pi))
    inner *= x
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= np.float32(0.5)
    return inner


def silu(x: Floats) -> Floats:
    """Return x·sigmoid(x)."""
    # Where exp(-x) would not fit into float32, the result is 0 to the last bit anyway.
    out: Floats = x / (1 + np.exp(np.minimum(-x, np.float32(80))))
    return out


def relu(x: Floats) -> Floats:
    """Return max(x, 0)."""
    return np.maximum(x, np.float32(0))


def relu2(x: Floats) -> Floats:
    """Return max(x, 0)²."""
    positive = relu(x)
    return positive * positive


_ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "gelu": gelu, "gelu_new": gelu, "gelu_pytorch_tanh": gelu, "gelu_fast": gelu, "silu": silu, "swish": silu,
    "relu": relu, "relu2": relu2,
}  # fmt: skip


def activation(name: str) -> Callable[[Floats], Floats]:
    """Return an activation by name. Raises ``InputError`` with the known names."""
    if name not in _ACTIVATIONS:
        raise unknown("activation", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def turned(x: Floats, theta: float) -> Floats:
    """Return queries or keys [s, b, heads, d], each pair (i, i + d/2) turned by its position's angle."""
    s, d = x.shape[0], x.shape[-1]
    half = d // 2
    angles = rotary_angles(np.arange(s), d, theta).astype(np.float32)[:, None, None, :]
    cos, sin = np.cos(angles), np.sin(angles)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


BLOCK = 64
"""Queries that are worked on together."""


def causal_attention(q: Floats, k: Floats, v: Floats, window: int | None = None) -> Floats:
    """Return softmax(q·kᵀ/√d)·v under a causal mask: q [s, b, a, d], k and v [s, b, g, d], out [s, b, a·d].

    Query head i looks at KV head i·g/a. ``window`` lets a token see only itself and the window - 1 tokens before it.
    """
    s, b, a, d = q.shape
    g, d_v = k.shape[2], v.shape[3]
    # [b, g, a/g, s, d] x [b, g, 1, d, s]
    queries = q.transpose(1, 2, 0, 3).reshape(b, g, a // g, s, d) * np.float32(1 / math.sqrt(d))
    keys = k.transpose(1, 2, 3, 0)[:, :, None]
    values = v.transpose(1, 2, 0, 3)[:, :, None]
    out = np.empty((b, g, a // g, s, d_v), dtype=np.float32)
    place = np.arange(s)
    # A block of queries looks at no key behind its end: almost half of the products are spared.
    for start in range(0, s, BLOCK):
        end = min(start + BLOCK, s)
        scores = queries[..., start:end, :] @ keys[..., :end]
        hidden = place[None, :end] > place[start:end, None]
        if window is not None:
            hidden |= place[None, :end] <= place[start:end, None] - window
        np.copyto(scores, -np.inf, where=hidden)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        total = scores.sum(axis=-1, keepdims=True)
        np.divide(scores @ values[..., :end, :], total, out=out[..., start:end, :])
    return np.ascontiguousarray(out.reshape(b, a, s, d_v).transpose(2, 0, 1, 3)).reshape(s, b, a * d_v)
