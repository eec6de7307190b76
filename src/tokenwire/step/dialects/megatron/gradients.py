"""Gradients and parameters over the data-parallel groups, once a step, bucket by bucket.

Plain DDP all-reduces each bucket. The distributed optimizer reduce-scatters it and gathers the new parameters; with several
instances of it the scattered part is all-reduced between them. Experts have buffers of their own over the
expert-data-parallel group. Each virtual stage has its own buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokenwire.model.architecture import Experts, LatentAttention, Layer, Tensor
from tokenwire.model.tensors import tensors, trains
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.buckets import Length, buckets, default_bucket_size, joined
from tokenwire.step.dialects.megatron.low_precision import in_fp8, kept_in_fp8
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Operation, Phase

_BUFFER = "megatron-core distributed/param_and_grad_buffer.py _ParamAndGradBucketGroup"


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield gradient and parameter traffic of a stage."""
    buffered = () if sizes.config.use_megatron_fsdp else (False, True) if has_optimizer_of_experts(sizes, stage) else (False,)
    for expert in buffered:
        # Parameters kept in fp8 have a buffer of their own: they are gathered as single bytes (mxfp8: in bf16, cast after that).
        for fp8 in (True, False) if sizes.config.fp8_param_gather else (False,):
            yield from _buffers(sizes, stage, expert, fp8)
    if sizes.plan.training.optimizer == "dist_muon":
        yield from _updated_parameters(sizes, stage)
    yield from _replicated_gradients(sizes, stage)
    yield from _tied_embedding(sizes, stage)


@dataclass(frozen=True, eq=False)
class Piece:
    """Parameters that are registered one after the other, of a layer or of what stands before or after all of them.

    Each is (tensor, elements on this rank, whether it is a copy of a tied embedding). Layers that are alike are one piece, with the
    tensors of the first of them.
    """

    parameters: tuple[tuple[Tensor, int, bool], ...]


def chunk_tensors(z: Sizes, stage: Stage, chunk: int) -> Iterator[tuple[Tensor, int, bool]]:
    """Yield the parameters of a virtual stage in the order of registration."""
    for piece in pieces(z, stage, chunk):
        yield from piece.parameters


def pieces(z: Sizes, stage: Stage, chunk: int) -> tuple[Piece, ...]:
    """Return the parameters of a virtual stage, piece by piece in the order of registration."""
    return z.once(("pieces", stage.index, chunk), lambda: tuple(_pieces(z, stage, chunk)))


def _pieces(z: Sizes, stage: Stage, chunk: int) -> Iterator[Piece]:
    _, before, after = _parts(z)
    own = z.own
    first = stage.has_embedding and chunk == 0
    last = stage.has_head and chunk == z.plan.vpp - 1
    further = stage.has_next_tokens and chunk == z.plan.vpp - 1
    shared = (z.arch.tied_embeddings or z.next_tokens > 0) and z.plan.pp > 1
    if first or further:
        yield Piece(tuple((tensor, local_elements(z, tensor), shared and tensor.part == "embedding") for tensor in before))
    yield from (_of_layer(z, index) for index in stage.chunks[chunk] if index < own)
    # The last norm goes with the head; beside multi-token prediction with the last layer.
    if own - 1 in stage.chunks[chunk] if z.next_tokens else last:
        yield Piece(tuple((tensor, local_elements(z, tensor), False) for tensor in after if tensor.part != "head"))
    if further:
        yield from (_of_layer(z, index) for index in range(own, own + z.config.mtp_modules))
    if last:
        yield Piece(tuple((tensor, local_elements(z, tensor), False) for tensor in after if tensor.part == "head"))
        if shared and z.arch.tied_embeddings and before:
            # Beside a layer of multi-token prediction the copy is its embedding, and the head has memory that goes unused.
            yield Piece(((before[0], local_elements(z, before[0]), not further),))


