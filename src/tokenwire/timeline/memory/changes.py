"""Changes of a plan that save memory, in the order of what they cost a step: first those that cost nothing, last more ranks a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenwire.model.architecture import Architecture, Experts
from tokenwire.plan import Plan


@dataclass(frozen=True)
class Change:
    """Options of the plan's section (and ``training.micro_batch``) with their new values."""

    settings: Mapping[str, Any]


def of_plan(arch: Architecture, plan: Plan) -> Iterator[Change]:
    """Yield the changes that a plan's framework has, cheapest first.

    >>> from tokenwire.model import preset
    >>> from tokenwire.plan import TrainingConfig, read_plan, resolve
    >>> arch = preset("gpt2", 50257)
    >>> plan = resolve(read_plan({"dialect": "ddp"}), TrainingConfig(micro_batch=4), arch, 2)
    >>> [dict(change.settings) for change in of_plan(arch, plan)]
    [{'gradient_as_bucket_view': True}, {'training.micro_batch': 2}, {'training.micro_batch': 1}]
    """
    for settings in _DIALECTS.get(plan.config.dialect, _batches)(arch, plan):
        if any(_now(plan, key) != value for key, value in settings.items()):
            yield Change(settings)


BEYOND = {"ddp": "a framework that shards, which DistributedDataParallel does not (plan.dialect = torchtitan), or a smaller model"}
"""What lies beyond the changes of a framework where it is not more GPUs."""


def beyond(plan: Plan) -> str:
    """Return in words what would be left where no change makes a plan fit."""
    return BEYOND.get(plan.config.dialect, "more GPUs, or a smaller model")


def _now(plan: Plan, key: str) -> Any:
    return plan.training.micro_batch if key == "training.micro_batch" else getattr(plan.config, key, None)


def _batches(arch: Architecture, plan: Plan) -> Iterator[dict[str, Any]]:
    size = plan.training.micro_batch // 2
    while size >= 1:
        yield {"training.micro_batch": size}
        size //= 2


def _sizes(plan: Plan, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for factor in (2, 4, 8):
        for name in names:
            yield {name: getattr(plan, name) * factor}


def _with_sequences(plan: Plan, settings: dict[str, Any]) -> dict[str, Any]:
    # Where tp was 1 Megatron had turned sequence parallelism off, and beside it nobody would go without.
    return {**settings, "sequence_parallel": True} if "tp" in settings and plan.tp == 1 else settings


def _megatron(arch: Architecture, plan: Plan) -> Iterator[dict[str, Any]]:
    experts = any(isinstance(layer.feed_forward, Experts) for layer in arch.layers)
    yield {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}
    if plan.dp * plan.cp > 1:
        yield {"use_distributed_optimizer": True}
    if plan.tp > 1:
        yield {"sequence_parallel": True}
    full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if _now(plan, "recompute_granularity") is None:
        yield {"recompute_granularity": "selective"}
        yield {"recompute_granularity": "selective", "recompute_modules": ("core_attn", "moe_act") if experts else ("core_attn", "mlp")}
    yield from _batches(arch, plan)
    yield full
    for settings in _sizes(plan, ("ep", "tp", "pp", "cp") if experts else ("tp", "pp", "cp")):
        yield _with_sequences(plan, settings)


def _torchtitan(arch: Architecture, plan: Plan) -> Iterator[dict[str, Any]]:
    if _now(plan, "data_parallel_replicate_degree") != 1:
        yield {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": -1}
    yield {"fsdp_reshard_after_forward": "always"}
    if _now(plan, "activation_checkpoint_mode") == "none":
        yield {"activation_checkpoint_mode": "selective"}
    yield from _batches(arch, plan)
    yield {"activation_checkpoint_mode": "full"}
    yield from _sizes(plan, ("tp", "pp", "cp"))


def _deepspeed(arch: Architecture, plan: Plan) -> Iterator[dict[str, Any]]:
    for stage in range(_now(plan, "zero_stage") + 1, 4):
        yield {"zero_stage": stage}
    yield from _batches(arch, plan)
    yield {"activation_checkpointing": True}
    yield from _sizes(plan, ("cp", "pp"))


def _ddp(arch: Architecture, plan: Plan) -> Iterator[dict[str, Any]]:
    yield {"gradient_as_bucket_view": True}
    yield from _batches(arch, plan)


_DIALECTS = {"megatron": _megatron, "torchtitan": _torchtitan, "deepspeed": _deepspeed, "ddp": _ddp}
