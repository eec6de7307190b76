"""What experts say: routing, dispatch and combine of tokens, and what keeps experts balanced.

A rank has b·s/c/t tokens (with sequence parallelism) of which each goes to k of E experts. Dropless routing depends on the
data: sizes are those of perfectly balanced routing, which are also the mean over ranks; what a rank *sends* into the first
all_to_all is exact. Rules: megatron-core 0.16.1, transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Experts
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.recompute import recomputed_expert_layers
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase
from tokenwire.step.routing.laws import Router
from tokenwire.step.routing.planned import experts_groups

_DISPATCHER = "megatron-core transformer/moe/token_dispatcher.py"


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of the stage's layers of experts."""
    layers = Counter(
        feed for feed in (sizes.arch.layers[index].feed_forward for index in stage.layers) if isinstance(feed, Experts)
    )
    total = sum(layers.values())
    again = recomputed_expert_layers(sizes, stage)
    dispatch = {"allgather": _all_gather, "alltoall": _all_to_all, "flex": _deep_ep}
    for feed, count in layers.items():
        for row in dispatch[sizes.config.moe_token_dispatcher_type](sizes, stage, feed, count):
            yield row
            if row.phase == "forward" and again:
                times = row.count * again // total
                yield row._replace(phase="backward", count=times, what=f"{row.what}, recomputed")
        yield from _balance(sizes, stage, feed, count, count * again // total)


def rank_tokens(sizes: Sizes) -> int:
    """Return the tokens of a micro-batch that one rank routes: b·s/c, over t with sequence parallelism."""
    return sizes.tokens // (sizes.plan.tp if sizes.sequence_parallel else 1)


def routed_rows(sizes: Sizes, experts: Experts) -> tuple[int, str]:
    """Return the rows that one rank sends for a micro-batch, and the formula."""
    n, config = rank_tokens(sizes), sizes.config
    if config.moe_expert_capacity_factor is not None and config.moe_pad_expert_input_to_capacity:
        capacity = math.ceil(n * experts.active / experts.count * config.moe_expert_capacity_factor)
        return capacity * experts.count, "E·ceil(n·k/E·capacity_factor)"
    return n * experts.active, "n·k"


def sent_width(z: Sizes, x: Experts) -> int:
    """Return the numbers of a token that go to its experts: h, or the narrower width that they work on (moe_layer.py, fc1_latent_proj)."""
    return x.latent_size or z.arch.hidden_size


def _all_to_all(z: Sizes, stage: Stage, x: Experts, layers: int) -> Iterator[Operation]:
    h, m, i = sent_width(z, x), z.plan.micro_batches, stage.index
    rows, formula = routed_rows(z, x)
    etp, ep = z.plan.etp, z.plan.ep
    source = f"{_DISPATCHER} MoEAlltoAllTokenDispatcher"
    probability = _probability_dtype(z)

    def row(
        op: Op, group: str, phase: Phase, elements: int, what: str, form: str, values: str, why: str,
        dtype: str | None = None,
    ) -> Operation:  # fmt: skip
        return z.row(i, op, group, phase, layers * m, elements, what, formula=form, values=values, source=source, why=why,
                     parallelism="ep", dtype=dtype, layers=layers)  # fmt: skip

    padded = z.config.moe_pad_expert_input_to_capacity
    if not padded:
        yield row("all_gather", "tp_ep", "forward", x.count * etp * ep, "tokens for each expert", "E·etp·e",
                  f"{x.count}·{etp}·{ep}", "each rank must know how many rows it will get from whom", "int64")  # fmt: skip
    n = f"{rows:,}"
    dispatch: tuple[tuple[Phase, str], ...] = (("forward", "dispatch"), ("backward", "combine gradient"))
    combine: tuple[tuple[Phase, str], ...] = (("forward", "combine"), ("backward", "dispatch gradient"))
    for phase, what in (*dispatch, *combine):
        yield row("all_to_all", "ep", phase, rows * h, f"tokens: {what}", f"{formula}·h", f"{n}·{h}",
                  "a token's vector goes to the ranks that hold its experts, and back")  # fmt: skip
    for phase, what in (("forward", "router probabilities"), ("backward", "router probability gradients")):
        yield row("all_to_all", "ep", "forward" if phase == "forward" else "backward", rows, what, formula, n,
                  "the expert weighs its output with the router's probability", probability)  # fmt: skip
    # Expert tensor parallelism: each rank of the group has a part of each expert and needs the rows of all.
    gathered = rows * etp
    parts: tuple[tuple[Op, Phase, int, str, str | None], ...] = (
        ("all_gather", "forward", gathered * h, "rows for parts of an expert", None),
        ("all_gather", "forward", gathered, "their probabilities", probability),
        ("reduce_scatter", "forward", gathered * h, "sums of parts of an expert", probability),
        ("all_gather", "backward", gathered * h, "gradients of those sums", probability),
        ("reduce_scatter", "backward", gathered * h, "gradients of those rows", None),
        ("reduce_scatter", "backward", gathered, "gradients of those probabilities", probability),
    )
    for op, phase, elements, what, dtype in parts:
        width = f"·{h}" if elements > gathered else ""
        yield row(op, "etp", phase, elements, what, f"etp·{formula}" + ("·h" if width else ""), f"{etp}·{n}{width}",
                  "an expert is cut over the expert-tensor-parallel group", dtype)  # fmt: skip


def _probability_dtype(z: Sizes) -> str:
    return {"fp32": "fp32", "fp64": "fp64"}.get(z.config.moe_router_dtype or "", z.dtype)


def _all_gather(z: Sizes, stage: Stage, x: Experts, layers: int) -> Iterator[Operation]:
    h, m, i = sent_width(z, x), z.plan.micro_batches, stage.index
    n = rank_tokens(z) * z.plan.etp * z.plan.ep
    source = f"{_DISPATCHER} MoEAllGatherTokenDispatcher"
    probability = _probability_dtype(z)
    parts: tuple[tuple[Op, Phase, int, str, str | None], ...] = (
        ("all_gather", "forward", n * x.count, "routing map", "bool"),
        ("all_gather", "forward", n * x.count, "router probabilities", probability),
        ("all_gather", "forward", n * h, "tokens: dispatch", None),
        ("reduce_scatter", "forward", n * h, "tokens: combine", probability),
        ("all_gather", "backward", n * h, "combine gradient", probability),
        ("reduce_scatter", "backward", n * h, "dispatch gradient", None),
        ("reduce_scatter", "backward", n * x.count, "router probability gradients", probability),
    )
    for op, phase, elements, what, dtype in parts:
        width = h if elements == n * h and "prob" not in what and what != "routing map" else x.count
        yield z.row(
            i, op, "tp_ep", phase, layers * m, elements, what, formula="etp·e·n·" + ("h" if width == h else "E"),
            values=f"{n:,}·{width}", dtype=dtype, parallelism="ep", source=source, layers=layers,
            why="every rank gets every token and works on those that its experts are for",
        )  # fmt: skip


def _deep_ep(z: Sizes, stage: Stage, x: Experts, layers: int) -> Iterator[Operation]:
    # DeepEP sends a token once to each rank that has one of its experts, or a part of one: the mean of balanced routing.
    h, m, i = sent_width(z, x), z.plan.micro_batches, stage.index
    group, ranks = "tp_ep", z.plan.group_size("tp_ep")
    n, k = rank_tokens(z), x.active
    router = Router(x.count, k, *experts_groups(z.plan))
    reached = ranks * router.reached(x.count // z.plan.ep)
    rows = round(n * reached)
    limited = router.group_topk < router.groups
    formula = "n·R·P·h" if limited else "n·R·(1-C(E-E/e,k)/C(E,k))·h"
    source = f"{_DISPATCHER} _DeepepManager; DeepEP deep_ep/buffer.py Buffer.dispatch, Buffer.combine"
    parts: tuple[tuple[Phase, str], ...] = (
        ("forward", "dispatch"), ("forward", "combine"), ("backward", "combine gradient"), ("backward", "dispatch gradient"),
    )  # fmt: skip
    for phase, what in parts:
        yield z.row(
            i, "all_to_all", group, phase, layers * m, rows * h, f"tokens: {what}", formula=formula,
            values=f"{n:,}·{reached:.3f}·{h}", parallelism="ep", source=source, layers=layers,
            why=f"a token goes once to each rank that holds one of its {k} experts: {reached:.3f} of {ranks} on average",
        )  # fmt: skip


def _balance(z: Sizes, stage: Stage, x: Experts, layers: int, again: int) -> Iterator[Operation]:
    # A router whose layer is recomputed works out its auxiliary loss in the recomputation only, where gradients are on.
    config, m, i = z.config, z.plan.micro_batches, stage.index
    source = "megatron-core transformer/moe/router.py TopKRouter"
    if config.moe_router_load_balancing_type != "none" and config.moe_aux_loss_coeff > 0:
        counts = {"aux_loss": ("tp_cp", "_apply_aux_loss"), "seq_aux_loss": ("tp_cp", "_apply_seq_aux_loss"),
                  "global_aux_loss": ("tp_dp_cp", "_apply_global_aux_loss")}  # fmt: skip
        found = counts.get(config.moe_router_load_balancing_type)
        if found:
            group, function = found
            per_sequence = z.plan.training.micro_batch if config.moe_router_load_balancing_type == "seq_aux_loss" else 1
            phases: tuple[tuple[Phase, int], ...] = (("forward", layers - again), ("backward", again))
            for phase, routers in phases:
                yield z.row(
                    i, "all_reduce", group, phase, routers * m, x.count * per_sequence, "tokens for each expert, for balance",
                    formula="b·E" if per_sequence > 1 else "E", values=f"{x.count * per_sequence}", dtype="int64",
                    parallelism="ep", source=f"{source}.{function}", layers=routers,
                    why="the auxiliary loss looks at how the tokens of the whole sequence spread over experts",
                )  # fmt: skip
    if config.moe_router_enable_expert_bias:
        routers = layers - _run_again_for_further_tokens(z, stage, x)
        yield z.row(
            i, "all_reduce", "tp_dp_cp", "gradients", 1, routers * x.count, "tokens for each expert, for the expert bias",
            formula="layers·E", values=f"{routers}·{x.count}", parallelism="ep",
            source="megatron-core transformer/moe/moe_utils.py get_updated_expert_bias",
            why="the bias of an expert that got too many tokens falls, of one that got too few it rises",
        )  # fmt: skip


def _run_again_for_further_tokens(z: Sizes, stage: Stage, x: Experts) -> int:
    """Return how many of the stage's layers of experts are a module of multi-token prediction that has run before."""
    if not any(index >= z.own for index in stage.layers):
        return 0
    in_a_module = sum(layer.feed_forward == x for layer in z.arch.next_token_block)
    return in_a_module * (z.next_tokens - z.config.mtp_modules)