def _of_layer(z: Sizes, index: int) -> Piece:
    # Most layers are one object, but modules for further tokens have tensors of their own, and some layers are in 16 bits beside 8.
    key = (id(z.arch.layers[index]), in_fp8(z, index)) if index < z.own else ("further", index)
    return z.once(key, lambda: Piece(tuple((tensor, n, False) for tensor, n in _registered(z, _parts(z)[0].get(index, [])))))


def _registered(z: Sizes, layer: list[Tensor]) -> Iterator[tuple[Tensor, int]]:
    # SequentialMLP has a module an expert; TEGroupedMLP (moe_grouped_gemm) a module for each product of all experts.
    waiting: list[tuple[Tensor, list[int]]] = []
    for tensor in layer:
        if tensor.part == "experts" and not z.config.moe_grouped_gemm:
            waiting.append((tensor, local_pieces(z, tensor)))
            continue
        yield from _expert_by_expert(waiting)
        waiting = []
        yield from ((tensor, n) for n in local_pieces(z, tensor))
    yield from _expert_by_expert(waiting)


def _expert_by_expert(tensors_: list[tuple[Tensor, list[int]]]) -> Iterator[tuple[Tensor, int]]:
    for expert in range(len(tensors_[0][1]) if tensors_ else 0):
        for tensor, pieces in tensors_:
            yield tensor, pieces[expert]


def _parts(z: Sizes) -> tuple[dict[int, list[Tensor]], list[Tensor], list[Tensor]]:
    cached = _PARTS.get(id(z.arch))
    if cached is not None and cached[0] is z.arch:
        return cached[1]
    by_layer: dict[int, list[Tensor]] = {}
    before, after = [], []
    for tensor in tensors(replace(z.arch, layers=z.arch.layers[: z.own], mtp_layers=z.config.mtp_modules), "megatron"):
        if not trains(z.arch, tensor):
            continue
        if tensor.layer is not None:
            by_layer.setdefault(tensor.layer, []).append(tensor)
        elif tensor.part in ("final_norm", "head"):
            after.append(tensor)
        else:
            before.append(tensor)
    _PARTS.clear()
    _PARTS[id(z.arch)] = (z.arch, (by_layer, before, after))
    return by_layer, before, after


_PARTS: dict[int, tuple[object, tuple[dict[int, list[Tensor]], list[Tensor], list[Tensor]]]] = {}


def local_elements(z: Sizes, tensor: Tensor) -> int:
    """Return the elements of a tensor that one rank holds; vocabulary rows are padded first."""
    elements = tensor.elements
    if tensor.split == "vocabulary":
        elements = elements // tensor.shape[0] * z.plan.vocabulary_size
    if tensor.part == "experts":
        return elements // z.plan.ep // (z.plan.etp if tensor.split_dim is not None else 1)
    return elements // (z.plan.tp if tensor.split_dim is not None else 1)


