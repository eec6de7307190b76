"""Weights, gradients and optimizer state of a stage's rank.

Mixed-precision Adam keeps a master copy and two moments in fp32 for each parameter (12 bytes; Rajbhandari et al., ZeRO, 2020,
section 3.1). Megatron: parameters and gradients stand in one buffer each where the distributed optimizer is used, and
tensor by tensor otherwise; where gradients are in 16 bits the optimizer's fp32 copy of them lives from its step until gradients
are zeroed (megatron-core 0.16.1, distributed/param_and_grad_buffer.py; optimizer/optimizer.py; optimizer/distrib_optimizer.py).
Other frameworks: ``torch_states``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tokenwire.model.architecture import Experts, Tensor
from tokenwire.model.tensors import tensors, trains
from tokenwire.plan import Stage
from tokenwire.plan.base import Sharding
from tokenwire.plan.muon import multiplies
from tokenwire.timeline.memory.adam import on_device, state_bytes
from tokenwire.timeline.memory.allocator import counted, rounded
from tokenwire.timeline.memory.encoder import encoder_elements
from tokenwire.timeline.memory.frame import Frame
from tokenwire.timeline.memory.layer_wise import shared_out
from tokenwire.timeline.memory.part import STANDING, Part
from tokenwire.timeline.memory.torch_states import torch_states

SOURCE = "megatron-core 0.16.1, distributed/param_and_grad_buffer.py; Rajbhandari et al. 2020, section 3.1"


FROZEN = "frozen"
"""What is held and not trained: it has weights alone."""


@dataclass(frozen=True)
class Held:
    """The tensors of one kind on a rank, dense or of experts: elements of each; ``matrices`` says which multiply inside layers."""

    name: str
    elements: tuple[int, ...]
    matrices: tuple[bool, ...]

    @property
    def products(self) -> int:
        """Return the elements of matrices inside layers."""
        return sum(elements for elements, matrix in zip(self.elements, self.matrices, strict=True) if matrix)

    @property
    def total(self) -> int:
        """Return all elements."""
        return sum(self.elements)


def held(frame: Frame, stage: Stage) -> tuple[Held, ...]:
    """Return what a rank of a stage holds, the dense parameters and those of its experts."""
    layers = frozenset(stage.layers)
    here = [tensor for tensor in tensors(frame.arch, "megatron") if (tensor.layer in layers or _beside_layers(frame, tensor, stage))]
    frozen = [x for x in here if not trains(frame.arch, x)]
    here = [x for x in here if trains(frame.arch, x)]
    parts = ((FROZEN, frozen), ("dense", [x for x in here if x.part != "experts"]), ("experts", [x for x in here if x.part == "experts"]))
    further = {"dense": (*other_heads(frame, stage), *encoder_elements(frame, stage))}
    return tuple(_held(frame, name, some, further.get(name, ())) for name, some in parts if some)


def _held(frame: Frame, name: str, some: Sequence[Tensor], further: tuple[int, ...]) -> Held:
    matrices = tuple(multiplies(tensor) for tensor in some)
    return Held(name, (*(local_elements(frame, tensor) for tensor in some), *further), (*matrices, *(False for _ in further)))


def other_heads(frame: Frame, stage: Stage) -> tuple[int, ...]:
    """Return the elements of tensors that a decoder has not: BERT's kinds of tokens and heads, the bias of T5's head.

    megatron-core 0.16.1, models/bert, models/T5/t5_model.py (T5LMHead).
    """
    heads, h, vocabulary = frame.software.heads, frame.arch.hidden_size, frame.plan.vocabulary_size // frame.plan.tp
    if heads == "language":
        return ()
    if heads == "t5":
        return (vocabulary,) if stage.has_head else ()
    binary = heads == "bert"
    out = [2 * h] if stage.has_embedding and binary else []
    if stage.has_head:
        out += [h * h, h, h, h, vocabulary]
        out += [h * h, h, 2 * h, 2] if binary else []
    return tuple(out)


def _beside_layers(frame: Frame, tensor: Tensor, stage: Stage) -> bool:
    if tensor.layer is not None:
        return tensor.layer >= len(frame.arch.layers) and has_next_tokens(frame, stage)
    if tensor.part in ("final_norm", "head"):
        return stage.has_head
    # A tied head, and the layers of multi-token prediction, need the table of tokens too.
    second = tensor.name == "embedding.weight" and ((stage.has_head and frame.arch.tied_embeddings) or has_next_tokens(frame, stage))
    return stage.has_embedding or second


def has_next_tokens(frame: Frame, stage: Stage) -> bool:
    """Return whether the layers of multi-token prediction stand on a stage."""
    return stage.has_next_tokens and frame.arch.mtp_layers > 0


def local_elements(frame: Frame, tensor: Tensor) -> int:
    """Return the elements of a tensor on a rank, before data parallelism cuts them further."""
    plan, shape = frame.plan, list(tensor.shape)
    if tensor.split == "vocabulary":
        shape[0] = plan.vocabulary_size
    expert = tensor.part == "experts"
    elements = 1
    for size in shape:
        elements *= size
    if expert:
        elements //= plan.ep
    if tensor.split_dim is not None:
        elements //= plan.etp if expert else plan.tp
    return elements


def states(frame: Frame, stage: Stage) -> Iterator[Part]:
    """Yield weights, gradients and optimizer state of a rank of a stage, dense parameters and experts apart."""
    parts = held(frame, stage)
    for part in parts:
        yield from _megatron(frame, part) if frame.dialect == "megatron" else torch_states(frame, part.name, part.total, part.products)
    if frame.plan.config.autocast(frame.plan):
        head = frame.plan.vocabulary_size // frame.plan.tp * frame.arch.hidden_size if stage.has_head else 0
        n = head + sum(part.products for part in parts)
        yield frame.part("weights", "matrices as autocast casts them, kept for the backward", "e·n", frame.item * n, more={"n": n}, moments=STANDING,
                         source="torch 2.13, aten/src/ATen/autocast_mode.cpp, cached_cast")  # fmt: skip


def _megatron(frame: Frame, part: Held) -> Iterator[Part]:
    training, plan = frame.plan.training, frame.plan
    cut = megatron_fsdp(frame, expert=part.name == "experts") or plan.config.sharding(plan, expert=part.name == "experts")
    sharded = frame.option("use_distributed_optimizer", False)
    gradient = int(cut.gradient_bytes)
    if part.name == FROZEN:
        yield from _frozen(frame, part)
        return
    P, N = part.total, cut.optimizer
    more = {"P": P, "N": N}
    expandable = frame.software.expandable_segments

    def each(size: int) -> int:
        return sum(rounded(elements * size) for elements in part.elements)

    copies = _copies_in_fp8(frame)
    if frame.fp8 and frame.option("fp8_param_gather"):
        size = (frame.item * (P - part.products) + copies * part.products) // cut.weights
        yield _state(frame, "weights", f"weights, {part.name}, products in fp8", f"{frame.item}·(P-n)+{copies}·n", size, {**more, "n": part.products})
    else:
        weights = counted(P * frame.item // cut.weights, expandable=expandable) if sharded else each(frame.item)
        yield _state(frame, "weights", f"weights, {part.name}", _over(f"{frame.item}·P", cut.weights), weights, more)
        if frame.fp8:
            yield _cast(frame, part, copies)
    buffer = counted(P * gradient // cut.gradients, expandable=expandable)
    yield _state(frame, "gradients", f"gradients, {part.name}", _over(f"{gradient}·P", cut.gradients), buffer, more)
    state = state_bytes(training, frame.software)
    size = on_device(state * P // N if sharded else each(4) * state // 4, frame.software)
    if frame.muon:
        yield _muon(frame, part)
        return
    share = f"·{1 - frame.software.optimizer_offload_fraction:g}" if frame.software.optimizer_offload_fraction else ""
    yield _state(frame, "optimizer", f"optimizer state, {part.name}", f"{state}·P{'/N' if sharded else ''}{share}", size, more)
    other = frame.software.use_precision_aware_optimizer or frame.sharding_strategy
    if training.precision != "fp32" and gradient != 4 and not other:
        yield frame.part("gradients", f"fp32 copy of gradients, {part.name}", "4·P/N", 4 * P // N, more=more,
                         moments=("between", "optimizer"), source="megatron-core 0.16.1, optimizer/optimizer.py")  # fmt: skip


def _copies_in_fp8(frame: Frame) -> int:
    # What is kept in fp8 is kept with its transpose on Hopper (TransformerEngine, pytorch/tensor/float8_tensor.py).
    return 1 + (frame.software.facts.capability == 9)


def _cast(frame: Frame, part: Held, copies: int) -> Part:
    return frame.part("weights", f"fp8 copies of weights, {part.name}", f"{copies}·n", copies * part.products, more={"n": part.products},
                      source="NVIDIA/TransformerEngine, transformer_engine/pytorch/module/base.py, get_weight_workspace")  # fmt: skip


def _frozen(frame: Frame, part: Held) -> Iterator[Part]:
    # Tensor by tensor: buffers hold what is trained (distributed_data_parallel.py, requires_grad).
    more, copies = {"P": part.total, "n": part.products}, _copies_in_fp8(frame)
    if frame.fp8 and frame.option("fp8_param_gather"):
        size = frame.item * (part.total - part.products) + copies * part.products
        yield _state(frame, "weights", "weights, frozen, products in fp8", f"{frame.item}·(P-n)+{copies}·n", size, more)
        return
    yield _state(frame, "weights", "weights, frozen", f"{frame.item}·P", sum(rounded(n * frame.item) for n in part.elements), more)
    if frame.fp8:
        yield _cast(frame, part, copies)


def _muon(frame: Frame, part: Held) -> Part:
    # One moment of what it updates, Adam's two of the rest.
    P, more = part.total, {"P": part.total, "n": part.products}
    what, formula = f"optimizer state, {part.name}, of Muon and of Adam", "8·n+12·(P-n)"
    if frame.layer_wise == "none":
        return _state(frame, "optimizer", what, formula, 12 * P - 4 * part.products, more)
    ranks = frame.plan.edp if part.name == "experts" else frame.plan.dp * frame.plan.cp
    shares = shared_out(_one_by_one(frame, part), ranks)
    size = shares[-1] if frame.layer_wise == "last" else max(shares)
    return _state(frame, "optimizer", f"{what}, of the tensors of the {frame.layer_wise} rank", f"{formula}, shared out", size, more)


def _one_by_one(frame: Frame, part: Held) -> list[tuple[int, bool]]:
    """Return the tensors of a kind, each expert's apart."""
    counts = [layer.feed_forward.count for layer in frame.arch.kinds if isinstance(layer.feed_forward, Experts)]
    each = counts[0] // frame.plan.ep if part.name == "experts" and counts else 1
    return [(elements // each, matrix) for elements, matrix in zip(part.elements, part.matrices, strict=True) for _ in range(each)]


def megatron_fsdp(frame: Frame, *, expert: bool) -> Sharding | None:
    """Return what Megatron-FSDP cuts by its ranks, None where it does not run (core/distributed/fsdp, distributed_data_parallel_config.py)."""
    strategy = frame.sharding_strategy
    if not strategy:
        return None
    plain = frame.plan.config.sharding(frame.plan, expert=expert)
    ranks = (frame.plan.edp if expert else frame.plan.dp * frame.plan.cp) // frame.option("num_distributed_optimizer_instances", 1)
    depth = ("no_shard", "optim", "optim_grads", "optim_grads_params").index(strategy)
    return replace(plain, optimizer=ranks if depth > 0 else 1, gradients=ranks if depth > 1 else 1, weights=ranks if depth > 2 else 1)


def _over(formula: str, ranks: int) -> str:
    return f"{formula}/N" if ranks > 1 else formula


def _state(frame: Frame, kind: str, what: str, formula: str, size: int, more: dict[str, int]) -> Part:
    return frame.part(kind, what, formula, size, more=more, source=SOURCE)  # type: ignore[arg-type]
