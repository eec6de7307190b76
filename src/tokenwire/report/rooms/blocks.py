"""A model as blocks to draw: each kind of layer with its heads and experts; its parameters by tensor; who holds a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError, closest
from tokenwire.model.architecture import Architecture, Experts
from tokenwire.model.words import feed_forward_in_words, indices_in_words, mixer_in_words, tensor_table

if TYPE_CHECKING:
    import polars as pl

    from tokenwire.journey import Journey


def blocks(arch: Architecture) -> list[dict[str, Any]]:
    """Return each kind of layer: ``layers`` in words, ``count``; ``mixer`` and ``feed_forward`` in words; ``heads`` that share
    ``kv_heads``; ``experts`` of which ``active`` see a token, and ``shared`` ones; whether both run side by side (``parallel``).

    >>> from tokenwire.model import preset
    >>> [(one["count"], one["heads"], one["kv_heads"]) for one in blocks(preset("llama-3.1-8b"))]
    [(32, 32, 8)]
    """  # fmt: skip
    where: dict[Any, list[int]] = {}
    for index, layer in enumerate(arch.layers):
        where.setdefault(layer, []).append(index)
    out = []
    for layer, indices in where.items():
        mixer, part = layer.mixer, layer.feed_forward
        heads = int(getattr(mixer, "heads", 0) or getattr(mixer, "value_heads", 0))
        sparse = part if isinstance(part, Experts) else None
        out.append({
            "layers": indices_in_words(indices), "count": len(indices), "mixer": mixer_in_words(mixer), "feed_forward": feed_forward_in_words(part),
            "heads": heads, "kv_heads": int(getattr(mixer, "kv_heads", 0) or getattr(mixer, "key_heads", 0)), "norms": layer.norms,
            "experts": sparse.count if sparse else 0, "active": sparse.active if sparse else 0, "shared": bool(sparse and sparse.shared),
            "parallel": layer.parallel,
        })  # fmt: skip
    return out


def by_tensor(arch: Architecture) -> pl.DataFrame:
    """Return the parameters by kind of tensor, all layers together: part, tensor, tensors (how many), elements, first (its name)."""
    import polars as pl

    return (
        tensor_table(arch, "megatron")
        .with_columns(pl.col("name").str.replace(r"^layers\.\d+\.", "").alias("tensor"))
        .group_by("part", "tensor", maintain_order=True)
        .agg(pl.len().alias("tensors"), pl.col("elements").sum(), pl.col("name").first().alias("first"))
    )


def holders(journey: Journey, tensor: str, most: int = 8) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return a tensor's facts, and what the first ranks of the stage that has it hold of it: rank, held, slices, bytes.

    Tensors are named as Megatron fuses them, in every dialect. Raises ``InputError`` with the nearest name for one that is not there.
    """
    import polars as pl

    from tokenwire.plan import holdings

    arch, plan = journey.model().architecture, journey.plan()
    table = tensor_table(arch, "megatron")
    row = table.filter(pl.col("name") == tensor)
    if row.is_empty():
        raise InputError(f"tensor {tensor[:60]!r}", rule=f"the model has {len(table):,} others", nearest=closest(tensor[:120], table["name"].to_list()))
    about: dict[str, Any] = row.row(0, named=True)
    per_stage = plan.world // plan.pp
    parts = []
    for stage in range(plan.pp):
        first = holdings(arch, plan, stage * per_stage).filter(pl.col("tensor") == tensor)
        if first.is_empty():
            continue
        ranks = range(stage * per_stage, stage * per_stage + min(per_stage, most))
        parts = [holdings(arch, plan, rank).filter(pl.col("tensor") == tensor).insert_column(0, pl.lit(rank).alias("rank")) for rank in ranks]
        about["stage"] = stage
        break
    return about, pl.concat(parts) if parts else pl.DataFrame({"rank": []})
