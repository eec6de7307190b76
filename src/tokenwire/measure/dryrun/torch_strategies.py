"""DTensor's choice of a sharding, worked out once for tensors that are alike.

For a list of tensors (clipping, the fused optimizer) torch 2.13 tries every combination of placements over the mesh for each tensor
by itself (torch/distributed/tensor/_ops/utils.py, expand_to_full_mesh_op_strategy). Layers that are alike have tensors that are
alike, and one answer holds for all of them: what runs is the same, sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def alike_once() -> Iterator[None]:
    """Keep the strategies of an operator by mesh, shapes and placements of its arguments inside the block."""
    from torch.distributed.tensor._ops import utils

    expand = utils.expand_to_full_mesh_op_strategy
    known: dict[Any, Any] = {}

    def once(mesh: Any, op_schema: Any, strategies: Any, **given: Any) -> Any:
        if given.get("is_valid_strategy_cb") is not None:
            return expand(mesh, op_schema, strategies, **given)
        arguments = tuple(
            (spec.output_spec.mesh, spec.output_spec.placements, spec.output_spec.tensor_meta)
            for argument in (*op_schema.args_strategy, *op_schema.kwargs_strategy)
            for spec in argument.strategies
        )
        key = (mesh, op_schema.op, arguments, repr(strategies), repr(sorted(given.items())))
        if key not in known:
            known[key] = expand(mesh, op_schema, strategies, **given)
        return known[key]

    with mock.patch.object(utils, "expand_to_full_mesh_op_strategy", once):
        yield
