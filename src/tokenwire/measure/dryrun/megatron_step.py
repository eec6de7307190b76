"""Building Megatron-Core's model, buffers and optimizer for one rank, and running one step. Needs torch.

Recipe: megatron-core's own entry points (parallel_state.initialize_model_parallel, GPTModel, DistributedDataParallel,
get_megatron_optimizer, get_forward_backward_func, finalize_model_grads).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch

from tokenwire.measure.dryrun.megatron_calls import Call, Phase, recorder
from tokenwire.measure.dryrun.megatron_cpu import fake_world, on_cpu, restored_reduction
from tokenwire.measure.dryrun.megatron_model import TORCH_DTYPES, stage_model, transformer_config
from tokenwire.measure.dryrun.megatron_muon import muon_optimizer
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.muon import uses_muon


def run(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return the calls of one step (and of construction, phase ``setup``) by ``rank``."""
    phase = Phase()
    calls: list[Call] = []
    with fake_world(rank, plan.world), on_cpu(), restored_reduction(), recorder(phase, calls, plan, rank):
        one_step = _built(arch, plan, phase)
        construction = list(calls)
        config = plan.config
        assert isinstance(config, MegatronPlan)
        if config.overlap_param_gather or config.overlap_grad_reduce:
            # With overlap the first step differs (nothing to gather yet): the second is like all that follow.
            one_step()
        calls.clear()
        one_step()
    return [*construction, *calls]


def _built(arch: Architecture, plan: Plan, phase: Phase) -> Callable[[], None]:
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
        param_and_grad_buffer,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer.optimizer import MixedPrecisionOptimizer
    from megatron.core.pipeline_parallel import p2p_communication, schedules
    from megatron.core.transformer.module import Float16Module

    config = plan.config
    assert isinstance(config, MegatronPlan)
    parallel_state.initialize_model_parallel(
        config.tp, config.pp, config.vpp if config.vpp > 1 else None, context_parallel_size=config.cp,
        expert_model_parallel_size=config.ep, expert_tensor_parallel_size=plan.etp,
        num_distributed_optimizer_instances=config.num_distributed_optimizer_instances, create_gloo_process_groups=False,
        get_embedding_ranks=lambda ranks: [ranks[i] for i in plan.embedding_stages or (0,)],
    )  # fmt: skip
    precision = plan.training.precision
    transformer = transformer_config(arch, plan)
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=config.grad_reduce_in_fp32, overlap_grad_reduce=config.overlap_grad_reduce,
        overlap_param_gather=config.overlap_param_gather, use_distributed_optimizer=config.use_distributed_optimizer,
        num_distributed_optimizer_instances=config.num_distributed_optimizer_instances, bucket_size=config.ddp_bucket_size,
        pad_buckets_for_high_nccl_busbw=config.pad_buckets_for_high_nccl_busbw,
        average_in_collective=config.average_in_collective,
        reduce_scatter_with_fp32_accumulation=config.reduce_scatter_with_fp32_accumulation,
    )  # fmt: skip
    models = []
    for chunk in range(config.vpp):
        model = stage_model(arch, plan, transformer, chunk)
        wrapped = Float16Module(transformer, model) if precision != "fp32" else model
        models.append(DistributedDataParallel(transformer, ddp, wrapped, disable_bucketing=chunk > 0))
    settings = OptimizerConfig(
        optimizer="sgd" if plan.training.optimizer == "sgd" else "adam", lr=1e-4, bf16=precision == "bf16",
        fp16=precision == "fp16", params_dtype=TORCH_DTYPES[precision], clip_grad=0.0,
        use_distributed_optimizer=config.use_distributed_optimizer, log_num_zeros_in_grad=config.log_num_zeros_in_grad,
        initial_loss_scale=1.0, overlap_param_gather=config.overlap_param_gather,
    )  # fmt: skip
    if uses_muon(plan.training):
        optimizer = muon_optimizer(settings, models, shared=plan.training.optimizer == "dist_muon")
    else:
        optimizer = get_megatron_optimizer(settings, models, use_gloo_process_groups=False)

    def finalize(*args: Any, **kwargs: Any) -> None:
        with phase.during("gradients"):
            finalize_model_grads(*args, **kwargs)

    transformer.finalize_model_grads_func = finalize
    transformer.grad_scale_func = optimizer.scale_loss
    transformer.timers = None
    if config.overlap_grad_reduce:
        transformer.no_sync_func = [m.no_sync for m in models] if len(models) > 1 else models[0].no_sync
    if config.overlap_param_gather and config.vpp > 1:
        transformer.param_sync_func = [m.start_param_sync for m in models]

    def one_step() -> None:
        for model in models:
            model.zero_grad_buffer()
        optimizer.zero_grad()
        iterators: Any = [_data(plan) for _ in models] if len(models) > 1 else _data(plan)
        schedules.get_forward_backward_func()(
            forward_step_func=partial(_forward, plan), data_iterator=iterators, model=models,
            num_microbatches=plan.micro_batches, seq_length=plan.training.sequence_length,
            micro_batch_size=plan.training.micro_batch, forward_only=False,
        )  # fmt: skip
        with phase.during("optimizer"):
            optimizer.step()

    def one_step_noted() -> None:
        with contextlib.ExitStack() as stack:
            for name, when in (("forward_step", "forward"), ("backward_step", "backward")):
                stack.enter_context(mock.patch.object(schedules, name, _in_phase(getattr(schedules, name), phase, when)))
            for name in ("_batched_p2p_ops", "_p2p_ops"):
                patched = _noting_direction(getattr(p2p_communication, name), phase)
                stack.enter_context(mock.patch.object(p2p_communication, name, patched))
            sync = param_and_grad_buffer._ParamAndGradBucketGroup
            stack.enter_context(mock.patch.object(sync, "start_grad_sync", _in_phase(sync.start_grad_sync, phase, "gradients")))
            shapes = p2p_communication.P2PCommunicator
            stack.enter_context(mock.patch.object(shapes, "_communicate_shapes", _known_shapes(shapes._communicate_shapes, arch, plan, phase)))
            # Received numbers are arbitrary; an overflow in them must not skip the step.
            check = MixedPrecisionOptimizer._unscale_main_grads_and_check_for_nan
            stack.enter_context(mock.patch.object(
                MixedPrecisionOptimizer, "_unscale_main_grads_and_check_for_nan", lambda self: check(self) and False
            ))  # fmt: skip
            # Outside forward and backward of a micro-batch only parameters are gathered ahead of the forward.
            with phase.during("forward"):
                one_step()

    return one_step_noted