def local_pieces(z: Sizes, tensor: Tensor) -> list[int]:
    """Return the elements of each parameter that a tensor is on one rank: experts are a parameter each."""
    if tensor.part != "experts":
        return [local_elements(z, tensor)]
    count = tensor.shape[0] // z.plan.ep
    return [local_elements(z, tensor) // count] * count


def shard_group(z: Sizes, expert: bool) -> str:
    """Return the group over which gradients are scattered: one instance of the distributed optimizer."""
    if z.config.num_distributed_optimizer_instances == 1:
        return "edp" if expert else z.data_group
    return "edp_shard" if expert else ("dp_shard" if z.plan.cp == 1 else "dp_shard_cp")


def _buffers(z: Sizes, stage: Stage, expert: bool, fp8: bool) -> Iterator[Operation]:
    config, plan = z.config, z.plan
    distributed = config.use_distributed_optimizer
    instances = config.num_distributed_optimizer_instances
    group = shard_group(z, expert)
    size = plan.group_size(group)
    limit = config.ddp_bucket_size or default_bucket_size(plan.dp)
    sent: Counter[tuple[int, int]] = Counter()
    for chunk in range(len(stage.chunks)):
        bucketed = config.overlap_grad_reduce and stage.index == 0 and chunk == 0
        lengths = [length for piece in pieces(z, stage, chunk) for length in _in_buffer(z, piece, expert, fp8, whole=not bucketed)]
        sent.update(buckets(
            lengths, bucket_size=limit if bucketed else None, group_size=size, padded=distributed,
            busbw=config.pad_buckets_for_high_nccl_busbw,
        ))  # fmt: skip
    what = "expert gradients" if expert else "gradients"
    parallelism = "ep" if expert else "dp"
    for (elements, inside), count in sent.items():
        values = f"{inside:,} + {elements - inside:,}" if distributed else f"{elements:,}"
        if not distributed:
            yield z.row(
                stage.index, "all_reduce", group, "gradients", count, elements, what, formula="parameters of the bucket", values=values,
                dtype=z.gradient_dtype, parallelism=parallelism, source=f"{_BUFFER}.start_grad_sync",
                why="every replica saw other data: their gradients are added before the optimizer's step",
            )  # fmt: skip
            continue
        busbw = ", 65,536" if config.pad_buckets_for_high_nccl_busbw else ""
        formula = f"parameters + padding to 64 each and lcm({size}, 128{busbw}) in all"
        if config.reduce_scatter_with_fp32_accumulation:
            yield z.row(
                stage.index, "all_to_all", group, "gradients", count, elements, what, formula=formula, values=values,
                dtype=z.gradient_dtype, parallelism=parallelism, source="megatron-core distributed/"
                "reduce_scatter_with_fp32_accumulation.py reduce_scatter_with_fp32_accumulation",
                why="the parts are exchanged in low precision and added on each rank in fp32",
            )  # fmt: skip
        else:
            yield z.row(
                stage.index, "reduce_scatter", group, "gradients", count, elements, what, formula=formula, values=values,
                dtype=z.gradient_dtype, parallelism=parallelism, source=f"{_BUFFER}.start_grad_sync",
                why="each rank needs the summed gradients of the part whose optimizer state it holds",
            )  # fmt: skip
        if instances > 1:
            yield z.row(
                stage.index, "all_reduce", "edp_replicate" if expert else "dp_replicate", "gradients", count,
                elements // size, f"{what} between optimizer instances", formula="bucket/D_shard",
                values=f"{elements:,}/{size}", dtype=z.gradient_dtype, parallelism=parallelism,
                source=f"{_BUFFER}.start_grad_sync",
                why="each instance of the distributed optimizer added only its own replicas",
            )  # fmt: skip
        phase: Phase = "forward" if config.overlap_param_gather else "optimizer"
        # Dense parameters and experts have an optimizer each, and each of the two gathers the parameters of both.
        twice = 2 if has_optimizer_of_experts(z, stage) and not config.overlap_param_gather else 1
        yield z.row(
            stage.index, "all_gather", group, phase, count * twice, elements, what.replace("gradients", "parameters"),
            formula=formula, values=values, dtype="fp8" if fp8 and config.fp8_recipe != "mxfp8" else z.dtype, parallelism=parallelism,
            source=f"{_BUFFER}.start_param_sync",
            why="each rank stepped its part of the parameters; the next forward needs all of them"
            + ("; said twice, since the optimizers of dense parameters and of experts both gather everything"
               if twice == 2 else ""),
        )  # fmt: skip


def _updated_parameters(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the gathering of whole tensors, each of which one rank has updated."""
    for expert in (False, True) if has_optimizer_of_experts(z, stage) else (False,):
        group = "edp" if expert else z.data_group
        every = (piece for chunk in range(len(stage.chunks)) for piece in pieces(z, stage, chunk))
        elements = sum(n for piece in every for tensor, n, _ in piece.parameters if apart(z, tensor) == expert)
        yield z.row(
            stage.index, "all_gather", group, "optimizer", 1, elements, "expert parameters" if expert else "parameters", formula="parameters of the rank",
            values=f"{elements:,}", dtype=z.dtype, parallelism="ep" if expert else "dp",
            source="megatron-core optimizer/layer_wise_optimizer.py LayerWiseDistributedOptimizer.allgather_params",
            why="each rank updated some tensors whole, in parts of unequal length; the next forward needs all",
        )  # fmt: skip


def apart(sizes: Sizes, tensor: Tensor) -> bool:
    """Return whether a tensor has its gradients reduced over the expert-data-parallel group: experts, where ep > 1.

    megatron-core transformer/moe/experts.py and tensor_parallel/layers.py: ``allreduce`` is False for those alone.
    """
    return tensor.part == "experts" and sizes.plan.ep > 1


def has_optimizer_of_experts(z: Sizes, stage: Stage) -> bool:
    """Return whether a stage has two optimizers, for dense parameters and for experts."""
    return z.plan.ep > 1 and any(isinstance(z.arch.layers[index].feed_forward, Experts) for index in stage.layers)


def _in_buffer(z: Sizes, piece: Piece, expert: bool, fp8: bool, whole: bool) -> tuple[Length, ...]:
    """Return what a piece has in a buffer; ``whole``: together, as it is never cut."""

    def found() -> tuple[Length, ...]:
        lengths = tuple(
            Length(n, n, alone) for tensor, n, alone in piece.parameters if apart(z, tensor) == expert and kept_in_fp8(z, tensor) == fp8
        )
        return joined(lengths, padded=z.config.use_distributed_optimizer) if whole else lengths

    return z.once((piece, expert, fp8, whole), found)


def _replicated_gradients(z: Sizes, stage: Stage) -> Iterator[Operation]:
    if z.plan.tp == 1:
        return
    elements = sum(_replicated(z, piece) for chunk in range(len(stage.chunks)) for piece in pieces(z, stage, chunk))
    yield z.row(
        stage.index, "all_reduce", "tp", "gradients", 1, elements, "gradients of replicated parameters",
        formula="norms, row-parallel biases, routers", values=f"{elements:,}", dtype=z.gradient_dtype, parallelism="sp",
        source="megatron-core distributed/finalize_model_grads.py _allreduce_non_tensor_model_parallel_grads",
        why="every rank holds them whole but saw only its part of the sequence",
    )  # fmt: skip


def _replicated(z: Sizes, piece: Piece) -> int:
    return z.once((piece, "replicated"), lambda: sum(n for tensor, n, _ in piece.parameters if _summed_over_tp(z, tensor)))


def _summed_over_tp(z: Sizes, tensor: Tensor) -> bool:
    if tensor.split_dim is not None or tensor.part in ("embedding", "position"):
        return False
    if tensor.part == "experts":
        # The bias of a row-parallel product is marked as seen by a part of the sequence, an expert's too (layers.py); not by
        # Transformer Engine's grouped products, which are not parallel themselves.
        return z.sequence_parallel and not z.config.moe_grouped_gemm
    # Norms of queries and keys are told by their names, which those inside the projections of latent attention have not.
    latent = tensor.layer is not None and any(isinstance(layer.mixer, LatentAttention) for layer in _layers_of(z, tensor.layer))
    return z.sequence_parallel or (not latent and tensor.name.rsplit(".", 2)[-2] in ("q_norm", "k_norm"))


def _layers_of(z: Sizes, index: int) -> tuple[Layer, ...]:
    """Return the layer of a tensor's index, or the layers of that module of multi-token prediction."""
    return z.arch.layers[index : index + 1] if index < z.own else z.arch.next_token_block


def _tied_embedding(z: Sizes, stage: Stage) -> Iterator[Operation]:
    copies = z.plan.embedding_stages
    if stage.index not in copies or z.arch.adapters is not None:
        return
    rows = z.plan.vocabulary_size // z.plan.tp
    yield z.row(
        stage.index, "all_reduce", "embedding", "gradients", 1, rows * z.arch.hidden_size, "gradient of the tied embedding",
        formula="V'/t·h", dtype=z.gradient_dtype, parallelism="pp",
        peer=copies[-1] if stage.has_embedding else 0,
        source="megatron-core distributed/finalize_model_grads.py _allreduce_word_embedding_grads",
        why=f"{len(copies)} stages hold the same matrix, as embedding or as head: all must take the same step",
    )  # fmt: skip
