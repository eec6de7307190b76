"""Multi-token prediction: layers after the last one, each of which predicts a token further on.

Each joins the model's output with the embedding of the next token, projects 2·h to h, runs a transformer layer like the
last one, and goes through head and loss again. All of them are on the last stage, which therefore holds a copy of the
embedding. Rules: megatron-core 0.16.1, transformer/multi_token_prediction.py, models/gpt/gpt_model.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.step.dialects.megatron import tensor_parallel
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_SOURCE = "megatron-core transformer/multi_token_prediction.py MultiTokenPredictionLayer._concat_embeddings"


def with_their_layers(arch: Architecture, plan: Plan) -> tuple[Architecture, tuple[Stage, ...]]:
    """Return the model with ``mtp_num_layers`` more layers like its last, and stages of which the last has them too."""
    assert isinstance(plan.config, MegatronPlan)
    count = plan.config.mtp_num_layers or 0
    if not count:
        return arch, plan.stages
    first, last = len(arch.layers), plan.stages[-1]
    chunks = (*last.chunks[:-1], (*last.chunks[-1], *range(first, first + count)))
    longer = replace(arch, layers=arch.layers + arch.layers[-1:] * count, mtp_layers=0)
    return longer, (*plan.stages[:-1], replace(last, chunks=chunks))


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield what these layers say besides a transformer layer: embedding, projection, head and loss, and its log."""
    count = sizes.next_tokens
    if not count or not stage.has_head:
        return
    yield sizes.row(
        stage.index, "all_reduce", sizes.data_group, "loss", 1, count, "losses of further tokens for the log",
        formula="mtp_num_layers", values=str(count), dtype="fp32", parallelism="dp", why="the log has the mean over replicas",
        source="Megatron-LM megatron/training/training.py training_log, MTPLossLoggingHelper.track_mtp_metrics",
    )  # fmt: skip
    if sizes.plan.tp == 1:
        return
    again = [*tensor_parallel.embedding(sizes, stage), *tensor_parallel.head(sizes, stage)]
    for row in again:
        yield replace(row, count=row.count * count, what=f"further tokens: {row.what}", layers=count)
    yield from _projection(sizes, stage, count)


def _projection(z: Sizes, stage: Stage, count: int) -> Iterator[Operation]:
    recomputed = z.config.recompute_granularity == "full" and z.config.recompute_method == "uniform"

    def row(op: Op, phase: Phase, what: str, wide: bool, why: str) -> Operation:
        return z.row(
            stage.index, op, "tp", phase, count * z.plan.micro_batches, z.activation * (2 if wide else 1),
            f"further tokens: {what}", formula="b·s/c·2·h" if wide else "b·s/c·h", source=_SOURCE, why=why,
            parallelism="sp" if z.sequence_parallel and wide else "tp", layers=count,
        )  # fmt: skip

    joined, columns = "output and embedding side by side are projected", "each rank has some of the h columns"
    if z.sequence_parallel:
        yield row("all_gather", "forward", "projection input", True, joined)
        yield row("all_gather", "backward", "projection input again", True, "the weight gradient needs the whole input")
        yield row("reduce_scatter", "backward", "projection input gradient", True, "the mirror of the all_gather")
        yield row("all_gather", "backward", "layer input gradient", False, "the sequence was cut again before the layer")
    else:
        yield row("all_reduce", "backward", "projection input gradient", True, "each rank's columns give a part of it")
    yield row("all_gather", "forward", "projection output", False, columns)
    if recomputed:
        if z.sequence_parallel:
            yield row("all_gather", "backward", "projection input, recomputed", True, joined)
        yield row("all_gather", "backward", "projection output, recomputed", False, columns)
