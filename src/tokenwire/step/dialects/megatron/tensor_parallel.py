"""What tensor parallelism says, with and without sequence parallelism.

A block is a column-parallel product, something between, and a row-parallel product (attention; feed-forward; a
state-space mixer). Its activations are b·s/c·h elements. Without sequence parallelism a block sums its output
(forward) and the gradient of its input (backward). With it the sum is a reduce_scatter, the input an all_gather, and the
backward gathers once more what the weight gradient needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tokenwire.model.architecture import Attention, Experts, LatentAttention
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.low_precision import Usage, by_precision, gathered
from tokenwire.step.dialects.megatron.recompute import checkpoints, recomputed_blocks, recomputed_layers
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase, Product

_LAYERS = "megatron-core tensor_parallel/layers.py"
_LINEAR = f"{_LAYERS} LinearWithGradAccumulationAndAsyncCommunication"
_ROW = f"{_LAYERS} RowParallelLinear.forward"
_MAPPINGS = "megatron-core tensor_parallel/mappings.py"
_RANDOM = "megatron-core tensor_parallel/random.py"
_FULL = "b·s/c·h"


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage: embedding, blocks, head and loss."""
    if sizes.plan.tp == 1:
        return
    if stage.has_embedding:
        yield from embedding(sizes, stage)
    yield from _blocks(sizes, stage)
    yield from _replicated_kv(sizes, stage)
    if stage.has_head:
        yield from head(sizes, stage)


