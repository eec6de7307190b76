"""The pipeline: activations forward, their gradients backward, loss and tied gradients.

Source: DeepSpeed 0.19, runtime/pipe/engine.py (_exec_send_activations, _exec_send_grads, _exec_reduce_tied_grads,
_aggregate_total_loss). Shapes of activations are told in the first micro-batch of a run only, and left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.step.dialects.deepspeed.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_ENGINE = "DeepSpeed runtime/pipe/engine.py"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none without a pipeline."""
    p, i = z.plan.pp, stage.index
    if p == 1:
        return
    sides: list[tuple[Op, Phase, int, str, str]] = []
    if i < p - 1:
        sides += [("send", "forward", i + 1, "activations", "_exec_send_activations"),
                  ("recv", "backward", i + 1, "gradients of activations", "_exec_recv_grads")]  # fmt: skip
    if i > 0:
        sides += [("recv", "forward", i - 1, "activations", "_exec_recv_activations"),
                  ("send", "backward", i - 1, "gradients of activations", "_exec_send_grads")]  # fmt: skip
    t, h = z.plan.training, z.arch.hidden_size
    for op, phase, peer, what, source in sides:
        yield z.row(
            stage, op, "pp", phase, z.plan.micro_batches, t.micro_batch * t.sequence_length * h, z.dtype, "pp", what, peer=peer,
            formula="b·s·h", values=f"{t.micro_batch}·{t.sequence_length}·{h}", source=f"{_ENGINE} {source}",
            why="the next stage goes on from these activations",
        )  # fmt: skip
    if z.arch.tied_embeddings and (stage.has_embedding or stage.has_head):
        elements = z.arch.vocabulary_size * h
        yield z.row(
            stage, "all_reduce", "embedding", "gradients", 1, elements, z.dtype, "pp", "gradients of the tied embedding",
            formula="V·h", values=f"{z.arch.vocabulary_size}·{h}", source=f"{_ENGINE} _exec_reduce_tied_grads",
            why="first and last stage hold the same parameter",
        )  # fmt: skip
    if stage.has_head:
        yield z.row(stage, "all_reduce", "dp", "loss", 1, 1, "fp32", "dp", "loss", formula="1", values="1",
                    source=f"{_ENGINE} _aggregate_total_loss", why="the loss of all replicas is averaged")  # fmt: skip
    yield z.row(stage, "broadcast", "pp", "loss", 1, 2, "fp32", "pp", "loss", formula="2", values="2",
                source=f"{_ENGINE} _aggregate_total_loss", why="only the last stage knows the loss")  # fmt: skip
