"""The operators of experts on one rank: router, copies that put rows in order, the experts' products, and what is moved between them.

Symbols: h hidden, f an expert's width, E experts, k chosen, e expert parallel, t_e expert tensor parallel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tokenwire.model.architecture import Experts, FeedForward
from tokenwire.step.routing.laws import Router
from tokenwire.timeline.kernels import Operator, Shapes, grouped, moved_only, product


def expert_operators(x: Experts, z: Shapes) -> Iterator[Operator]:
    """Yield router, permutation, the experts' products, and the shared expert.

    Rows of an expert on a rank, all balanced: t_e·e·n·k/E with n tokens a rank routes; with a capacity padded up to it.
    """
    n, h = z.own, x.latent_size or z.hidden
    if z.capacity_factor is not None:
        each = math.ceil(n * x.active / x.count * z.capacity_factor) * z.ep * z.etp
    else:
        each = max(1, round(z.etp * z.ep * n * x.active / x.count))
    here, f = max(1, x.count // z.ep), max(1, x.width // z.etp)
    rows = each * here / z.etp
    yield from product("router", "experts", n, z.hidden, x.count, z.item)
    # Scores, the choice of k, the map of rows: small kernels, counted at about 10 forward and 5 backward (assumed).
    yield Operator("routing", "experts", "memory", "forward", 0, 8.0 * n * x.count, kernels=10)
    yield Operator("routing", "experts", "memory", "input", 0, 8.0 * n * x.count, kernels=5)
    if x.latent_size:
        yield from product("to the experts' width", "experts", n, z.hidden, h, z.item)
    yield from _permuted(x, z, n * h * z.item, rows * h * z.item)
    for o in grouped("experts up", here, each, h, f * (2 if x.gated else 1), z.item):
        yield o._replace(cast=not (z.experts_in_one and o.phase == "input"))
    yield from _activated(x, z, each * here * f * z.item)
    for o in grouped("experts down", here, each, f, h, z.item):
        yield o._replace(cast=not (z.experts_in_one and o.phase == "forward"))
    if z.stashed:
        # Copied to its pages and back (megatron/core/transformer/moe/paged_stash.py): the input of each product in 8 bits, what the first gives.
        yield from moved_only(
            "experts' stash", "experts", each * here * (h + f + (2 if x.gated else 1) * z.item * f), 2, 2
        )
    if x.bias and not z.experts_in_one:
        # Added apart: b·p in fp32 (4 written), the sum (2 and 4 read, 4 written), rows joined (4, 4), cast (4, 2). Backward: cast (2, 4), the
        # rows' share (4, 2; joined 2, 2), p's gradient (4 written, 4 read twice over: 12), the bias's (4, 4, 4).
        yield from moved_only("experts' bias", "experts", each * here * h, 28, 40)
    if x.latent_size:
        yield from product("from the experts' width", "experts", n, h, z.hidden, z.item)
    if x.shared is not None:
        yield from feed_forward(x.shared, z, "experts")
        yield from moved_only("sum with the shared expert", "experts", n * z.hidden * z.item, 3, 0)


def _permuted(x: Experts, z: Shapes, own: float, rows: float) -> Iterator[Operator]:
    """Yield the copies that put rows in order, of ``own`` bytes of tokens and ``rows`` bytes of rows at the experts.

    Megatron's all-to-all lines rows up before it is called and sorts them by expert after it (token_dispatcher.py,
    MoEAlltoAllTokenDispatcher: permute, sort_chunks_by_idxs); DeepEP and HybridEP take tokens as they lie, and each rank copies those
    it got to its experts' rows (MoEFlexTokenDispatcher).
    """
    if z.sent_once:
        got = own * z.ep * Router(x.count, x.active).reached(max(1, x.count // z.ep))
        copies = {"permutation": min(got, rows) + rows, "permutation back": min(got, rows) + rows}
    else:
        copies = {"permutation": own + rows, "permutation back": own + rows}
        if z.ep > 1 and x.count > z.ep:
            copies |= {"sorting by expert": 2 * rows, "sorting by sender": 2 * rows}
    for name, moved in copies.items():
        yield Operator(name, "experts", "memory", "forward", 0, moved, share="permute")
        yield Operator(name, "experts", "memory", "input", 0, moved, share="permute_backward")


def _activated(x: Experts, z: Shapes, size: float) -> Iterator[Operator]:
    """Yield the activation of rows of ``size`` bytes: a gated one reads two such, and writes one.

    In one kernel with the products each way only what the backward keeps is moved besides: the activation written, and read, with both
    halves' gradients written. Experts with biases have their halves cut at a value (GPT-OSS), by kernels of their own: two cuts
    and a copy (8), and back (10) (Megatron-LM, megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl).
    """
    forward, backward = (3.0, 5.0) if x.gated else (2.0, 3.0)
    if z.experts_in_one:
        forward, backward = 1.0, backward - 2
    elif x.bias and x.gated:
        forward, backward = forward + 8, backward + 10
    yield from moved_only("experts' activation", "experts", size, forward, backward)


def feed_forward(x: FeedForward, z: Shapes, part: str) -> Iterator[Operator]:
    """Yield a feed-forward: up, activation, down."""
    f = x.width // z.tp
    yield from product("up", part, z.tokens, z.hidden, f * (2 if x.gated else 1), z.item)
    yield from moved_only("activation", part, z.tokens * f * z.item, 3 if x.gated else 2, 5 if x.gated else 3)
    yield from product("down", part, z.tokens, f, z.hidden, z.item)
