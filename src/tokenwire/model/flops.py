"""FLOPs of training one token, by the conventions that people quote, each by its name.

Symbols: N active parameters (all of them, embedding and head too), N_e those of the token table, L layers, a heads,
d head dim, g KV heads, s sequence length, h hidden, V vocabulary, f feed-forward width, k active experts.
A causal mask leaves half of the s² scores; conventions differ in whether they count the other half.

| convention | formula | source |
|---|---|---|
| 6N | 6N, attention scores left out | Kaplan et al. 2020, section 2.1; Hoffmann et al. 2022 |
| palm | 6N + 12·L·a·d·s | Chowdhery et al. 2022, appendix B |
| palm-causal | 6N + 6·L·a·d·s | the same, half of the scores |
| torchtitan | 6(N - N_e) + 12·L·a·d·s | pytorch/torchtitan, torchtitan/models/utils.py |
| megatron | 6·(matrix products), causal scores | NVIDIA/Megatron-LM, megatron/training/training.py, num_floating_point_operations |
| megatron-full | the same with all s² scores | its version before causal masks were counted |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tokenwire.errors import InputError, unknown
from tokenwire.figures import Figure
from tokenwire.model.adapters import beside
from tokenwire.model.architecture import (
    Architecture,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Mixer,
    StateSpace,
    TokenMixer,
)
from tokenwire.model.parameters import layer_runs, parameters


@lru_cache(maxsize=256)
def flops_per_token(arch: Architecture, sequence_length: int, convention: str = "megatron") -> Figure:
    """Return the FLOPs of forward and backward for one token of a sequence of ``sequence_length``.

    Raises ``InputError`` for an unknown convention or a sequence of no token.

    >>> from tokenwire.model import preset
    >>> flops_per_token(preset("gpt2"), 1024, "6N").derivation
    '6N = 6·124,439,808 = 747 MFLOP'
    """
    if convention not in CONVENTIONS:
        raise unknown("FLOP convention", convention, CONVENTIONS)
    if sequence_length < 1:
        raise InputError(f"sequence_length = {sequence_length}", rule="must be at least 1", nearest="1")
    return CONVENTIONS[convention](arch, sequence_length)


def score_width(mixer: Mixer | None) -> int:
    """Return a·d, the numbers a token multiplies with every other token's (queries and values averaged); 0 without scores."""
    if isinstance(mixer, Attention):
        return mixer.heads * (mixer.head_dim + (mixer.value_head_dim or mixer.head_dim)) // 2
    if isinstance(mixer, LatentAttention):
        return mixer.heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim) // 2
    return 0


def _scores(arch: Architecture) -> int:
    return sum(
        score_width(layer.mixer) + score_width(layer.extra.attention if layer.extra else None)
        for layer in arch.layers
    )


def _six_n(arch: Architecture, s: int) -> Figure:
    n = parameters(arch).active
    return Figure("FLOPs a token, 6N", 6 * n, "FLOP", "6N", f"6·{n:,}", "Kaplan et al. 2020, section 2.1")


def _palm(arch: Architecture, s: int, scores: int = 12, name: str = "palm") -> Figure:
    n, w = parameters(arch).active, _scores(arch)
    return Figure(
        f"FLOPs a token, {name}", 6 * n + scores * w * s, "FLOP", f"6N + {scores}·Σ a·d·s",
        f"6·{n:,} + {scores}·{w:,}·{s:,}", "Chowdhery et al. 2022, appendix B",
    )  # fmt: skip


def _palm_causal(arch: Architecture, s: int) -> Figure:
    return _palm(arch, s, 6, "palm-causal")


def _torchtitan(arch: Architecture, s: int) -> Figure:
    count, w = parameters(arch), _scores(arch)
    n = count.active - count.embedding
    return Figure(
        "FLOPs a token, torchtitan", 6 * n + 12 * w * s, "FLOP", "6(N-N_e) + 12·Σ a·d·s",
        f"6·{n:,} + 12·{w:,}·{s:,}", "pytorch/torchtitan, torchtitan/models/utils.py",
    )  # fmt: skip


def _megatron(arch: Architecture, s: int, *, causal: bool = True) -> Figure:
    h, V = arch.hidden_size, arch.vocabulary_size
    mixers = sum(
        n * (_mixer_products(h, layer.mixer, s, causal) + _extra_products(layer, s, causal))
        for layer, n in layer_runs(arch)
    )
    mixers += sum(weight.products for weight in arch.extra)
    wide = sum(n * _feed_forward_products(h, layer) for layer, n in layer_runs(arch))
    head = V * h
    total = mixers + wide + head
    if arch.mtp_layers:
        each = sum(
            _mixer_products(h, one.mixer, s, causal)
            + _extra_products(one, s, causal)
            + _feed_forward_products(h, one)
            for one in arch.next_token_block
        )
        total += arch.mtp_layers * (each + 3 * h + 2 * h * h + head)
    name = "megatron" if causal else "megatron-full"
    if arch.adapters is not None:
        return _adapted(
            arch,
            name,
            total,
            sum(n * _mixer_products(h, layer.mixer, 0, causal) for layer, n in layer_runs(arch))
            + wide
            + head,
        )
    values = f"6·({mixers:,.0f} + {wide:,} + {head:,})" if not arch.mtp_layers else f"6·{total:,.0f}"
    return Figure(
        f"FLOPs a token, {name}", float(6 * total), "FLOP", "6·(mixers + feed-forward + V·h)" + (" with MTP" if arch.mtp_layers else ""),
        values, "NVIDIA/Megatron-LM, megatron/training/training.py, num_floating_point_operations",
    )  # fmt: skip


