"""The pipeline: activations forward and their gradients backward between neighbouring virtual stages.

Volumes are the same for every schedule; which stages are neighbours on different ranks follows from how the schedule deals
them: round (looped) or there and back (V-shaped), where the turn stays on one rank. Source: torch 2.13,
torch/distributed/pipelining/stage.py (get_fwd_send_ops, get_bwd_send_ops), schedules.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.plan.torchtitan_layout import virtual_stages
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_STAGE = "torch distributed/pipelining/stage.py"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the sends and receives of a stage with each neighbour."""
    if z.plan.pp == 1:
        return
    p, v = z.plan.pp, z.plan.vpp
    owner = {index: rank for rank in range(p) for index in virtual_stages(z.config, rank, v)}
    after: Counter[int] = Counter()
    before: Counter[int] = Counter()
    for index in virtual_stages(z.config, stage.index, v):
        if index + 1 < p * v and owner[index + 1] != stage.index:
            after[owner[index + 1]] += 1
        if index > 0 and owner[index - 1] != stage.index:
            before[owner[index - 1]] += 1
    for peer, boundaries in after.items():
        yield _row(z, stage, "send", "forward", boundaries, peer, "activations", "get_fwd_send_ops")
        yield _row(z, stage, "recv", "backward", boundaries, peer, "gradients of activations", "get_bwd_recv_ops")
    for peer, boundaries in before.items():
        yield _row(z, stage, "recv", "forward", boundaries, peer, "activations", "get_fwd_recv_ops")
        yield _row(z, stage, "send", "backward", boundaries, peer, "gradients of activations", "get_bwd_send_ops")


def _row(z: Sizes, stage: Stage, op: Op, phase: Phase, boundaries: int, peer: int, what: str, source: str) -> Operation:
    t = z.plan.training
    return z.row(
        stage, op, "pp", phase, boundaries * z.plan.micro_batches, z.activation // z.plan.tp, z.compute_dtype, "pp", what,
        peer=peer, formula="b·s/c/t·h", source=f"{_STAGE} {source}",
        values=f"{t.micro_batch}·{t.sequence_length}/{z.plan.cp}/{z.plan.tp}·{z.arch.hidden_size}",
        why="the next stage goes on from these activations; with sequence parallelism each rank has its part of them",
    )  # fmt: skip
