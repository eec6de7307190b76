"""Multi-token prediction: modules after the last layer, each of which predicts a token further on.

Each joins the model's output with the embedding of the next token, projects 2·h to h, runs a transformer layer like the
last one (or the layers that ``mtp_block`` says), and goes through head and loss again. With ``mtp_use_repeated_layer`` one
module is run for every further token. They stand together on one stage, which holds a copy of the embedding: the
last one, or the one that ``pipeline_model_parallel_layout`` says, whose output then carries theirs too. With context
parallelism tokens, positions, labels and loss mask are shifted by one across the ranks, each of which has two pieces of the
sequence. Rules: megatron-core 0.16.1, transformer/multi_token_prediction.py (roll_tensor, MultiTokenPredictionLayer),
models/gpt/gpt_model.py (_postprocess).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, Stage
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.step.dialects.megatron import tensor_parallel
from tokenwire.step.dialects.megatron.low_precision import Usage, gathered
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase, Product

_SOURCE = "megatron-core transformer/multi_token_prediction.py MultiTokenPredictionLayer._concat_embeddings"


def with_their_layers(arch: Architecture, plan: Plan) -> tuple[Architecture, tuple[Stage, ...]]:
    """Return the model with the layers of ``mtp_num_layers`` modules after its own, and stages of which one has them too."""
    assert isinstance(plan.config, MegatronPlan)
    count = plan.config.mtp_num_layers or 0
    if not count:
        return plan.config.trained(arch), plan.stages
    block = arch.next_token_block
    longer = replace(arch, layers=arch.layers + block * count, mtp_layers=0, mtp_block=block)
    further = tuple(range(len(arch.layers), len(longer.layers)))
    return longer, tuple(
        replace(stage, chunks=(*stage.chunks[:-1], (*stage.chunks[-1], *further))) if stage.has_next_tokens else stage
        for stage in plan.stages
    )


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield what these layers say besides a transformer layer: shifts, embedding, projection, head and loss, and its log."""
    count = sizes.next_tokens
    if not count:
        return
    again: list[Operation] = []
    if stage.has_next_tokens:
        yield from _shifts(sizes, stage, (("tokens", "int64"), ("positions", "int64")))
        if sizes.plan.tp > 1:
            again += tensor_parallel.embedding(sizes, stage)
            yield from _projection(sizes, stage, count)
    if stage.has_head:
        yield from _shifts(sizes, stage, (("labels", "int64"), ("loss mask", "fp32")))
        if sizes.plan.tp > 1:
            again += tensor_parallel.head(sizes, stage)
        yield sizes.row(
            stage.index, "all_reduce", sizes.data_group, "loss", 1, count, "losses of further tokens for the log",
            formula="mtp_num_layers", values=str(count), dtype="fp32", parallelism="dp", why="the log has the mean over replicas",
            source="Megatron-LM megatron/training/training.py training_log, MTPLossLoggingHelper.track_mtp_metrics",
        )  # fmt: skip
    for row in again:
        yield row._replace(count=row.count * count, what=f"further tokens: {row.what}", layers=count)


def _shifts(z: Sizes, stage: Stage, shifted: tuple[tuple[str, str], ...]) -> Iterator[Operation]:
    # The first piece gives its first token to the rank before, the second to the rank after.
    pieces = min(z.plan.cp - 1, 2)
    sides: tuple[Op, Op] = ("send", "recv")
    for what, dtype in shifted:
        for op in sides:
            yield z.row(
                stage.index, op, "cp", "forward", pieces * z.next_tokens * z.plan.micro_batches, z.plan.training.micro_batch,
                f"further tokens: {what} shifted by one", formula="b", dtype=dtype, parallelism="cp", layers=z.next_tokens,
                peer=stage.index, source="megatron-core transformer/multi_token_prediction.py roll_tensor",
                why="the token after a piece's last is on a neighbour" + (
                    "; a rank at an end of the group has one neighbour and says half" if pieces > 1 else ""),
            )  # fmt: skip


def _projection(z: Sizes, stage: Stage, count: int) -> Iterator[Operation]:
    recomputed = z.config.recompute_granularity == "full" and z.config.recompute_method == "uniform"

    def row(op: Op, phase: Phase, what: str, wide: bool, why: str, over: Product | None = None) -> Operation:
        return z.row(
            stage.index, op, "tp", phase, count * z.plan.micro_batches, z.activation * (2 if wide else 1),
            f"further tokens: {what}", formula="b·s/c·2·h" if wide else "b·s/c·h", source=_SOURCE, why=why,
            parallelism="sp" if z.sequence_parallel and wide else "tp", layers=count, overlapped=over,
        )  # fmt: skip

    def gather(phase: Phase, what: str, why: str, usage: Usage) -> Iterator[Operation]:
        call = row("all_gather", phase, what, True, why, "input" if usage == "columns" else None)
        low = z.plan.training.precision == "fp8"
        return gathered(z, call, 2 * z.arch.hidden_size, usage) if low else iter((call,))

    joined, columns = "output and embedding side by side are projected", "each rank has some of the h columns"
    if z.sequence_parallel:
        yield from gather("forward", "projection input", joined, "rows")
        yield from gather("backward", "projection input again", "the weight gradient needs the whole input", "columns")
        yield row("reduce_scatter", "backward", "projection input gradient", True, "the mirror of the all_gather", "weight")
        yield row("all_gather", "backward", "layer input gradient", False, "the sequence was cut again before the layer", "weight")
    else:
        yield row("all_reduce", "backward", "projection input gradient", True, "each rank's columns give a part of it", "weight")
    yield row("all_gather", "forward", "projection output", False, columns)
    if recomputed:
        if z.sequence_parallel:
            yield from gather("backward", "projection input, recomputed", joined, "rows")
        yield row("all_gather", "backward", "projection output, recomputed", False, columns)
