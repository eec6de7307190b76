"""Mixtures of experts: tokens go to the rank of their expert and come back, and what tensor parallelism does around them.

Counts of tokens first, then the tokens; the same back, and both again in backward. How many tokens go where follows the routing:
``elements`` are what a rank sends when every expert gets as many (k a token, none dropped). Source: pytorch/torchtitan v0.2.2,
torchtitan/distributed/expert_parallel.py (ExpertParallel, ExpertTensorParallel, ReordererSequenceParallel, TensorParallel) and
models/llama4/infra/parallelize.py, apply_moe_ep_tp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Experts
from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.dialects.torchtitan.tensor_parallel import by_operator, checkpointed
from tokenwire.step.operation import Operation, Phase

_STYLES = "torchtitan distributed/expert_parallel.py"
_EP = f"{_STYLES} ExpertParallel"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none where experts and their tokens are on every rank whole."""
    if z.plan.ep == 1 and z.plan.tp == 1:
        return
    # By operator what the all_to_alls brought is kept, so they do not run again.
    again = set() if by_operator(z) else set(checkpointed(z, stage))
    kinds: Counter[Experts] = Counter()
    twice: Counter[Experts] = Counter()
    for index in stage.layers:
        feed = z.arch.layers[index].feed_forward
        if isinstance(feed, Experts):
            kinds[feed] += 1
            twice[feed] += index in again
    for feed, layers in kinds.items():
        if z.plan.ep > 1:
            yield from _moved(z, stage, feed, layers, twice[feed])
        if z.plan.tp > 1:
            yield from _sums(z, stage, feed, layers)


def _tokens(z: Sizes, feed: Experts) -> tuple[int, str]:
    # Where tensor-parallel ranks take part in ep (etp = 1) each of them routes its share of the tokens.
    t = z.plan.training
    share = z.plan.tp if z.plan.ep > 1 and z.plan.etp == 1 else 1
    shown = f"{t.micro_batch}·{t.sequence_length}/{z.plan.cp}/{share}·{feed.active}·{z.arch.hidden_size}"
    return t.micro_batch * z.local_sequence // share * feed.active, shown


def _moved(z: Sizes, stage: Stage, feed: Experts, layers: int, rerun: int) -> Iterator[Operation]:
    m, h = z.plan.micro_batches, z.arch.hidden_size
    tokens, shown = _tokens(z, feed)
    passes: tuple[tuple[Phase, int, int], ...] = (("forward", layers, layers), ("backward", rerun, layers + rerun))
    for phase, counts, moves in passes:
        yield z.row(
            stage, "all_to_all", "ep", phase, m * counts, feed.count, "int64", "ep", "tokens for each expert", formula="E",
            values=f"{feed.count}", source=f"{_EP}._token_dispatch", why="a rank must know how many tokens it will get",
            layers=layers,
        )  # fmt: skip
        for what, name in (("tokens to experts", "_token_dispatch"), ("tokens back", "_token_combine")):
            yield z.row(
                stage, "all_to_all", "ep", phase, m * moves, tokens * h, z.compute_dtype, "ep", what, formula="b·s/c·k·h",
                values=shown, source=f"{_EP}.{name}", layers=layers,
                why="experts stand on other ranks; sizes are those of even routing",
            )  # fmt: skip


def _sums(z: Sizes, stage: Stage, feed: Experts, layers: int) -> Iterator[Operation]:
    m, t = z.plan.micro_batches, z.plan.training
    if z.plan.ep == 1 or z.plan.etp > 1:
        tokens, shown = _tokens(z, feed)
        style = "TensorParallel" if z.plan.ep == 1 else "ExpertTensorParallel"
        yield z.row(
            stage, "all_reduce", "tp", "backward", m * layers, tokens * z.arch.hidden_size, z.compute_dtype, "tp",
            "gradient of tokens at the experts", formula="b·s/c·k·h", values=shown, layers=layers,
            source=f"{_STYLES} {style} (grad_placements Partial)",
            why="each rank has a part of every expert's channels, so a part of the gradient; it is summed for each copy of a token",
        )  # fmt: skip
    if feed.shared is not None:
        products = 2 if feed.shared.gated and not feed.shared.fused else 1
        yield z.row(
            stage, "all_reduce", "tp", "backward", m * products * layers, z.activation, z.compute_dtype, "tp",
            "gradient of the shared experts' input", formula="b·s/c·h", layers=layers,
            values=f"{t.micro_batch}·{t.sequence_length}/{z.plan.cp}·{z.arch.hidden_size}",
            source="torchtitan models/llama4/infra/parallelize.py apply_moe_ep_tp: moe.shared_experts ColwiseParallel",
            why="their input is a plain tensor by then, so each product over columns sums its own part of the gradient",
        )  # fmt: skip
