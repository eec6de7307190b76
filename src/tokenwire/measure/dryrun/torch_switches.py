"""FSDP2's switches, by the methods of ``FSDPModule`` that a plan names (torch 2.13, torch/distributed/fsdp/_fully_shard/_fully_shard.py)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from tokenwire.measure.dryrun.torch_experts import GroupedExperts
from tokenwire.measure.dryrun.torch_model import Decoder
from tokenwire.plan.torchtitan import TorchtitanPlan


def set_once(model: Decoder, config: TorchtitanPlan, replicas: Any, expert_replicas: Any) -> None:
    """Set what holds for all micro-batches; ``replicas`` are the groups over which a hook sums gradients.

    The factor that gradients are divided by changes no byte, and gloo has no operation that multiplies before it adds.
    """
    divides = config.set_gradient_divide_factor is not None and dist.get_backend() != "gloo"
    for module in model.modules():
        if not isinstance(module, FSDPModule):
            continue
        if divides:
            module.set_gradient_divide_factor(config.set_gradient_divide_factor)
        if config.set_all_reduce_hook:
            module.set_all_reduce_hook(_summing(expert_replicas if isinstance(module, GroupedExperts) else replicas))
    if not config.set_unshard_in_backward and model.tok_embeddings is not None:
        model.tok_embeddings.set_unshard_in_backward(False)
    blocks: list[Any] = list(model.layers.values())
    for place, block in enumerate(blocks):
        ahead = blocks[place + 1 : place + 1 + config.set_modules_to_forward_prefetch]
        behind = blocks[max(place - config.set_modules_to_backward_prefetch, 0) : place]
        block.set_modules_to_forward_prefetch(ahead)
        block.set_modules_to_backward_prefetch(behind[::-1])


def set_micro_batch(model: Any, config: TorchtitanPlan, *, last: bool) -> None:
    """Set what differs between the last micro-batch and those before it."""
    if not isinstance(model, FSDPModule):
        return
    if not config.set_requires_gradient_sync:
        model.set_requires_gradient_sync(last)
    if not config.set_requires_all_reduce:
        model.set_requires_all_reduce(last)
    if not config.set_reshard_after_backward:
        model.set_reshard_after_backward(last)


def _summing(group: Any) -> Any:
    def hook(reduced: torch.Tensor) -> None:
        dist.all_reduce(reduced, group=group)

    return hook
