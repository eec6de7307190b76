"""Tensor parallelism with sequence parallelism as DTensor says it, from torchtitan's plan for Llama.

A block gathers its input over the sequence and scatters its output, forward; backward does the opposite at the same places,
and gathers nothing again: DTensor keeps the gathered input (Megatron does not). Source of the places: pytorch/torchtitan
v0.2.2, torchtitan/models/llama3/infra/parallelize.py, apply_tp, and models/deepseek_v3, apply_non_moe_tp; of the calls: torch 2.13, torch/distributed/tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Attention, Experts, FeedForward, LatentAttention, Mixer
from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase, Role

_PLAN = "torchtitan models/llama3/infra/parallelize.py apply_tp"
_LOSS = "torch distributed/tensor/parallel/loss.py"
_JOINED = "torch _inductor/fx_passes/micro_pipeline_tp.py; distributed/_symmetric_memory fused_matmul_reduce_scatter"
_CLIP = "torch nn/utils/clip_grad.py"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none where tp is 1."""
    if z.plan.tp == 1:
        return
    m = z.plan.micro_batches
    if stage.has_embedding:
        yield _activation(z, stage, "reduce_scatter", "forward", m, "embedding", "RowwiseParallel to Shard(1)",
                          "each rank has rows for a part of the vocabulary; the sum is cut along the sequence", role="embedding")  # fmt: skip
        yield _activation(z, stage, "all_gather", "backward", m, "embedding gradient", "RowwiseParallel to Shard(1)",
                          "its rows need the gradient of every token", role="embedding")  # fmt: skip
    yield from _blocks(z, stage)
    if stage.has_head:
        yield _activation(z, stage, "all_gather", "forward", m, "head input", "ColwiseParallel from Shard(1)",
                          "each rank has logits for a part of the vocabulary, of every token", role="head")  # fmt: skip
        yield _activation(z, stage, "reduce_scatter", "backward", m, "head input gradient", "ColwiseParallel from Shard(1)",
                          "every rank has a part of the sum; each keeps its part of the sequence", role="head")  # fmt: skip
        yield from _loss(z, stage)
    yield from _replicated_gradients(z, stage)


def _activation(z: Sizes, stage: Stage, op: Op, phase: Phase, count: int, what: str, source: str, why: str,
                layers: int = 0, role: Role = "layers") -> Operation:  # fmt: skip
    t = z.plan.training
    return z.row(
        stage, op, "tp", phase, count, z.activation, z.compute_dtype, "sp", what, formula="b·s/c·h", role=role,
        values=f"{t.micro_batch}·{t.sequence_length}/{z.plan.cp}·{z.arch.hidden_size}", source=f"{_PLAN}: {source}", why=why,
        layers=layers,
    )  # fmt: skip


def _blocks(z: Sizes, stage: Stage) -> Iterator[Operation]:
    m = z.plan.micro_batches
    mixers = sum(z.arch.layers[i].mixer is not None for i in stage.layers)
    dense = sum(isinstance(z.arch.layers[i].feed_forward, FeedForward) for i in stage.layers)
    experts = sum(isinstance(z.arch.layers[i].feed_forward, Experts) for i in stage.layers)
    for count, name in ((mixers, "attention"), (dense, "feed-forward"), (experts, "experts")):
        yield _activation(z, stage, "all_gather", "forward", m * count, f"{name} input", "PrepareModuleInput Shard(1) to Replicate",
                          "heads and channels are cut over ranks, so each needs the whole sequence", count)  # fmt: skip
        yield _output(z, stage, m * count, name, count)
        yield _activation(z, stage, "all_gather", "backward", m * count, f"{name} output gradient", "RowwiseParallel to Shard(1)",
                          "the opposite of the forward's reduce_scatter", count)  # fmt: skip
        if name == "experts":
            # Their input is used as a plain tensor (use_local_input), whose gradient counts as whole: each rank keeps its part.
            continue
        yield _activation(z, stage, "reduce_scatter", "backward", m * count, f"{name} input gradient",
                          "PrepareModuleInput Shard(1) to Replicate", "the opposite of the forward's all_gather", count)  # fmt: skip
    again = len(checkpointed(z, stage))
    yield _activation(z, stage, "all_gather", "backward", m * 2 * again, "inputs of blocks that run again",
                      "activation_checkpoint.py apply_ac", "a checkpointed block runs its forward again before its backward",
                      again)  # fmt: skip
    if not by_operator(z):
        sums, why = (1, "run again up to the last tensor that backward needs, which comes before the block's own sum (early_stop)")
        if not z.config.early_stop:
            sums, why = (2, "the whole forward runs again, with the sums after attention and at the block's end")
        yield _activation(z, stage, "reduce_scatter", "backward", m * sums * again, "outputs of blocks that run again",
                          "activation_checkpoint.py apply_ac", why, again)  # fmt: skip