def _adapted(arch: Architecture, name: str, products: float, frozen: float) -> Figure:
    """Return the FLOPs where adapters alone are trained: a frozen product has no gradient of its weight, two of its six."""
    assert arch.adapters is not None
    each = sum(
        n * one.elements
        for layer, n in layer_runs(arch)
        for one in beside(arch.hidden_size, layer, arch.adapters)
    )
    return Figure(
        f"FLOPs a token, {name}", float(6 * products - 2 * frozen + 6 * each), "FLOP", "6·products - 2·frozen + 6·adapters",
        f"6·{products:,.0f} - 2·{frozen:,.0f} + 6·{each:,}", "NVIDIA/Megatron-LM, megatron/training/training.py, num_floating_point_operations",
    )  # fmt: skip


def _megatron_full(arch: Architecture, s: int) -> Figure:
    return _megatron(arch, s, causal=False)


def _extra_products(layer: Layer, s: int, causal: bool) -> float:
    if layer.extra is None:
        return 0
    a = layer.extra.attention
    scores = a.heads * (a.head_dim + (a.value_head_dim or a.head_dim)) * (s / 2 if causal else s) if a else 0
    return sum(weight.products for weight in layer.extra.weights) + scores


def _mixer_products(h: int, mixer: Mixer | None, s: int, causal: bool) -> float:
    """Return the multiplications of a mixer for one token."""
    scores = s / 2 if causal else s
    if isinstance(mixer, Attention):
        d, d_v = mixer.head_dim, mixer.value_head_dim or mixer.head_dim
        q, k, v, out = mixer.heads * d, mixer.key_width, mixer.value_width, mixer.heads * d_v
        return h * (q * (2 if mixer.gate else 1) + k + v + out) + (q + out) * scores
    if isinstance(mixer, LatentAttention):
        a, d_qk = mixer.heads, mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        rank = mixer.q_lora_rank
        q = h * a * d_qk if rank is None else rank * (h + a * d_qk + 1)
        kv = (
            mixer.kv_lora_rank * (h + a * (mixer.qk_nope_head_dim + mixer.v_head_dim) + 1)
            + h * mixer.qk_rope_head_dim
        )
        index = 0.0
        if (x := mixer.indexer) is not None:
            # All tokens are scored by the indexer, top_k of them by the heads.
            index = (
                x.heads * x.head_dim * (rank or h)
                + h * (x.head_dim + x.heads)
                + x.heads * x.head_dim * scores
            )
            scores = chosen(s, x.top_k) if causal else min(s, x.top_k)
        return q + kv + index + h * a * mixer.v_head_dim + a * (d_qk + mixer.v_head_dim) * scores
    if isinstance(mixer, TokenMixer):
        return sum(weight.products for weight in mixer.weights) + mixer.state
    if isinstance(mixer, DeltaNet):
        k, v = mixer.key_heads * mixer.key_head_dim, mixer.value_heads * mixer.value_head_dim
        delta = mixer.value_heads * mixer.value_head_dim**2 * 4
        return h * (2 * k + 2 * v + 2 * mixer.value_heads) + mixer.conv_kernel * (2 * k + v) + delta + h * v
    return _state_space_products(h, mixer) if mixer is not None else 0


def chosen(s: int, top_k: int) -> float:
    """Return the tokens that a token looks at, on average over ``s`` of them, where it looks at ``top_k`` at most.

    >>> chosen(4096, 4096), chosen(4096, 2048)
    (2048.0, 1536.0)
    """
    k = min(top_k, s)
    return k - k * k / (2 * s)


def _state_space_products(h: int, m: StateSpace) -> float:
    # Megatron takes the inner width as 2h and the scan as 7 FLOPs a number of state; here the inner width is the model's.
    D, N = m.inner_size, m.state_size
    if m.version == 2:
        return h * (2 * D + 2 * m.groups * N + m.heads) + 3.5 * D * N + D * h
    return h * 2 * D + D * (m.dt_rank + 2 * N) + m.dt_rank * D + 3.5 * D * N + D * h


def _feed_forward_products(h: int, layer: Layer) -> int:
    """Return the multiplications of a feed-forward part for one token (Megatron leaves the router out)."""
    part = layer.feed_forward
    if isinstance(part, FeedForward):
        return h * part.width * (3 if part.gated else 2)
    if isinstance(part, TokenMixer):
        return sum(weight.products for weight in part.weights)
    if isinstance(part, Experts):
        inner = part.latent_size or h
        products = inner * part.width * (3 if part.gated else 2) * part.active
        if part.latent_size:
            products += 2 * h * inner
        return products + (h * part.shared.width * (3 if part.shared.gated else 2) if part.shared else 0)
    return 0


CONVENTIONS: dict[str, Callable[[Architecture, int], Figure]] = {
    "6N": _six_n,
    "palm": _palm,
    "palm-causal": _palm_causal,
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    "megatron-full": _megatron_full,
}
"""The conventions by name."""
