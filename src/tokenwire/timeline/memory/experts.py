"""What a layer of experts keeps of one micro-batch for its backward.

Rows that a rank's experts work on: with balanced routing k·T'·(etp) of them, whatever ep is; with a capacity, what fits in it
(the rows that padding adds included). Rules: megatron-core 0.16.1, transformer/moe/moe_layer.py, router.py, experts.py,
token_dispatcher.py. Symbols: n experts, k experts a token, R rows, f the experts' width.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.architecture import Experts
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.saved import Saved, product_input, saved

SOURCE = "megatron-core 0.16.1, transformer/moe"


def rows(frame: Frame, x: Experts) -> int:
    """Return R, the rows that the experts of a rank work on in one micro-batch, with balanced routing."""
    plan, factor = frame.plan, frame.option("moe_expert_capacity_factor")
    tokens = frame.tokens // plan.tp if plan.sequence_parallel else frame.tokens
    routed = tokens * x.active
    if factor:
        # Each rank sends each expert at most ceil(rows/experts·factor) rows (router.py, get_capacity).
        routed = -(-int(routed * factor) // x.count) * x.count
    # With all experts on every rank none has more rows than another.
    skewed = routed if plan.ep == 1 or factor else int(routed * (1 + frame.skew))
    return skewed * plan.etp


def dispatching(frame: Frame, x: Experts) -> tuple[int, str]:
    """Return what stands as a layer of experts hands its rows back, beside what it keeps, and its formula.

    The function of the layer still names the rows it permuted, those it received and those its experts put out when the
    all-to-all brings them back (moe_layer.py, forward, 0.14 to 0.16).
    """
    if frame.dialect != "megatron" or frame.option("moe_token_dispatcher_type") != "alltoall":
        return 0, "0"
    etp, ep = frame.plan.etp, frame.plan.ep
    row = rows(frame, x) // etp * (x.latent_size or frame.arch.hidden_size) * frame.item
    received = ep > 1 and (x.count // ep > 1 or etp > 1)
    copies = 2 + received + (ep > 1)
    return copies * row + frame.residual, f"{copies}·R·h·e+T'·h·e"


def experts(frame: Frame, x: Experts) -> Iterator[Saved]:
    """Yield what router, dispatch and experts keep."""
    e, T1, h, etp = frame.item, frame.outside, frame.arch.hidden_size, frame.plan.etp
    R, f, lanes = rows(frame, x), x.width, 2 if x.gated else 1
    inner = x.latent_size or h
    size = 4 if frame.option("moe_router_dtype") in ("fp32", None) else 8
    yield saved(frame, "router", "router: scores and probabilities of the experts", f"3·{size}·T'·n", 3 * size * T1 * x.count, SOURCE, n=x.count)
    yield product_input(frame, "experts in", "experts: their rows", "R·h", R * inner, SOURCE, R=R, h=inner)
    yield saved(frame, "experts", "experts: input of the activation", f"{lanes}·R·f/etp·e", lanes * R * f // etp * e, SOURCE, R=R, f=f, etp=etp)
    if x.gated and not frame.fused_activation:
        yield saved(frame, "expert act", "experts: activation before it is multiplied", "R·f/etp·e", R * f // etp * e, SOURCE, R=R, f=f, etp=etp)
    if not (x.gated and frame.fused_activation):
        # Only the fused gated activation multiplies by the router's probabilities without keeping its result (mlp.py, forward).
        yield saved(frame, "expert act", "experts: activation before the router's weights", "R·f/etp·e", R * f // etp * e, SOURCE, R=R, f=f, etp=etp)
    yield product_input(frame, "expert act", "experts: input of the down-projection", "R·f/etp", R * f // etp, SOURCE, R=R, f=f, etp=etp)
    if x.latent_size:
        yield product_input(frame, "latent", "experts: input of the projection back to the hidden size", "T'·l", T1 * inner, SOURCE, l=inner)
    if x.shared is not None:
        from tokenwire.timeline.memory.layers import feed_forward

        yield from feed_forward(frame, x.shared, "shared experts")
