"""What low-rank adapters (LoRA) say over the tensor-parallel group, beside products whose weights are frozen.

r numbers a token stand between the two matrices of an adapter. Beside a column-parallel product the first matrix is cut by its outputs, which
are gathered; beside a row-parallel one by its inputs, and its results are added. The second is cut by its outputs: they stay cut beside a
column-parallel product and are gathered beside a row-parallel one, where with sequence parallelism each rank goes on with its tokens. The
input beside a column-parallel product is the norm's output as the product itself gathered it.
Rules: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/utils.py (ParallelLinearAdapter, get_adapter_attributes_from_linear); frozen
weights: megatron-core 0.16.1, tensor_parallel/layers.py (LinearWithFrozenWeight), TransformerEngine, pytorch/module/layernorm_linear.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.adapters import beside
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.recompute import recomputed_blocks
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.dialects.megatron.tensor_parallel import nothing_below
from tokenwire.step.operation import Op, Operation, Phase

_SOURCE = "Megatron-Bridge src/megatron/bridge/peft/utils.py ParallelLinearAdapter.forward"
BLOCKS = {
    "linear_qkv": "attention",
    "linear_proj": "attention",
    "linear_fc1": "feed-forward",
    "linear_fc2": "feed-forward",
}
"""Blocks of ``tensor_parallel`` that modules belong to."""


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage's adapters."""
    adapters = sizes.arch.adapters
    if adapters is None or sizes.plan.tp == 1:
        return
    h = sizes.arch.hidden_size
    layers = Counter(
        one.product.module for index in stage.layers for one in beside(h, sizes.arch.layers[index], adapters)
    )
    again = recomputed_blocks(sizes, stage, stage.layers)
    for module, count in layers.items():
        said = _column if module in ("linear_qkv", "linear_fc1") else _row
        for row in said(sizes, stage, module, count, adapters.rank):
            yield row
            if row.phase == "forward" and again[BLOCKS[module]]:
                times = again[BLOCKS[module]]
                yield row._replace(
                    phase="backward", count=times * sizes.plan.micro_batches, layers=times, what=f"{row.what}, recomputed"
                )  # fmt: skip


def _column(z: Sizes, stage: Stage, module: str, layers: int, rank: int) -> Iterator[Operation]:
    graded = layers - (module == "linear_qkv" and 0 in stage.layers and nothing_below(z))
    yield _said(
        z,
        stage,
        module,
        layers,
        "all_gather",
        "forward",
        rank,
        "r numbers",
        "each rank made some of the r numbers of a token",
    )
    yield _gradient_between(z, stage, module, layers, rank)
    op: Op = "reduce_scatter" if z.sequence_parallel else "all_reduce"
    yield _said(
        z,
        stage,
        module,
        graded,
        op,
        "backward",
        0,
        "input gradient",
        "each rank's part of the r numbers gives a part of it",
    )._replace(overlapped="weight")


def _row(z: Sizes, stage: Stage, module: str, layers: int, rank: int) -> Iterator[Operation]:
    yield _said(
        z,
        stage,
        module,
        layers,
        "all_reduce",
        "forward",
        rank,
        "r numbers",
        "each rank has some of the inputs",
    )
    yield _said(
        z, stage, module, layers, "all_gather", "forward", 0, "output", "each rank made some of the outputs"
    )
    yield _gradient_between(z, stage, module, layers, rank)
    if z.sequence_parallel:
        yield _said(
            z,
            stage,
            module,
            layers,
            "all_gather",
            "backward",
            0,
            "output gradient",
            "each rank went on with its tokens alone",
        )


def _gradient_between(z: Sizes, stage: Stage, module: str, layers: int, rank: int) -> Operation:
    """Return the sum of the gradients of the r numbers between the two matrices: it is the same wherever these are cut."""
    return _said(
        z, stage, module, layers, "all_reduce", "backward", rank, "gradient of the r numbers", "each rank's outputs give a part of it"
    )  # fmt: skip


def _said(
    z: Sizes, stage: Stage, module: str, layers: int, op: Op, phase: Phase, rank: int, what: str, why: str
) -> Operation:
    """Return a row of r numbers a token, or with ``rank`` 0 of whole activations."""
    width, formula = (rank, "b·s/c·r") if rank else (z.arch.hidden_size, "b·s/c·h")
    return z.row(
        stage.index, op, "tp", phase, layers * z.plan.micro_batches, z.tokens * width, f"adapter of {module}: {what}", formula=formula,
        values=f"{z.tokens:,}·{width:,}", parallelism="sp" if z.sequence_parallel and not rank else "tp", source=_SOURCE, why=why, layers=layers,
    )  # fmt: skip
