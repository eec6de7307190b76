"""The parts of a model in words, and its tensors as a table."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tokenwire.model.architecture import (
    Architecture,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
    StateSpace,
    TokenMixer,
)
from tokenwire.model.tensors import Layout, tensors

if TYPE_CHECKING:
    import polars as pl


def mixer_in_words(mixer: Mixer | None) -> str:
    """Return what a mixer is, in the field's words.

    >>> mixer_in_words(Attention(heads=32, kv_heads=8, head_dim=128))
    'attention: 32 heads, 8 KV heads, d = 128'
    """
    if isinstance(mixer, Attention):
        heads = f"{mixer.heads} heads" + (
            f", {mixer.kv_heads} KV heads" if mixer.kv_heads != mixer.heads else ""
        )
        window = f", window {mixer.window:,}" if mixer.window else ""
        return f"attention: {heads}, d = {mixer.head_dim}{window}"
    if isinstance(mixer, LatentAttention):
        query = f"query rank {mixer.q_lora_rank:,}, " if mixer.q_lora_rank else ""
        index = f", {mixer.indexer.top_k:,} tokens chosen" if mixer.indexer else ""
        return f"latent attention: {mixer.heads} heads, {query}KV rank {mixer.kv_lora_rank:,}{index}"
    if isinstance(mixer, StateSpace):
        return (
            f"Mamba{' 2' if mixer.version == 2 else ''}: width {mixer.inner_size:,}, state {mixer.state_size}"
        )
    if isinstance(mixer, DeltaNet):
        return f"gated delta net: {mixer.value_heads} heads, d = {mixer.value_head_dim}"
    if isinstance(mixer, TokenMixer):
        return f"{mixer.kind}: {mixer.heads:,} {'channels' if mixer.kind in ('short convolution', 'linear') else 'heads'}"
    return ""


def feed_forward_in_words(part: FeedForward | Experts | TokenMixer | None) -> str:
    """Return what a feed-forward part is, in the field's words.

    >>> feed_forward_in_words(FeedForward(14336, gated=True, activation="silu"))
    'SwiGLU, f = 14,336'
    """
    if isinstance(part, FeedForward):
        return f"{_activation(part.activation, part.gated)}, f = {part.width:,}"
    if isinstance(part, Experts):
        shared = f", shared f = {part.shared.width:,}" if part.shared else ""
        latent = f" on {part.latent_size:,} numbers a token" if part.latent_size else ""
        return f"{part.count} experts, {part.active} active, f = {part.width:,}{latent}{shared}"
    if isinstance(part, TokenMixer):
        return f"{part.kind} in place of a feed-forward part"
    return ""


def _activation(name: str, gated: bool) -> str:
    plain = "gelu" if name.startswith("gelu") else name
    if gated:
        return {"silu": "SwiGLU", "gelu": "GeGLU"}.get(plain, f"gated {plain}")
    return {"silu": "SiLU", "gelu": "GELU", "relu": "ReLU", "relu2": "ReLU²"}.get(plain, plain)


def indices_in_words(indices: list[int]) -> str:
    """Return layer indices as ranges, with a step where they have one; long lists are cut.

    >>> indices_in_words([0, 1, 2]), indices_in_words([1, 3, 5, 7]), indices_in_words([4])
    ('0-2', '1, 3 ... 7', '4')
    """
    if len(indices) == 1:
        return str(indices[0])
    steps = {b - a for a, b in pairwise(indices)}
    if steps == {1}:
        return f"{indices[0]}-{indices[-1]}"
    if len(indices) <= 3:
        return ", ".join(map(str, indices))
    return f"{indices[0]}, {indices[1]} ... {indices[-1]}"


def tensor_table(arch: Architecture, layout: Layout = "separate") -> pl.DataFrame:
    """Return one row a tensor: ``name, part, layer, shape, elements, split, split_dim``."""
    import polars as pl

    rows = tensors(arch, layout)
    return pl.DataFrame(
        {
            "name": [t.name for t in rows],
            "part": [t.part for t in rows],
            "layer": pl.Series([t.layer for t in rows], dtype=pl.Int64),
            "shape": [" x ".join(map(str, t.shape)) for t in rows],
            "elements": pl.Series([t.elements for t in rows], dtype=pl.Int64),
            "split": [t.split for t in rows],
            "split_dim": pl.Series([t.split_dim for t in rows], dtype=pl.Int64),
        }
    )
