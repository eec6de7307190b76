"""ZeRO-3 and ZeRO++: gathering parameters, from all ranks, from the own node (hpZ), in 8 bits (qwZ).

A gather's size is Σ n·ceil(elements/n) over its parameters. Source: DeepSpeed 0.19, runtime/zero/partition_parameters.py
(all_gather_coalesced, CUDAQuantizer), stage3.py (_post_step).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from tokenwire.errors import InputError
from tokenwire.model.architecture import Tensor
from tokenwire.plan import Stage
from tokenwire.step.dialects.deepspeed.fetching import Limits, gathers, modules
from tokenwire.step.dialects.deepspeed.sizes import Sizes
from tokenwire.step.dialects.deepspeed.zero import padded
from tokenwire.step.operation import Operation, Phase

_PARTITION = "DeepSpeed runtime/zero/partition_parameters.py"
_COORDINATOR = "DeepSpeed runtime/zero/partitioned_param_coordinator.py fetch_sub_module"
QUANTISED_GROUP = 8000
"""CUDAQuantizer.target_group_size: elements that share a scale, at most twice that."""


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none below ZeRO-3."""
    if z.config.zero_stage < 3:
        return
    held = z.stage_tensors(stage)
    sizes = {x.name: x.elements for x in held}
    c, n, m = z.config, z.ranks, z.plan.micro_batches
    limits = Limits(c.stage3_param_persistence_threshold, c.stage3_prefetch_bucket_size, c.stage3_max_live_parameters,
                    c.stage3_max_reuse_distance)  # fmt: skip
    # With hpZ a parameter that was gathered once in a step has a second copy, cut over the ranks of a node.
    nearby = c.zero_hpz_partition_size > 1
    counted: Counter[tuple[Phase, str, tuple[int, ...]]] = Counter()
    seen: set[str] = set()
    again = gathers(held, limits, tied=z.arch.tied_embeddings and stage.has_head and stage.has_embedding)
    for times in (1, m - 1):
        for when, names in again if times else ():
            for group, part in (("hpz", [x for x in names if x in seen]), ("dp_cp", [x for x in names if x not in seen])):
                if part:
                    counted[when, group if nearby else "dp_cp", tuple(sorted(sizes[x] for x in part))] += times
            if nearby:
                seen.update(names)
    if c.zero_quantized_weights:
        _quantisable(held, limits, n)
    for (phase, group, parts), count in counted.items():
        ranks = z.plan.group_size(group)
        elements = sum(padded(size, ranks) for size in parts)
        yield from _gathered(z, stage, phase, group, count, elements, ranks, parts)
    yield from _persistent(z, stage, held, n)


def _gathered(z: Sizes, stage: Stage, phase: Phase, group: str, count: int, elements: int, ranks: int, parts: tuple[int, ...]
              ) -> Iterator[Operation]:  # fmt: skip
    near = group == "hpz"
    why = "parameters of the next modules are fetched before they run" + ("; again for backward" if phase == "backward" else "")
    if near:
        why += "; hpZ: from the second copy that the ranks of a node hold"
    shown = {"formula": "Σ n·ceil(elements/n)", "values": f"{len(parts)} tensors on {ranks} ranks = {elements:,}", "source": _COORDINATOR}
    if not z.config.zero_quantized_weights:
        yield z.row(stage, "all_gather", group, phase, count, elements, z.dtype, "dp", "parameters", why=why, **shown)
        return
    yield z.row(stage, "all_gather", group, phase, count, elements, "int8", "dp", "parameters in 8 bits",
                why=f"{why}; qwZ: quantised in blocks", **shown)  # fmt: skip
    scales = ranks * scale_groups(elements // ranks)
    yield z.row(
        stage, "all_gather", group, phase, count, scales, "fp32", "dp", "scales of parameters", formula="n·blocks",
        values=f"{ranks}·{scales // ranks}", source=f"{_PARTITION} CUDAQuantizer.quantize",
        why="each block of about 8,000 elements has a scale of its own",
    )  # fmt: skip


def _quantisable(held: list[Tensor], limits: Limits, n: int) -> None:
    # In the first step, in which the order of modules is learned, each module's parameters are gathered by themselves.
    sizes = {x.name: x.elements for x in held if x.elements > limits.persistence}
    for names in modules(held):
        part = sum(padded(sizes[name], n) // n for name in names if name in sizes)
        if part % 8:
            raise InputError("zero_quantized_weights = true", where="[plan]", nearest="zero_quantized_weights = false",
                             rule=f"a rank's part of {' and '.join(names)}, {part:,} elements, must be a multiple of 8")  # fmt: skip


def scale_groups(elements: int) -> int:
    """Return the number of blocks that a rank's part is quantised in.

    >>> scale_groups(64000)
    8
    """
    groups = math.ceil(elements / QUANTISED_GROUP)
    while groups < elements and elements % (8 * groups):
        groups += 1
    while elements % (16 * groups) == 0 and elements / groups > QUANTISED_GROUP:
        groups *= 2
    return max(groups, 1)


def _persistent(z: Sizes, stage: Stage, held: list[Tensor], n: int) -> Iterator[Operation]:
    limit = z.config.stage3_param_persistence_threshold
    small = Counter(padded(x.elements, n) for x in held if x.elements <= limit)
    for elements, count in small.items():
        yield z.row(
            stage, "all_gather", "dp_cp", "optimizer", count, elements, z.dtype, "dp", "small parameters",
            formula="n·ceil(elements/n)", values=f"{elements:,}", source="DeepSpeed runtime/zero/stage3.py _post_step",
            why=f"parameters of at most {limit:,} elements stay whole, so they are gathered once they are updated",
        )  # fmt: skip