def _output(z: Sizes, stage: Stage, count: int, name: str, layers: int) -> Operation:
    if not z.config.joins_products:
        return _activation(z, stage, "reduce_scatter", "forward", count, f"{name} output", "RowwiseParallel to Shard(1)",
                           "partial sums are added, each rank keeping its part of the sequence", layers)  # fmt: skip
    # Gathers ahead of products are joined too (from two sequences a micro-batch on), but still bring all shards to all; sums over
    # several products, backward, are not.
    row = _activation(z, stage, "all_to_all", "forward", count, f"{name} output, joined with its product", "", "the compiler lets each "
                      "rank compute the part of one rank after the other; that rank fetches it meanwhile and adds up itself", layers)  # fmt: skip
    return row._replace(source=_JOINED)


def checkpointed(z: Sizes, stage: Stage) -> list[int]:
    """Return the layers of a stage that run again in backward (every n-th that the rank holds where selective)."""
    mode, option = z.config.activation_checkpoint_mode, z.config.selective_ac_option
    if mode == "none":
        return []
    if mode == "full" or option == "op":
        return list(stage.layers)
    return [layer for place, layer in enumerate(stage.layers, start=1) if place % int(option) == 0]


def by_operator(z: Sizes) -> bool:
    """Return whether checkpoints keep what costly operators put out, collectives that scatter among them."""
    return z.config.activation_checkpoint_mode == "selective" and z.config.selective_ac_option == "op"


def _loss(z: Sizes, stage: Stage) -> Iterator[Operation]:
    m, b, s, V, t = z.plan.micro_batches, z.plan.training.micro_batch, z.local_sequence, z.arch.vocabulary_size, z.plan.tp
    if z.config.disable_loss_parallel:
        yield z.row(
            stage, "all_gather", "tp", "forward", m, b * s * t * -(-V // t), z.compute_dtype, "tp", "logits", formula="b·s/c·t·ceil(V/t)",
            values=f"{b}·{s}·{t}·ceil({V}/{t})", source=f"{_PLAN}: ColwiseParallel to Replicate",
            why="without loss parallelism every rank computes the loss of all logits", role="loss",
        )  # fmt: skip
        return
    for what in ("largest logit", "sum of exponentials", "logit of the label"):
        yield z.row(
            stage, "all_reduce", "tp", "loss", m, b * s, "fp32", "tp", what, formula="b·s/c", values=f"{b}·{s}",
            source=f"{_LOSS} _log_softmax, _nll_loss_forward", why="the softmax runs over logits that are cut along the vocabulary",
        )  # fmt: skip


def _replicated_gradients(z: Sizes, stage: Stage) -> Iterator[Operation]:
    # Norms: held whole and used on the rank's part of the sequence. (A bias after a row-parallel product sees the gathered
    # gradient, so it needs no sum.)
    # A norm of queries or keys sees the rank's own heads; what compresses for latent attention is on every rank (NoParallel).
    sizes: Counter[tuple[str, int]] = Counter()
    for x in z.stage_tensors(stage):
        mixer = None if x.layer is None else z.arch.layers[x.layer].mixer
        if x.part in ("norm", "final_norm") or _by_head(mixer, x.name):
            sizes["gradients of norms", x.elements] += 1
        elif isinstance(mixer, LatentAttention) and x.part == "mixer" and x.split_dim is None:
            sizes["gradients of what compresses", x.elements] += 1
    layers = len(stage.layers)
    for (what, elements), count in sizes.items():
        if z.sharded:
            each = z.config.reduces_each("reduce_scatter")
            times = z.plan.micro_batches if each else 1
            # Gradients that wait for the last micro-batch are added up in reduce_dtype.
            at_once = each or (z.plan.micro_batches == 1 and z.plan.pp == 1)
            dtype = z.compute_dtype if at_once else z.config.reduce_dtype()
            yield z.row(
                stage, "all_reduce", "tp", "backward" if z.plan.pp == 1 else "gradients", count * times, elements, dtype, "sp",
                what, formula="size of the parameter", values=f"{elements:,}", layers=layers,
                source="torch fsdp/_fully_shard/_fsdp_param.py FSDPParam.unsharded_grad_data",
                why="each rank has seen its part of the sequence; FSDP asks for the whole gradient before it scatters",
            )  # fmt: skip
        else:
            yield z.row(
                stage, "all_reduce", "tp", "optimizer", 2 * count, elements, "fp32", "sp",
                what, formula="size of the parameter", values=f"{elements:,}", layers=layers,
                source=f"{_CLIP} _get_total_norm; torch optim/adam.py _fused_adam",
                why="the gradient stays a partial sum, so the norm and the fused optimizer each sum it for themselves",
            )  # fmt: skip


def _by_head(mixer: Mixer | None, name: str) -> bool:
    return isinstance(mixer, Attention) and mixer.qk_norm == "head" and (".q_norm." in name or ".k_norm." in name)
