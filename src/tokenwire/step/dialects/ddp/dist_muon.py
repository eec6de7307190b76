"""Muon and AdamW that reduce gradients and gather parameters themselves, once a step, with nothing wrapped around the model.

karpathy/nanochat at 50413d2: nanochat/adamw.py, DistAdamW.step, then nanochat/muon.py, DistMuon.step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from tokenwire.model.architecture import Architecture
from tokenwire.model.tensors import tensors
from tokenwire.plan import Plan
from tokenwire.plan.ddp import DdpPlan
from tokenwire.plan.muon import SMALL, multiplies, stacks
from tokenwire.step.operation import Operation

_ADAMW, _MUON = "karpathy/nanochat nanochat/adamw.py DistAdamW.step", "karpathy/nanochat nanochat/muon.py DistMuon.step"


def operations(arch: Architecture, plan: Plan, config: DdpPlan, group: str) -> Iterator[Operation]:
    """Yield the reductions of gradients and the gathering of parameters in the optimizer's step."""
    held, n = list(tensors(arch)), plan.group_size(group)
    others = Counter(tensor.elements for tensor in held if not multiplies(tensor))
    row = partial(Operation, 0, group=group, group_size=n, phase="optimizer", dtype=config.dtype, parallelism="dp")
    for elements, count in others.items():
        small = elements < SMALL
        each = partial(row, count=count, elements=elements, formula="elements", values=f"{elements:,}", source=_ADAMW)
        yield each("all_reduce" if small else "reduce_scatter", what="gradients of AdamW",
                   why=f"tensors of fewer than {SMALL:,} elements are kept whole" if small else "each rank updates its rows of the tensor")  # fmt: skip
        if not small:
            yield each("all_gather", what="parameters of AdamW", why="each rank updated its rows; the next forward needs all")
    for stack in stacks(held, n):
        shape = "·".join(f"{size:,}" for size in stack.shape)
        each = partial(row, count=1, elements=stack.elements, formula="⌈matrices/D⌉·D·rows·columns",
                       values=f"⌈{stack.count}/{n}⌉·{n}·{shape}", source=_MUON)  # fmt: skip
        yield each("reduce_scatter", what="gradients of Muon, stacked by shape", why="orthogonalising needs whole matrices: each rank gets some of the stack")
        yield each("all_gather", what="parameters of Muon, stacked by shape", why="each rank updated its matrices; the next forward needs all")
