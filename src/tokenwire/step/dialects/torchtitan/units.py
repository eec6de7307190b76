"""What one all_gather of FSDP holds: the units that are wrapped together, with their padded elements.

A unit is flat: each parameter is cut along dimension 0 into n parts of ceil(d0/n) rows, so its part of the full tensor is
n·ceil(d0/n)·(the rest) elements; with tensor parallelism the parameter is the rank's own part (torch 2.13,
torch/distributed/fsdp/_fully_shard/_fsdp_param.py, FSDPParam._init_sharded_param).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokenwire.model.architecture import Tensor
from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Role


@dataclass(frozen=True)
class Unit:
    """A group of parameters: ``elements`` padded, ``exact`` not, ``copies`` units like it on the stage.

    ``resharded`` says whether it is let go after forward, and so gathered again for backward, which needs it where ``in_backward``.
    """

    name: str
    elements: int
    exact: int
    copies: int
    layers: int
    resharded: bool
    group: str = "fsdp"
    role: Role = "layers"
    in_backward: bool = True


def padded(shape: tuple[int, ...], n: int) -> int:
    """Return the elements of a parameter of ``shape`` in the full flat tensor of n ranks.

    >>> padded((7, 10), 8)
    80
    """
    return n * math.ceil(shape[0] / n) * math.prod(shape[1:]) if shape else n


def units(z: Sizes, stage: Stage) -> Iterator[Unit]:
    """Yield the units of a stage, in the order of the forward."""
    asked = z.config.fsdp_reshard_after_forward
    always, reshard = asked == "always", z.plan.pp == 1 if asked == "default" else asked == "always"
    held = z.stage_tensors(stage)
    embedding = [x for x in held if x.layer is None and x.part in ("embedding", "position", "norm")]
    head = [x for x in held if x.layer is None and x.part in ("final_norm", "head")]
    if z.config.fsdp_wrap == "blocks":
        # Every virtual stage is a module of its own, with a root of its own.
        roots: tuple[tuple[str, list[Tensor], Role], ...] = (("root (embedding, norm, head)", embedding + head, "embedding"),)
        if z.plan.pp > 1:
            roots = ("root (embedding)", embedding, "embedding"), ("root (norm, head)", head, "head")
        for name, root, role in roots:
            yield from _unit(z, name, root, 1, 0, asked == "always", role=role)
    elif z.arch.tied_embeddings and embedding and head and stage.has_head:
        yield from _unit(z, "embedding, norm and tied head", embedding + head, 1, 0, always, role="embedding")
    else:
        for unit in _unit(z, "embedding", embedding, 1, 0, reshard, role="embedding"):
            yield replace(unit, in_backward=z.config.set_unshard_in_backward)
    yield from _blocks(z, stage, held, reshard)
    if z.config.fsdp_wrap == "torchtitan" and not (z.arch.tied_embeddings and stage.has_embedding and stage.has_head):
        yield from _unit(z, "norm and head", head, 1, 0, always, role="head")


def _blocks(z: Sizes, stage: Stage, held: list[Tensor], reshard: bool) -> Iterator[Unit]:
    by_layer: dict[int, list[Tensor]] = {}
    for tensor in held:
        if tensor.layer is not None:
            by_layer.setdefault(tensor.layer, []).append(tensor)
    kinds = Counter(z.arch.layers[index] for index in stage.layers)
    first = {kind: next(i for i in stage.layers if z.arch.layers[i] == kind) for kind in kinds}
    for number, (kind, copies) in enumerate(kinds.items(), start=1):
        name = "block" if len(kinds) == 1 else f"block of kind {number}"
        dense = [x for x in by_layer[first[kind]] if x.part != "experts" or z.plan.ep == 1]
        routed = [x for x in by_layer[first[kind]] if x.part == "experts" and z.plan.ep > 1]
        yield from _unit(z, name, dense, copies, copies, reshard)
        yield from _unit(z, f"experts of {name}", routed, copies, copies, reshard, "edp_shard")


def _unit(
    z: Sizes, name: str, held: list[Tensor], copies: int, layers: int, resharded: bool, group: str = "fsdp",
    role: Role = "layers",
) -> Iterator[Unit]:
    if not held:
        return
    n = z.plan.group_size(group)
    shapes = [_expert_shape(z, x) if group != "fsdp" else z.local_shape(x) for x in held]
    exact = sum(math.prod(shape) for shape in shapes)
    yield Unit(name, sum(padded(shape, n) for shape in shapes), exact, copies, layers, resharded, group, role)


def _expert_shape(z: Sizes, tensor: Tensor) -> tuple[int, ...]:
    # Routed experts: E/ep of them; where the shard ranks outnumber the experts, dimension 1 is cut instead of 0.
    shape = list(tensor.shape)
    shape[0] //= z.plan.ep
    if tensor.split_dim is not None:
        shape[tensor.split_dim] = -(-shape[tensor.split_dim] // z.plan.etp)
    if z.plan.group_size("edp_shard") * z.plan.ep > tensor.shape[0] and len(shape) > 1:
        shape[0], shape[1] = shape[1], shape[0]
    return tuple(shape)
