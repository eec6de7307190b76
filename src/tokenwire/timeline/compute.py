"""How long a rank computes: seconds of each operator (roofline), of a virtual stage forward and backward, of the optimizer.

    seconds = max(FLOPs / (peak · share · sustained), bytes / (memory rate · share) )    + the start of memory-bound kernels

Source: Williams, Waterman and Patterson 2009, Roofline. The optimizer moves, for each parameter of the rank: gradients set to zero (4)
and scaled (8); for each of its share of optimizer state: norm (4), clipping (8), Adam (4 + 24), the copy to 16 bits (4 + 2).
Order of passes: Megatron-LM, megatron/core/optimizer/distrib_optimizer.py; sizes for fp32 gradients.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from tokenwire.model.adapters import beside
from tokenwire.model.architecture import Adapters, Architecture, Layer
from tokenwire.model.tensors import layer_tensors
from tokenwire.plan import Plan, Stage
from tokenwire.plan.compiled import loss_in_one_kernel, norms_apart
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.timeline.accelerator import Accelerator
from tokenwire.timeline.attention_speed import Shape, attention_speed
from tokenwire.timeline.efficiency import How, grouped_share, matmul_share
from tokenwire.timeline.kernels import Operator, Shapes
from tokenwire.timeline.operators import (
    ADAPTER,
    adapter_operators,
    embedding_operators,
    head_operators,
    layer_operators,
    next_token_operators,
)
from tokenwire.timeline.recompute import Again, again, repeated

AttentionKind = Literal["flash", "unfused"]
WIDE = ("output layer", "router", *ADAPTER)
"""Products that stay in 16 bits where the others have 8: Megatron-LM, megatron/core/fp8_utils.py (layers' linears alone, and the output
where MXFP8 is asked for it: is_mxfp8_output_proj_active); torchtitan's Float8 leaves the output out
(torchtitan/components/quantization/float8.py, filter_fqns)."""
CAST, LOOKED_FOR = 4.0, 2.0
"""Bytes an element of an input or an output's gradient that is cast to 8 bits ahead of a product: 2 read, 1 written as it lies and 1
turned, for the gradient of the weight; scaled by the tensor's own largest value, that is looked for first (2 more)
(NVIDIA/TransformerEngine, transformer_engine/common/recipe: DelayedScaling, MXFP8BlockScaling; Float8CurrentScaling)."""
PARTS = ("attention", "core", "feed_forward", "experts", "norm", "embedding", "head")
"""What the seconds of a layer are told by; ``core`` is attention between its projections."""


class Numbers(NamedTuple):
    """What is computed in: products, bytes an element that casting them to 8 bits moves, attention, and the products left in 16 bits."""

    products: str = "bf16"
    cast: float = 0.0
    attention: str = "bf16"
    wide: tuple[str, ...] = WIDE


@dataclass
class Work:
    """Seconds that one rank computes for one micro-batch of one virtual stage: forward, for inputs, for weights, again.

    ``matmul`` is the part of each phase in matrix products (what overlapped communication hides behind); ``parts`` sums all
    phases by part; ``known`` sums the seconds by how their efficiency is known.
    """

    forward: float = 0.0
    input: float = 0.0
    weight: float = 0.0
    recompute: float = 0.0
    flops: float = 0.0
    matmul: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    known: dict[str, float] = field(default_factory=dict)

    @property
    def backward(self) -> float:
        """Return the seconds of the whole backward, with what is computed again."""
        return self.input + self.weight + self.recompute

    @property
    def total(self) -> float:
        """Return all seconds of the micro-batch."""
        return self.forward + self.backward

    def plus(self, other: Work) -> Work:
        """Return both one after the other."""
        numbers = (getattr(self, name) + getattr(other, name) for name in ("forward", "input", "weight", "recompute", "flops"))
        tables = (_sums(getattr(self, name), getattr(other, name)) for name in ("matmul", "parts", "known"))
        return Work(*numbers, *tables)


def _sums(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in one | other}


@lru_cache(maxsize=8192)
def seconds(o: Operator, gpu: Accelerator, numbers: Numbers) -> tuple[float, How | None]:
    """Return the seconds of one operator, and how its efficiency is known (None: bound by memory).

    >>> from tokenwire.timeline.accelerator import accelerator
    >>> o = Operator("up", "feed_forward", "matmul", "forward", 2.0 * 4096**3, 3 * 2.0 * 4096**2, m=4096, k=4096, n=4096)
    >>> t, how = seconds(o, accelerator("A100 SXM"), Numbers())        # 137.4 GFLOP / (312 TFLOP/s · 0.799)
    >>> round(t * 1e3, 3), how
    (0.551, 'generic')
    """
    moved = gpu.memory_seconds(o.bytes, o.share, o.kernels if o.kind == "memory" else 0)
    if o.kind == "memory":
        return moved, None
    if o.kind == "attention":
        speed, how = attention_speed(gpu, numbers.attention, o.phase == "input", Shape(o.m, o.k, o.n, o.d, o.d_v, o.window))
        return max(o.flops / (speed * gpu.sustained_attention), moved), how
    narrow = numbers.products == "fp8" and o.name not in numbers.wide
    peak = gpu.peak(numbers.products if narrow else "fp32" if numbers.products == "fp32" else "bf16")
    if o.kind == "grouped":
        share, how = grouped_share(gpu, o.phase, o.groups, o.m, o.k, o.n)
    else:
        share, how = matmul_share(gpu, o.phase, o.m, o.k, o.n)
    spent = max(o.flops / (peak * share * gpu.sustained), moved)
    if narrow and o.phase != "weight" and o.cast:
        spent += gpu.memory_seconds(numbers.cast * o.groups * o.m * o.k)
    return spent, how


def shapes_of(arch: Architecture, plan: Plan, attention: AttentionKind = "flash") -> Shapes:
    """Return what a rank of the plan works on; ``attention`` says whether its scores are ever written to memory."""
    config, training = plan.config, plan.training
    padded = getattr(config, "moe_pad_expert_input_to_capacity", False)
    ulysses = config.dialect == "deepspeed" or "a2a" in str(getattr(config, "cp_comm_type", "p2p"))
    return Shapes(
        training.micro_batch * training.sequence_length // plan.cp, training.sequence_length, training.micro_batch,
        arch.hidden_size, plan.tp, plan.cp, plan.ep, plan.etp, plan.sequence_parallel,
        getattr(config, "moe_expert_capacity_factor", None) if padded else None, ulysses and plan.cp > 1,
        attention == "unfused", 4.0 if training.precision == "fp32" else 2.0,
        getattr(config, "moe_token_dispatcher_type", "") == "flex", getattr(config, "use_transformer_engine_op_fuser", False),
        getattr(config, "moe_paged_stash", False), norms_apart(config),
    )  # fmt: skip


def wide_layers(plan: Plan, layers: int) -> frozenset[int]:
    """Return the layers, of so many, that a plan in 8 bits leaves in 16: its first and last ones, where it says so."""
    config = plan.config
    if not isinstance(config, MegatronPlan) or not config.first_last_layers_bf16:
        return frozenset()
    return frozenset(i for i in range(layers) if config.in_16_bits(i, layers))


def chunk_work(
    arch: Architecture, plan: Plan, gpu: Accelerator, stage: Stage, chunk: int, attention: AttentionKind = "flash"
) -> Work:
    """Return the work of one virtual stage for one micro-batch."""
    layers = stage.chunks[chunk]
    # By identity (comparing layers takes longer than timing them), those that stay in 16 bits apart.
    kinds: dict[tuple[int, Again], int] = {}
    wide: dict[tuple[int, Again], int] = {}
    before = sum(len(ahead) for ahead in stage.chunks[:chunk])
    in_16_bits = wide_layers(plan, len(arch.layers))
    for i, redo in zip(layers, again(plan.config, layers, before), strict=True):
        among = wide if i in in_16_bits else kinds
        among[id(arch.layers[i]), redo] = among.get((id(arch.layers[i]), redo), 0) + 1
    by_id = {id(arch.layers[i]): arch.layers[i] for i in layers}
    last = chunk == len(stage.chunks) - 1
    ends = (stage.has_embedding and chunk == 0, stage.has_head and last)
    fused = getattr(plan.config, "cross_entropy_loss_fusion", False) or loss_in_one_kernel(plan.config)
    shapes = shapes_of(arch, plan, attention)
    own = _work(
        tuple(((by_id[which], redo), count) for (which, redo), count in kinds.items()), ends, plan.vocabulary_size if any(ends) else 0, fused, shapes, gpu,
        numbers_of(plan), adapters=getattr(plan.config, "adapters", None),
    )  # fmt: skip
    if wide:
        own = own.plus(_work(
            tuple(((by_id[which], redo), count) for (which, redo), count in wide.items()), (False, False), 0, fused, shapes, gpu, Numbers()
        ))  # fmt: skip
    further = getattr(plan.config, "mtp_num_layers", None) or 0
    if not further or not last or not (stage.has_next_tokens or stage.has_head):
        return own
    block = arch.next_token_block if stage.has_next_tokens else ()
    repeats = again(plan.config, tuple(range(len(block))))
    numbers = Numbers() if getattr(plan.config, "keep_mtp_spec_in_bf16", False) else numbers_of(plan)
    return own.plus(_work(
        tuple(((layer, how), further) for layer, how in zip(block, repeats, strict=True)), (stage.has_next_tokens, stage.has_head),
        plan.vocabulary_size, fused, shapes, gpu, numbers, further,
    ))  # fmt: skip


def numbers_of(plan: Plan) -> Numbers:
    """Return what a plan computes in."""
    config, precision = plan.config, plan.training.precision
    if precision != "fp8":
        return Numbers(precision, attention="fp32" if precision == "fp32" else "bf16")
    if config.dialect == "torchtitan":
        return Numbers("fp8")  # its compiler makes casts part of the kernels before them
    recipe = getattr(config, "fp8_recipe", "")
    attention = ("mxfp8" if recipe == "mxfp8" else "fp8") if getattr(config, "fp8_dot_product_attention", False) else "bf16"
    wide = WIDE[1:] if recipe == "mxfp8" and getattr(config, "fp8_output_proj", False) else WIDE
    return Numbers("fp8", CAST + LOOKED_FOR * (recipe == "tensorwise"), attention, wide)


@lru_cache(maxsize=1024)
def _work(
    kinds: tuple[tuple[tuple[Layer, Again], int], ...], ends: tuple[bool, bool], vocabulary: int, fused: bool, z: Shapes,
    gpu: Accelerator, numbers: Numbers, further: int = 0, adapters: Adapters | None = None,
) -> Work:  # fmt: skip
    """Return the work of layers of these kinds; virtual stages that are alike (most of them) share it.

    With ``further`` they are those of so many modules of multi-token prediction, which embed, and have head and loss, each for itself.
    Beside ``adapters`` weights are frozen: no gradient of one is computed.
    """
    out, times = Work(), further or 1

    def add(operators: tuple[Operator, ...], count: int, redo: Again | None = None, layer: Layer | None = None) -> None:
        frozen = adapters is not None
        _add(out, tuple(o for o in operators if not (frozen and o.phase == "weight")), gpu, numbers, count, redo, layer)

    for (layer, redo), count in kinds:
        add(layer_operators(layer, z), count, redo, layer)
        if adapters is not None:
            _add(out, adapter_operators(layer, z, adapters), gpu, numbers, count, redo, layer)
    if ends[0]:
        add(embedding_operators(vocabulary, z), times)
    if ends[0] and further:
        add(next_token_operators(z), times)
    if ends[1]:
        add(head_operators(vocabulary, z, fused), times)
    return out


def _add(
    out: Work, operators: tuple[Operator, ...], gpu: Accelerator, numbers: Numbers, count: int, redo: Again | None = None,
    layer: Layer | None = None,
) -> None:  # fmt: skip
    for o in operators:
        each, how = seconds(o, gpu, numbers)
        spent = each * count
        setattr(out, o.phase, getattr(out, o.phase) + spent)
        out.flops += o.flops * count
        more = repeated(redo, o, layer) if redo and layer and o.phase == "forward" else 0.0
        out.recompute += more * spent
        out.flops += more * o.flops * count
        if o.kind in ("matmul", "grouped"):
            out.matmul[o.phase] = out.matmul.get(o.phase, 0.0) + spent
        out.parts[o.part] = out.parts.get(o.part, 0.0) + spent * (1 + more)
        key = how or "memory"
        out.known[key] = out.known.get(key, 0.0) + spent * (1 + more)


@dataclass(frozen=True)
class Held:
    """Parameters that a rank of a stage holds before data parallelism cuts them: dense ones and those of experts."""

    dense: int
    experts: int


def held(arch: Architecture, plan: Plan, stage: Stage) -> Held:
    """Return the parameters of a rank of the stage that are trained, cut by tensor and expert parallelism.

    >>> from tokenwire.model import preset
    >>> from tokenwire.plan import TrainingConfig, read_plan, resolve
    >>> llama = preset("llama-3.1-8b")
    >>> plan = resolve(read_plan({"tp": 2}), TrainingConfig(global_batch=8, micro_batch=1), llama, 8)
    >>> held(llama, plan, plan.stages[0]).dense
    4015263744
    """
    if (adapters := getattr(plan.config, "adapters", None)) is not None:
        each = Counter(arch.layers[i] for i in stage.layers)
        return Held(sum(n * one.elements for layer, n in each.items() for one in beside(arch.hidden_size, layer, adapters)) // plan.tp, 0)
    modules = getattr(plan.config, "mtp_modules", 0) if stage.has_next_tokens else 0
    h = arch.hidden_size
    dense, experts = modules * (2 * h * h // plan.tp + 3 * h), 0
    layers = [*(arch.layers[i] for i in stage.layers), *arch.next_token_block * modules]
    by_id = {id(layer): layer for layer in layers}
    for which, count in Counter(map(id, layers)).items():
        for tensor in layer_tensors(arch, by_id[which], 0):
            expert = tensor.part == "experts"
            cut = (plan.ep if expert else 1) * ((plan.etp if expert else plan.tp) if tensor.split_dim is not None else 1)
            if expert:
                experts += count * tensor.elements // cut
            else:
                dense += count * tensor.elements // cut
    table = plan.vocabulary_size * h // plan.tp
    norm = h if arch.final_norm and stage.has_head else 0
    both = stage.has_embedding and stage.has_head and arch.tied_embeddings
    return Held(dense + norm + table * (stage.has_embedding + stage.has_head - both), experts)


def optimizer_seconds(arch: Architecture, plan: Plan, gpu: Accelerator, stage: Stage) -> float:
    """Return the seconds of the optimizer on a rank of the stage: see the module for what is moved."""
    own, out = held(arch, plan, stage), 0.0
    for parameters, expert in ((own.dense, False), (own.experts, True)):
        if not parameters:
            continue
        cut = plan.config.sharding(plan, expert=expert)
        gradients = parameters / cut.gradients
        mine = parameters / cut.optimizer
        passes = [cut.gradient_bytes * gradients, 2 * cut.gradient_bytes * gradients, 4 * mine, 8 * mine, 28 * mine, 6 * mine]
        out += sum(gpu.memory_seconds(size) for size in passes)
    return out

