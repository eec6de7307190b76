"""The model: what the vector passes through, its parameters and FLOPs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenwire.report.rooms import model as room
from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table
from tokenwire.units import format_quantity


def facts(walk: Walk) -> dict[str, Any]:
    """Return the model of each journey."""
    return {
        "journeys": [
            {**room.facts(journey.model(), sequence_length=journey.config.training.sequence_length), "name": name}
            for name, journey in walk.journeys
        ]
    }


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield one model in full, or several side by side."""
    models = facts["journeys"]
    if len(models) == 1:
        yield from room.picture(models[0])
        return
    rows = [
        ("layers", *[f"{m['layers']:,}" for m in models]),
        ("hidden size h", *[f"{m['hidden_size']:,}" for m in models]),
        ("vocabulary V", *[f"{m['vocabulary_size']:,}" for m in models]),
        ("embedding V·h", *[f"{m['embedding_parameters']:,}" for m in models]),
        ("a layer", *[f"{m['layer_kinds'][0]['parameters_each']:,}" for m in models]),
        ("parameters N", *[f"{m['parameters']:,}" for m in models]),
        ("FLOPs a token", *[format_quantity(m["flops_per_token"]["megatron"]["value"], "FLOP") for m in models]),
    ]
    names = [m["name"] for m in models]
    yield table(rows, ["", *names], right=names)
    for m in models:
        yield f"{m['name']}, FLOPs a token: {m['flops_per_token']['megatron']['text']}"