def _in_phase(function: Callable[..., Any], phase: Phase, name: str) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with phase.during(name):
            return function(*args, **kwargs)

    return inside


def _noting_direction(function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
    def noted(**tensors: Any) -> Any:
        phase.of_tensor.clear()
        for name in ("tensor_send_next", "tensor_recv_prev", "tensor_send_prev", "tensor_recv_next"):
            if tensors.get(name) is not None:
                forward = name in ("tensor_send_next", "tensor_recv_prev")
                phase.of_tensor[tensors[name].data_ptr()] = "forward" if forward else "backward"
        return function(**tensors)

    return noted


def _known_shapes(function: Callable[..., Any], arch: Architecture, plan: Plan, phase: Phase) -> Callable[..., Any]:
    # What would be received is not there: the shape is that of every stage, or wider after multi-token prediction.
    parts = plan.cp * (plan.tp if plan.sequence_parallel else 1)
    shape = [plan.training.sequence_length // parts, plan.training.micro_batch, arch.hidden_size]
    wide = [shape[0] * (1 + (plan.config.mtp_num_layers or 0)), *shape[1:]]  # type: ignore[attr-defined]
    further = next((stage.index for stage in plan.stages if stage.has_next_tokens), plan.pp) + (plan.vpp - 1) * plan.pp
    forwards, backwards = _received(plan)

    def known(communicator: Any, send_next: Any, send_prev: Any, recv_prev: Any, recv_next: Any) -> Any:
        # In the order in which Megatron lists them.
        asked = ((send_prev is not None, "backward"), (recv_prev, "forward"), (send_next is not None, "forward"),
                 (recv_next, "backward"))  # fmt: skip
        phase.coming.extend(name for wanted, name in asked if wanted)
        function(communicator, send_next, send_prev, recv_prev, recv_next)
        before = wide if recv_prev and next(forwards) > further else shape
        return before, wide if recv_next and next(backwards) >= further else shape

    return known


def _received(plan: Plan) -> tuple[Iterator[int], Iterator[int]]:
    """Return the virtual stages that receive activations, and those that receive gradients, in the order in which they do."""
    from megatron.core.pipeline_parallel import schedules

    here, p, v = plan.stage_of(torch.distributed.get_rank()), plan.pp, plan.vpp
    assert isinstance(plan.config, MegatronPlan)
    group = plan.config.microbatch_group_size_per_vp_stage or p
    chunks = [chunk for _, chunk in schedules.get_schedule_table(plan.micro_batches, v, group)]
    forwards = [chunk * p + here for chunk in chunks if chunk or here]
    backwards = [(v - 1 - chunk) * p + here for chunk in chunks if chunk or here < p - 1]
    return itertools.cycle(forwards), itertools.cycle(backwards)


def _data(plan: Plan) -> Iterator[torch.Tensor]:
    while True:
        length = plan.training.sequence_length // plan.cp
        yield torch.zeros(plan.training.micro_batch, length, dtype=torch.int64)


def _forward(plan: Plan, iterator: Any, model: Any, *unused: Any) -> Any:
    tokens = next(iterator)
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    output = model(tokens, positions, None, labels=tokens, loss_mask=torch.ones(tokens.shape))

    def loss(out: torch.Tensor) -> Any:
        total = out.float().sum()
        return total, torch.tensor(tokens.numel(), dtype=torch.int), {}

    if not plan.config.calculate_per_token_loss:  # type: ignore[attr-defined]
        return output, lambda out: (out.float().mean(), {})
    return output, loss
