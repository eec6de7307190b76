"""A mixture of experts in plain torch, and torchtitan's parallelism for it, for the dry runs.

Structure and places of the calls follow pytorch/torchtitan v0.2.2: models/moe/moe.py (MoE, GroupedExperts),
distributed/expert_parallel.py and models/llama4/infra/parallelize.py (apply_moe_ep_tp). Routing is even and known beforehand (copy i
of the tokens of a rank goes to expert i mod E), on every rank the same: nobody is there to answer, so what comes in is what goes out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed import _functional_collectives as funcol
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInputOutput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import silu

from tokenwire.model.architecture import Experts, FeedForward


class GroupedExperts(nn.Module):
    """The experts of this rank, their weights in one tensor a product; rows come in ordered by expert."""

    def __init__(self, hidden: int, e: Experts) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(e.count, e.width, hidden))
        self.w2 = nn.Parameter(torch.empty(e.count, hidden, e.width))
        self.w3 = nn.Parameter(torch.empty(e.count, e.width, hidden))
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.02)
        # Ranks that divide the experts, and ranks that divide each expert's channels.
        self.spread: DeviceMesh | None = None
        self.cut: DeviceMesh | None = None

    def forward(self, rows: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Return the experts' outputs in the order of ``rows``, shape (copies, h); ``counts``: rows of each expert of the model."""
        w1, w2, w3 = (w.to_local() if isinstance(w, DTensor) else w for w in (self.w1, self.w2, self.w3))
        if self.cut is not None:
            rows = DTensor.from_local(rows, self.cut, (Replicate(),)).to_local(grad_placements=(Partial(),))
        if self.spread is None:
            return _products(rows, counts, w1, w2, w3)
        ranks, group, held = self.spread.size(), self.spread.get_group(), w1.shape[0]
        told = funcol.all_to_all_single(torch.tensor(counts), None, None, group)
        funcol.wait_tensor(told)
        going = [sum(counts[at : at + held]) for at in range(0, len(counts), held)]
        mine = counts[self.spread.get_local_rank() * held :][:held]
        coming = [sum(mine)] * ranks
        arrived = funcol.all_to_all_single_autograd(rows, coming, going, group)
        # Rows arrive by rank and then by expert; each rank's part is computed by itself.
        done = _products(arrived, mine * ranks, *(w.repeat(ranks, 1, 1) for w in (w1, w2, w3)))
        return funcol.all_to_all_single_autograd(done, going, coming, group)


def _products(rows: torch.Tensor, counts: list[int], w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor) -> torch.Tensor:
    parts = rows.split(counts)
    return torch.cat([(silu(x @ a.T) * (x @ c.T)) @ b.T for x, a, b, c in zip(parts, w1, w2, w3, strict=True)])


class Shared(nn.Module):
    """The experts that see every token: a gated feed-forward."""

    def __init__(self, hidden: int, f: FeedForward) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, f.width, bias=False)
        self.w2 = nn.Linear(f.width, hidden, bias=False)
        self.w3 = nn.Linear(hidden, f.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the feed-forward part of ``x``."""
        out: torch.Tensor = self.w2(silu(self.w1(x)) * self.w3(x))
        return out


class Mixture(nn.Module):
    """Router, experts, shared experts. ``part`` is this rank's share of the tokens to route, as (rank, ranks)."""

    def __init__(self, hidden: int, e: Experts) -> None:
        super().__init__()
        self.e, self.part = e, (0, 1)
        self.experts = GroupedExperts(hidden, e)
        self.gate = nn.Linear(hidden, e.count, bias=False)
        self.shared: Any = None if e.shared is None else Shared(hidden, e.shared)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mixture's output for ``x``, shape (b, s, h)."""
        b, s, h = x.shape
        flat, k = x.reshape(-1, h), self.e.active
        scores = torch.softmax(self.gate(flat).float(), dim=-1)
        place, ranks = self.part
        here = b * s // ranks
        chosen = torch.arange(here * k) % self.e.count
        order = chosen.argsort(stable=True)
        counts = [(here * k - expert + self.e.count - 1) // self.e.count for expert in range(self.e.count)]
        copies = order + place * here * k
        routed = self.experts(flat[copies // k], counts)
        back = torch.zeros(b * s * k, h, dtype=routed.dtype).index_put((copies,), routed).reshape(-1, k, h)
        weights = scores.gather(1, (torch.arange(b * s * k) % self.e.count).reshape(-1, k))
        mixed = torch.bmm(weights[:, None, :], back.float()).to(x.dtype).squeeze(1)
        out = mixed if self.shared is None else self.shared(flat) + mixed
        return out.reshape(b, s, h)


class Whole(ParallelStyle):
    """A module that every tensor-parallel rank computes alike (torchtitan's NoParallel); ``local``: whether it puts out a plain tensor."""

    def __init__(self, *, local: bool = True) -> None:
        super().__init__()
        self.local = local

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def taken(_: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
            if isinstance(inputs[0], DTensor):
                return inputs
            return (DTensor.from_local(inputs[0], mesh, (Replicate(),), run_check=False), *inputs[1:])

        def given(_: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
            whole = output if output.placements == (Replicate(),) else output.redistribute(placements=(Replicate(),))
            return whole.to_local() if self.local else whole

        return distribute_module(module, device_mesh, None, taken, given)


def parallelize(mixture: Mixture, tp: DeviceMesh | None, ep: DeviceMesh | None, ep_etp: DeviceMesh | None) -> None:
    """Divide a mixture in place: ``tp`` ranks of the dense part, ``ep`` ranks of the experts, ``ep_etp`` where both cut experts."""
    if tp is not None:
        parallelize_module(mixture, tp, _tensor_plan(mixture))
        if ep is not None and ep_etp is None:
            mixture.part = (tp.get_local_rank(), tp.size())
    experts = mixture.experts
    if ep_etp is not None:
        experts.spread, experts.cut = ep_etp["ep"], ep_etp["etp"]
        _cut(experts, ep_etp, [Shard(0), Shard(1)], [Shard(0), Shard(2)])
    elif ep is not None:
        experts.spread = ep
        _cut(experts, ep, [Shard(0)], [Shard(0)])
    elif tp is not None:
        experts.cut = tp
        _cut(experts, tp, [Shard(1)], [Shard(2)])


def _cut(experts: GroupedExperts, mesh: DeviceMesh, up: list[Any], down: list[Any]) -> None:
    for name, placements in (("w1", up), ("w3", up), ("w2", down)):
        setattr(experts, name, nn.Parameter(distribute_tensor(getattr(experts, name), mesh, placements)))


def _tensor_plan(mixture: Mixture) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {
        "": PrepareModuleInputOutput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_input=True,
            output_layouts=(Partial(),), desired_output_layouts=(Shard(1),),
        ),
        "gate": Whole(),
    }  # fmt: skip
    if mixture.shared is not None:
        plan |= {"shared.w1": ColwiseParallel(), "shared.w3": ColwiseParallel(), "shared.w2": RowwiseParallel(output_layouts=Partial())}
    return plan
