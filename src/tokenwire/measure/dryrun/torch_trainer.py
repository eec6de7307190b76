"""What torchtitan's trainer says around the model: valid tokens, the loss, the gradient norm, the balance of experts, the log.

Follows pytorch/torchtitan v0.2.2: torchtitan/train.py (train_step), distributed/utils.py (clip_grad_norm_) and
components/optimizer.py (build_optimizers_with_moe_load_balancing).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed import _functional_collectives as funcol
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from tokenwire.measure.dryrun.record import Recorder
from tokenwire.measure.dryrun.torch_experts import Mixture
from tokenwire.measure.dryrun.torch_parallel import Meshes
from tokenwire.plan import Plan
from tokenwire.plan.torchtitan import TorchtitanPlan


def parallel_loss(plan: Plan, config: TorchtitanPlan) -> Any:
    """Return the context of the loss: torch's ``loss_parallel`` where tensor parallelism leaves the logits cut."""
    return loss_parallel() if plan.tp > 1 and not config.disable_loss_parallel else contextlib.nullcontext()


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return the summed loss in fp32 (torchtitan/components/loss.py, cross_entropy_loss)."""
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum")


def count_tokens(plan: Plan, meshes: Meshes, recorder: Recorder) -> None:
    """Sum the valid tokens over the data-parallel ranks, before anything else of the step."""
    if plan.dp > 1:
        with recorder.phase.during("data"):
            funcol.wait_tensor(funcol.all_reduce(torch.tensor(0, dtype=torch.int64), "sum", meshes.data["batch"]))


def finish(
    parts: Sequence[torch.nn.Module], optimizer: Any, plan: Plan, config: TorchtitanPlan, meshes: Meshes, recorder: Recorder, loss: Any
) -> None:
    """Clip the gradient norm, balance experts, step, and on a logging step sum loss and tokens."""
    with recorder.phase.during("optimizer"):
        _clip([parameter for part in parts for parameter in part.parameters()], plan, config, meshes)
        if config.load_balance_coeff:
            _balance(parts, plan, meshes)
        optimizer.step()
    log_loss(plan, config, meshes, recorder, loss)


def _clip(parameters: list[torch.nn.Parameter], plan: Plan, config: TorchtitanPlan, meshes: Meshes) -> None:
    # With expert parallelism the experts' gradients are on a mesh of their own and have a norm of their own.
    routed = [p for p in parameters if isinstance(p, DTensor) and "ep" in (p.device_mesh.mesh_dim_names or ())]
    apart = {id(p) for p in routed}
    dense = [p for p in parameters if id(p) not in apart]
    norms = [_norm(group) for group in ((routed, dense) if plan.ep > 1 else (dense,))]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    if plan.pp > 1:
        dist.all_reduce(norm, group=meshes.dense["pp"].get_group())
    for group in (routed, dense):
        torch.nn.utils.clip_grads_with_norm_(group, config.max_norm, norm, foreach=True)


def _norm(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _balance(parts: Sequence[torch.nn.Module], plan: Plan, meshes: Meshes) -> None:
    counts = [torch.zeros(module.e.count) for part in parts for module in part.modules() if isinstance(module, Mixture)]
    if counts and plan.group_size("dp_cp") > 1:
        dist.all_reduce(torch.vstack(counts), group=meshes.loss.get_group())


def log_loss(plan: Plan, config: TorchtitanPlan, meshes: Meshes, recorder: Recorder, loss: Any) -> None:
    """Sum loss and tokens over the ranks, on a step that is logged."""
    if config.log_freq == 1 and plan.group_size("dp_cp") > 1:
        with recorder.phase.during("loss"):
            value = loss.full_tensor() if isinstance(loss, DTensor) else loss
            summed = ((value.detach(), "sum"), (value.detach(), "max"), (torch.tensor(0, dtype=torch.int64), "sum"))
            for tensor, how in summed:
                funcol.wait_tensor(funcol.all_reduce(tensor, how, meshes.loss))
