"""Ulysses: each rank has s/c tokens of all heads outside attention, and all tokens of a/c heads inside.

Four all_to_alls forward (q, k, v, output) and four backward, each of what a rank holds: b·s/c·heads·d elements. Source: DeepSpeed
0.19, sequence/layer.py (DistributedAttention, _SeqAllToAll); Jacobs et al., DeepSpeed Ulysses, 2023, section 3.2. Compare with
Megatron's sequence parallelism: there b·s·h a gather whatever the number of ranks, here b·s/c·h, which falls with c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Attention
from tokenwire.plan import Stage
from tokenwire.step.dialects.deepspeed.sizes import Sizes
from tokenwire.step.operation import Operation, Phase

_LAYER = "DeepSpeed sequence/layer.py DistributedAttention.forward"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none without sequence parallelism."""
    if z.plan.cp == 1:
        return
    kinds = Counter(z.arch.layers[i].mixer for i in stage.layers)
    for mixer, layers in kinds.items():
        if isinstance(mixer, Attention):
            yield from _rows(z, stage, mixer, layers)


def _rows(z: Sizes, stage: Stage, mixer: Attention, layers: int) -> Iterator[Operation]:
    t, c, m, d = z.plan.training, z.plan.cp, z.plan.micro_batches, mixer.head_dim
    tokens = t.micro_batch * (t.sequence_length // c)
    phases: tuple[tuple[Phase, str, str], ...] = (("forward", "queries and output", "keys and values"),
                                                  ("backward", "gradients of queries and output", "gradients of keys and values"))  # fmt: skip
    for phase, first, second in phases:
        for what, heads in ((first, mixer.heads), (second, mixer.kv_heads)):
            yield z.row(
                stage, "all_to_all", "cp", phase, 2 * layers * m, tokens * heads * d, z.dtype, "cp", what,
                formula="b·s/c·heads·d", values=f"{t.micro_batch}·{t.sequence_length}/{c}·{heads}·{d}", source=_LAYER,
                why="inside attention a rank needs every token of its heads, outside every head of its tokens", layers=layers,
            )  # fmt: skip
