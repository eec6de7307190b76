"""A model: its layers, its parameters with their derivation, FLOPs a token by each convention, its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokenwire.model import (
    CONVENTIONS,
    flops_per_token,
    layer_parameters,
    layer_runs,
    parameter_figures,
)
from tokenwire.model.words import feed_forward_in_words, indices_in_words, mixer_in_words, tensor_table
from tokenwire.report.terminal import table
from tokenwire.units import format_count

if TYPE_CHECKING:
    from tokenwire.model import Architecture, Model

LONGEST = 8192
"""Sequence length of the FLOPs where nothing was said and the model has more positions."""


def facts(model: Model, *, sequence_length: int | None = None, tensors: bool = False) -> dict[str, Any]:
    """Return what there is to say about a model; ``tensors`` adds the list of its tensors."""
    arch, count = model.architecture, model.parameters
    length = sequence_length or min(arch.max_positions or LONGEST, LONGEST)
    flops = {name: flops_per_token(arch, length, name) for name in CONVENTIONS}
    out: dict[str, Any] = {
        "name": arch.name,
        "family": arch.family,
        "parameters": count.total,
        "active_parameters": count.active,
        "embedding_parameters": count.embedding,
        "position_parameters": count.position,
        "head_parameters": count.head,
        "layer_parameters": count.layers,
        "expert_parameters": count.experts,
        "mtp_parameters": count.mtp,
        "layers": len(arch.layers),
        "hidden_size": arch.hidden_size,
        "vocabulary_size": arch.vocabulary_size,
        "max_positions": arch.max_positions,
        "positions": arch.positions,
        "norm": arch.norm.kind,
        "tied_embeddings": arch.tied_embeddings,
        "layer_kinds": _kinds(arch),
        "derivation": [figure.as_dict() for figure in parameter_figures(arch)],
        "left_out": [asdict(one) for one in arch.left_out],
        "sequence_length": length,
        "flops_per_token": {
            name: figure.as_dict() | {"text": figure.derivation} for name, figure in flops.items()
        },
    }
    if tensors:
        out["tensors"] = tensor_table(arch).to_dicts()
    return out


def _kinds(arch: Architecture) -> list[dict[str, Any]]:
    where: dict[Any, list[int]] = {}
    for index, layer in enumerate(arch.layers):
        where.setdefault(layer, []).append(index)
    return [
        {
            "layers": indices_in_words(where[layer]), "count": count, "mixer": mixer_in_words(layer.mixer),
            "feed_forward": feed_forward_in_words(layer.feed_forward), "parameters_each": layer_parameters(arch, layer),
        }
        for layer, count in layer_runs(arch)
    ]  # fmt: skip


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the model as tables, readable at 80 columns."""
    tied = "tied to the embedding" if facts["tied_embeddings"] else ""
    rows: list[tuple[str, str, str]] = [
        (
            "embedding",
            f"V = {facts['vocabulary_size']:,}, h = {facts['hidden_size']:,}",
            _count(facts["embedding_parameters"]),
        )
    ]
    if facts["position_parameters"]:
        rows.append(
            ("positions", f"learned, {facts['max_positions']:,}", _count(facts["position_parameters"]))
        )
    for kind in facts["layer_kinds"]:
        what = "; ".join(part for part in (kind["mixer"], kind["feed_forward"]) if part)
        total = (
            f"{kind['count']} · {_count(kind['parameters_each'])}"
            if kind["count"] > 1
            else _count(kind["parameters_each"])
        )
        rows.append((f"layer {kind['layers']}", what, total))
    known = ("embedding_parameters", "position_parameters", "layer_parameters", "head_parameters")
    other = facts["parameters"] - sum(facts[name] for name in known)
    if other:
        rows.append(("other", f"final norm ({facts['norm']}) and the like", _count(other)))
    rows.append(("head", tied or f"V = {facts['vocabulary_size']:,}", _count(facts["head_parameters"])))
    rows.append(("all", _in_all(facts), _count(facts["parameters"])))
    title = f"{facts['name']} ({facts['family']}): {facts['layers']} layers, positions {facts['positions']}"
    yield table(rows, ["part", "what", "parameters"], right=["parameters"], title=title)
    for one in facts["left_out"]:
        yield f"Not counted: {one['field']}: {one['what']}" if one["kind"] != "effect" else f"Note: {one['field']}: {one['what']}"
    yield f"FLOPs to train one token (forward and backward) in sequences of {facts['sequence_length']:,} tokens"
    yield table(
        [(name, figure["text"]) for name, figure in facts["flops_per_token"].items()],
        ["convention", "formula = values = FLOPs"],
    )
    if "tensors" in facts:
        yield table(
            [
                (row["name"], row["shape"], row["split"] + ("" if row["split_dim"] is None else f" (dim {row['split_dim']})"))
                for row in facts["tensors"]
            ],
            ["tensor", "shape", "cut by tensor parallelism"],
        )  # fmt: skip


def _in_all(facts: dict[str, Any]) -> str:
    parts = []
    if facts["active_parameters"] != facts["parameters"]:
        parts.append(f"active {facts['active_parameters']:,}")
    if facts["mtp_parameters"]:
        parts.append(f"besides: next-token layers (MTP) {facts['mtp_parameters']:,}")
    return "; ".join(parts)


def _count(value: int) -> str:
    return format_count(value)