def embedding(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of looking up the tokens of a micro-batch."""
    m, sequence = z.plan.micro_batches, z.sequence_parallel
    scattered = sequence and z.arch.positions not in ("learned", "sinusoidal")
    yield z.row(
        stage.index, "reduce_scatter" if scattered else "all_reduce", "tp", "forward", m, z.activation, "embedding",
        formula=_FULL, parallelism="sp" if scattered else "tp", source=f"{_LAYERS} VocabParallelEmbedding.forward", role="embedding",
        why="each rank has rows for a part of the vocabulary and zeros for the rest; the sum is the embedding"
        + (", and each rank keeps its part of the sequence" if scattered else ""),
    )  # fmt: skip
    if sequence and z.arch.adapters is None:
        name = "_ReduceScatterToSequenceParallelRegion" if scattered else "_ScatterToSequenceParallelRegion"
        yield z.row(
            stage.index, "all_gather", "tp", "backward", m, z.activation, "embedding gradient", formula=_FULL,
            parallelism="sp", source=f"{_MAPPINGS} {name}.backward", role="embedding",
            why="the rows of the embedding need the gradient of every token, so the parts of the sequence are gathered",
        )  # fmt: skip


def _blocks(z: Sizes, stage: Stage) -> Iterator[Operation]:
    for low, layers in by_precision(z, stage):
        counts = Counter(name for index in layers for name in blocks_of(z.arch.layers[index]))
        again = recomputed_blocks(z, stage, layers)
        for name, blocks in counts.items():
            if name == "latent attention":
                yield from _latent(z, stage, name, blocks, again.get(name, 0), low)
                continue
            graded = blocks - (name == "attention" and 0 in layers and nothing_below(z))
            yield from _block(z, stage, name, blocks, graded, again.get(name, 0), low)
    kept = checkpoints(z, stage)
    if z.config.distribute_saved_activations:
        yield z.row(
            stage.index, "all_gather", "tp", "backward", kept * z.plan.micro_batches, z.activation, "kept activation",
            formula=_FULL, parallelism="tp", source=f"{_RANDOM} CheckpointFunction.backward",
            why="each rank kept a part of the input of the layers that are run again", layers=kept,
        )  # fmt: skip


def nothing_below(z: Sizes) -> bool:
    """Return whether the first layer's input needs no gradient: the embedding is frozen, and nothing has it recomputed from an input."""
    return z.arch.adapters is not None and z.config.recompute_granularity != "full"


def blocks_of(layer: object) -> list[str]:
    """Return the names of the column-then-row-parallel blocks of a layer (experts speak over their own groups)."""
    mixer, feed = getattr(layer, "mixer", None), getattr(layer, "feed_forward", None)
    out = []
    if mixer is not None:
        named = {Attention: "attention", LatentAttention: "latent attention"}
        out.append(named.get(type(mixer), "state space"))
    if isinstance(feed, Experts):
        out += ["shared experts"] if feed.shared is not None else []
    elif feed is not None:
        out.append("feed-forward")
    return out


def _block(z: Sizes, stage: Stage, name: str, layers: int, graded: int, again: int, low: bool) -> Iterator[Operation]:
    # ``graded`` of the layers need the gradient of their input.
    m, i = z.plan.micro_batches, stage.index

    def row(op: Op, phase: Phase, times: int, what: str, source: str, why: str, over: Product | None = None) -> Operation:
        return z.row(
            i, op, "tp", phase, times * m, z.activation, f"{name} {what}", formula=_FULL, source=source, why=why,
            parallelism="sp" if z.sequence_parallel else "tp", layers=times, overlapped=over,
        )  # fmt: skip

    def gather(phase: Phase, times: int, what: str, source: str, why: str, usage: Usage) -> Iterator[Operation]:
        call = row("all_gather", phase, times, what, source, why, "input" if usage == "columns" else None)
        return gathered(z, call, z.arch.hidden_size, usage) if low else iter((call,))

    recompute, runs_again = f"{_RANDOM} CheckpointFunction.backward", "recomputation runs the forward once more"
    if not z.sequence_parallel:
        yield row("all_reduce", "forward", layers, "output", _ROW,
                  "each rank has a partial sum of the row-parallel product; every rank needs the whole")  # fmt: skip
        yield row("all_reduce", "backward", graded, "input gradient", f"{_LINEAR}.backward",
                  "each rank's columns give a part of the gradient of the input", "weight")  # fmt: skip
        yield row("all_reduce", "backward", again, "output again", recompute, runs_again)
        return
    yield from gather("forward", layers, "input", f"{_LINEAR}.forward",
                      "the column-parallel product needs the whole sequence", "rows")  # fmt: skip
    yield row("reduce_scatter", "forward", layers, "output", _ROW,
              "partial sums are added, and each rank keeps its part of the sequence")  # fmt: skip
    yield from gather("backward", layers, "output gradient", f"{_MAPPINGS} _ReduceScatterToSequenceParallelRegion.backward",
                      "the mirror of the reduce_scatter of the forward", "both")  # fmt: skip
    if z.arch.adapters is None:
        yield from gather("backward", layers, "input again", f"{_LINEAR}.backward",
                          "only a part of the input was kept; the weight gradient needs all of it", "columns")  # fmt: skip
    yield row("reduce_scatter", "backward", graded, "input gradient", f"{_LINEAR}.backward",
              "the mirror of the all_gather of the forward", "weight")  # fmt: skip
    yield from gather("backward", again, "input, recomputed", recompute, runs_again, "rows")
    yield row("reduce_scatter", "backward", again, "output, recomputed", recompute, runs_again)


def _latent(z: Sizes, stage: Stage, name: str, layers: int, again: int, low: bool) -> Iterator[Operation]:
    # Down-projections are whole on every rank (Transformer Engine's "duplicated") and work on a part of the sequence; the
    # up-projections are column-parallel and take in the compressed vectors.
    mixer = next(m for m in (z.arch.layers[index].mixer for index in stage.layers) if isinstance(m, LatentAttention))
    queries = ("q", mixer.q_lora_rank) if mixer.q_lora_rank is not None else ("h", z.arch.hidden_size)
    inputs = ((f"compressed {what}", symbol, width) for what, (symbol, width) in
              (("queries", queries), ("keys and values", ("kv", mixer.kv_lora_rank))))  # fmt: skip
    m, source = z.plan.micro_batches, "megatron-core transformer/multi_latent_attention.py get_query_key_value_tensors"
    alone = z.config.recompute_granularity == "selective" and "mla_up_proj" in z.config.recompute_modules
    ups_again = layers if alone else again

    def row(
        op: Op, phase: Phase, times: int, what: str, symbol: str, width: int, why: str, over: Product | None = None
    ) -> Operation:
        return z.row(
            stage.index, op, "tp", phase, times * m, z.tokens * width, what, formula=f"b·s/c·{symbol}",
            values=f"{z.tokens:,}·{width:,}", source=source, why=why, parallelism="sp" if z.sequence_parallel else "tp",
            layers=times, overlapped=over,
        )  # fmt: skip

    def gather(phase: Phase, times: int, what: str, symbol: str, width: int, why: str, usage: Usage) -> Iterator[Operation]:
        call = row("all_gather", phase, times, what, symbol, width, why, "input" if usage == "columns" else None)
        return gathered(z, call, width, usage) if low else iter((call,))

    for what, symbol, width in inputs:
        if not z.sequence_parallel:
            yield row("all_reduce", "backward", layers, f"gradient of {what}", symbol, width,
                      "each rank's heads give a part of the gradient")  # fmt: skip
            continue
        needs = "heads are made for the whole sequence"
        yield from gather("forward", layers, what, symbol, width, needs, "rows")
        yield from gather("backward", layers, f"{what} again", symbol, width, "the weight gradient needs all of it", "columns")
        yield row("reduce_scatter", "backward", layers, f"gradient of {what}", symbol, width, "the mirror of the all_gather")
        yield from gather("backward", ups_again, f"{what}, recomputed", symbol, width, needs, "rows")
    h, d = z.arch.hidden_size, mixer.qk_rope_head_dim
    if not z.sequence_parallel:
        yield row("all_reduce", "forward", layers, f"{name} output", "h", h, "each rank has a partial sum")
        yield row("all_reduce", "backward", again, f"{name} output again", "h", h, "recomputation runs the forward again")
        return
    yield row("all_gather", "forward", layers, "rotary part of the keys", "d_rope", d, "all heads share it")
    yield row("reduce_scatter", "backward", layers, "gradient of the rotary part of the keys", "d_rope", d,
              "the mirror of the all_gather")  # fmt: skip
    yield row("all_gather", "backward", again, "rotary part of the keys, recomputed", "d_rope", d, "all heads share it")
    yield row("reduce_scatter", "forward", layers, f"{name} output", "h", h, "partial sums; a part of the sequence each")
    yield from gather("backward", layers, f"{name} output gradient", "h", h, "the mirror of the reduce_scatter", "both")
    yield row("reduce_scatter", "backward", again, f"{name} output, recomputed", "h", h, "the forward runs again")


def _replicated_kv(z: Sizes, stage: Stage) -> Iterator[Operation]:
    # Fewer KV heads than tensor-parallel ranks: the fused projection is gathered, and each rank picks its heads.
    sizes, again = _gathered_widths(z, stage.layers), _gathered_widths(z, recomputed_layers(z, stage))
    name, what = "_AllGatherFromTensorParallelRegion", "queries, keys and values"
    for width, layers in sizes.items():
        parts: tuple[tuple[Op, Phase, int, str, str], ...] = (
            ("all_gather", "forward", layers, what, f"{_MAPPINGS} {name}.forward"),
            ("reduce_scatter", "backward", layers, f"gradients of {what}", f"{_MAPPINGS} {name}.backward"),
            ("all_gather", "backward", again[width], f"{what}, recomputed", f"{_RANDOM} CheckpointFunction.backward"),
        )
        for op, phase, times, said, source in parts:
            yield z.row(
                stage.index, op, "tp", phase, times * z.plan.micro_batches, z.tokens * width, said,
                formula="b·s/c·(q+2·kv)", values=f"{z.tokens:,}·{width:,}", source=source, parallelism="tp",
                why=f"fewer KV heads than the {z.plan.tp} ranks: the projection is gathered so that each finds its head",
                layers=times,
            )  # fmt: skip


def _gathered_widths(z: Sizes, layers: Iterable[int]) -> Counter[int]:
    """Return how many of the layers gather their queries, keys and values, by the width of these."""
    return Counter(
        (mixer.heads * mixer.head_dim * (2 if mixer.gate else 1)
         + mixer.kv_heads * (mixer.head_dim + (mixer.value_head_dim or mixer.head_dim)))
        for mixer in (z.arch.layers[index].mixer for index in layers)
        if isinstance(mixer, Attention) and mixer.kv_heads < z.plan.tp
    )  # fmt: skip


def head(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of the output layer and of the loss."""
    yield from _output_layer(z, stage)
    yield from _cross_entropy(z, stage)


def _output_layer(z: Sizes, stage: Stage) -> Iterator[Operation]:
    m, i = z.plan.micro_batches, stage.index
    if not z.sequence_parallel:
        yield z.row(i, "all_reduce", "tp", "backward", m, z.activation, "head input gradient", formula=_FULL,
                    parallelism="tp", role="head", overlapped="weight", source=f"{_LINEAR}.backward",
                    why="each rank's part of the vocabulary gives a part of the gradient of the input")  # fmt: skip
        return
    rows: tuple[tuple[Op, Phase, Product | None, str, str], ...] = (
        ("all_gather", "forward", None, "head input", "logits are needed for every token"),
        ("all_gather", "backward", "input", "head input again", "the weight gradient needs every token"),
        ("reduce_scatter", "backward", "weight", "head input gradient", "the mirror of the all_gather"),
    )
    for op, phase, over, what, why in rows:
        if over == "input" and z.arch.adapters is not None:
            continue  # its weight is frozen
        yield z.row(i, op, "tp", phase, m, z.activation, what, formula=_FULL, parallelism="sp", role="head", overlapped=over,
                    source=f"{_LINEAR}.{phase}", why=why)  # fmt: skip


def _cross_entropy(z: Sizes, stage: Stage) -> Iterator[Operation]:
    m, i = z.plan.micro_batches, stage.index
    parts: tuple[tuple[str, int, str], ...]
    if z.config.cross_entropy_loss_fusion and z.config.cross_entropy_fusion_impl == "native":
        source = "megatron-core fusions/fused_cross_entropy.py _VocabParallelCrossEntropy.forward"
        parts = (("largest logit", 1, "b·s/c"), ("predicted logit and sum of exponentials", 2, "2·b·s/c"))
    else:
        source = "megatron-core tensor_parallel/cross_entropy.py _VocabParallelCrossEntropy.forward"
        parts = (("largest logit", 1, "b·s/c"), ("predicted logit", 1, "b·s/c"), ("sum of exponentials", 1, "b·s/c"))
    for what, times, formula in parts:
        yield z.row(
            i, "all_reduce", "tp", "forward", m, times * z.tokens, f"loss: {what}", formula=formula, dtype="fp32",
            parallelism="tp", source=source, role="loss",
            why="the vocabulary is cut over the ranks, so the softmax is put together from one number a token each",
        )  # fmt: skip
