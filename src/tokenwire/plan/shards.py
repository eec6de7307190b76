"""What one rank holds: which slice of which tensor, and the bytes of its weights, gradients and optimizer state.

Mixed-precision Adam keeps a master copy and two moments in fp32 for each parameter (12 bytes; Rajbhandari et al., ZeRO,
2020, section 3.1); where parameters are fp32 themselves there is no master copy. Data parallelism cuts these further as the
framework does it (``PlanConfig.sharding``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenwire.errors import InputError
from tokenwire.model.architecture import Architecture, Tensor
from tokenwire.model.tensors import tensors, trains
from tokenwire.plan.muon import multiplies, uses_muon
from tokenwire.plan.plan import Plan
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    import polars as pl

_STATE_BYTES = {"adamw": 8, "adam": 8, "sgd": 4, "muon": 8, "dist_muon": 8}
"""fp32 optimizer state a parameter without the master copy: two moments, or one momentum, which Muon keeps of the matrices inside layers."""


def holdings(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return one row a tensor that ``rank`` holds a part of.

    Columns: ``tensor, layer, part, shape, held, slices, elements, weight_bytes, gradient_bytes, optimizer_bytes``;
    ``held`` is the shape on this rank and ``slices`` where it lies in the full tensor, dimension by dimension.
    Raises ``InputError`` for a rank that the plan has not.
    """
    import polars as pl

    if not 0 <= rank < plan.world:
        raise InputError(f"rank {rank}", rule=f"the plan has ranks 0 to {plan.world - 1:,}",
                         nearest=str(min(max(rank, 0), plan.world - 1)))  # fmt: skip
    # Layers of multi-token prediction are trained where the plan asks for them.
    trained = plan.config.trained(arch)
    rows = [_row(tensor, plan, rank, trains(trained, tensor)) for tensor in tensors(trained, "megatron") if _on_stage(tensor, arch, plan, rank)]
    columns = {"tensor": pl.String, "layer": pl.Int64, "part": pl.String, "shape": pl.String, "held": pl.String,
               "slices": pl.String, "elements": pl.Int64, "weight_bytes": pl.Int64, "gradient_bytes": pl.Int64,
               "optimizer_bytes": pl.Int64}  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row")


def _on_stage(tensor: Tensor, arch: Architecture, plan: Plan, rank: int) -> bool:
    stage = plan.stages[plan.stage_of(rank)]
    own = len(arch.layers)
    if tensor.layer is not None:
        return tensor.layer in stage.layers or (tensor.layer >= own and stage.has_next_tokens)
    if tensor.part == "final_norm" and any(other.has_next_tokens for other in plan.stages):
        return own - 1 in stage.layers
    if tensor.part in ("final_norm", "head"):
        return stage.has_head
    tied_copy = tensor.name == "embedding.weight" and arch.tied_embeddings and stage.has_head
    return stage.has_embedding or stage.has_next_tokens or tied_copy


def _row(tensor: Tensor, plan: Plan, rank: int, trained: bool) -> tuple[object, ...]:
    shape = list(tensor.shape)
    if tensor.split == "vocabulary":
        shape[0] = plan.vocabulary_size
    held, starts = list(shape), [0] * len(shape)
    expert = tensor.part == "experts"
    place = (plan.expert_grid if expert else plan.grid).coordinates(rank)
    cuts = [(0, plan.ep, place.get("ep", 0))] if expert else []
    if tensor.split_dim is not None:
        size, at = (plan.etp, place.get("etp", 0)) if expert else (plan.tp, place.get("tp", 0))
        cuts.append((tensor.split_dim, size, at))
    for dimension, size, at in cuts:
        held[dimension] //= size
        starts[dimension] = at * held[dimension]
    elements = 1
    for length in held:
        elements *= length
    cut = plan.config.sharding(plan, expert=expert)
    precision = plan.training.precision
    weight = ITEM_BYTES["bf16" if precision == "fp8" else precision]
    moments = 4 if uses_muon(plan.training) and multiplies(tensor) else _STATE_BYTES[plan.training.optimizer]
    state = moments + (0 if precision == "fp32" else 4)
    return (
        tensor.name, tensor.layer, tensor.part, _shape(shape), _shape(held),
        ", ".join(f"{start}:{start + length}" for start, length in zip(starts, held, strict=True)), elements,
        round(elements * weight / cut.weights), trained * round(elements * cut.gradient_bytes / cut.gradients),
        trained * round(elements * state / cut.optimizer),
    )  # fmt: skip


def _shape(sizes: list[int]) -> str:
    return "×".join(str(size) for size in sizes)
