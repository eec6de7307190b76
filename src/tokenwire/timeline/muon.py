"""The seconds that Muon takes to make its updates orthogonal: five steps of Newton and Schulz on each matrix, in bf16.

A step on a matrix of m x n, m the smaller, is X·Xᵀ (2m²n FLOPs), its square (2m³) and their product with X (2m²n): torch 2.13,
torch/optim/_muon.py, _zeropower_via_newtonschulz; karpathy/nanochat, nanochat/muon.py, muon_step_fused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Architecture
from tokenwire.model.tensors import tensors
from tokenwire.plan import Plan, Stage
from tokenwire.plan.muon import Stack, multiplies, stacks, uses_muon
from tokenwire.timeline.accelerator import Accelerator
from tokenwire.timeline.compute import Numbers, seconds
from tokenwire.timeline.kernels import Operator

STEPS = 5
COPIES = 24.0
"""Bytes an element that DistMuon's stacks move: gradients stacked, copied to the padded stack, and parameters copied back, 8 each."""


def newton_schulz(rows: int, columns: int) -> tuple[Operator, ...]:
    """Return the products of one step on a matrix.

    >>> round(STEPS * sum(o.flops for o in newton_schulz(1280, 5120)) / 1e9)        # 5·(4·1280²·5120 + 2·1280³)
    189
    """
    m, n = sorted((rows, columns))
    shapes = (("X·Xᵀ", m, n, m), ("its square", m, m, m), ("update", m, m, n))
    return tuple(
        Operator(name, "muon", "matmul", "forward", 2.0 * a * k * b, 2.0 * (a * k + k * b + a * b), m=a, k=k, n=b)
        for name, a, k, b in shapes
    )


def muon_seconds(arch: Architecture, plan: Plan, gpu: Accelerator, stage: Stage) -> float:
    """Return the seconds beyond an element-wise optimizer's on the rank with the most matrices of a stage, 0 for other optimizers."""
    if not uses_muon(plan.training):
        return 0.0
    out = 0.0
    for stack in _stacks(arch, plan, stage):
        step = sum(seconds(o, gpu, Numbers())[0] for o in newton_schulz(*stack.shape))
        out += STEPS * stack.each * step
        if plan.config.dialect == "ddp" and stack.ranks > 1:
            out += gpu.memory_seconds(COPIES * stack.count * stack.matrix)
    return out


def _stacks(arch: Architecture, plan: Plan, stage: Stage) -> Iterator[Stack]:
    shared = plan.training.optimizer == "dist_muon"
    if plan.config.dialect == "ddp":
        yield from stacks(tensors(arch), plan.dp if shared else 1)
        return
    # Megatron's products of queries, keys and values are one matrix, of which a rank's tensor-parallel part is made orthogonal by itself.
    layers, found = frozenset(stage.layers), Counter[tuple[int, int, bool]]()
    for tensor in tensors(arch, "megatron"):
        if tensor.layer in layers and multiplies(tensor):
            expert, shape = tensor.part == "experts", list(tensor.shape)
            if tensor.split_dim is not None:
                shape[tensor.split_dim] //= plan.etp if expert else plan.tp
            found[shape[-2], shape[-1], expert] += shape[0] // plan.ep if expert else 1
    for (rows, columns, expert), count in found.items():
        ranks = plan.edp if expert else plan.dp * plan.cp
        yield Stack((rows, columns), count, ranks if shared else 1)
