"""One step of torch.distributed.pipelining on one rank, the recorder told which send and which receive is which.

The stages and schedules are torch's own (torch 2.13, torch/distributed/pipelining). Shapes of what is sent between stages
are given, so that none is asked of a neighbour: that talk belongs to the first step only, and a fake neighbour has no answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining.stage import InferenceMode

from tokenwire.errors import InputError
from tokenwire.measure.dryrun.record import Recorder
from tokenwire.measure.dryrun.torch_model import Decoder
from tokenwire.measure.dryrun.torch_parallel import Meshes, parallelized
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.torchtitan import SINGLE_STAGE, TorchtitanPlan
from tokenwire.plan.torchtitan_layout import layers_of_stages, virtual_stages


def pipeline_step(
    arch: Architecture, plan: Plan, config: TorchtitanPlan, stage: int, meshes: Meshes, recorder: Recorder
) -> None:
    """Run one step of pipeline rank ``stage`` and record it."""
    from tokenwire.measure.dryrun.torch_trainer import count_tokens, cross_entropy, finish, parallel_loss

    parts, stages = _stages(arch, plan, config, stage, meshes)
    optimizer = torch.optim.AdamW([parameter for part in parts for parameter in part.parameters()], fused=True)
    kind = schedules.get_schedule_class(config.pipeline_parallel_schedule)
    m, b, s = plan.micro_batches, plan.training.micro_batch, plan.training.sequence_length // plan.cp

    def loss_of(logits: Any, labels: Any) -> Any:
        with recorder.phase.during("loss"):
            return cross_entropy(logits, labels)

    single = config.pipeline_parallel_schedule in SINGLE_STAGE
    try:
        schedule = kind(stages[0] if single else stages, n_microbatches=m, loss_fn=loss_of, scale_grads=False)
    except ValueError as error:
        raise InputError(f"pipeline_parallel_schedule = {config.pipeline_parallel_schedule}", where="[plan]",
                         rule=f"torch refuses: {error}") from None  # fmt: skip
    ids = torch.zeros(m * b, s, dtype=torch.int64)
    first, last = any(x.is_first for x in stages), any(x.is_last for x in stages)
    losses: list[Any] = []
    with recorder.recording(), _told(stages, recorder), _static(kind):
        count_tokens(plan, meshes, recorder)
        recorder.phase.between = "forward"
        with parallel_loss(plan, config):
            schedule.step(*([ids] if first else []), target=ids if last else None, losses=losses if last else None,
                          return_outputs=False)  # fmt: skip
        loss = torch.stack([x.full_tensor() if hasattr(x, "full_tensor") else x for x in losses]).sum() if last else torch.zeros(1)
        finish(parts, optimizer, plan, config, meshes, recorder, loss)


def _stages(
    arch: Architecture, plan: Plan, config: TorchtitanPlan, rank: int, meshes: Meshes
) -> tuple[list[Decoder], list[PipelineStage]]:
    count = plan.pp * plan.vpp
    dealt = layers_of_stages(count, len(arch.layers), config.pipeline_parallel_first_stage_less_layers,
                             config.pipeline_parallel_last_stage_less_layers)  # fmt: skip
    assert dealt is not None
    parts: list[Decoder] = []
    stages: list[PipelineStage] = []
    for index in virtual_stages(config, rank, plan.vpp):
        part = Decoder(arch, dealt[index], first=index == 0, last=index == count - 1)
        parts.append(parallelized(part, arch, plan, meshes, sum(len(other.layers) for other in parts)))
        stages.append(
            PipelineStage(parts[-1], index, count, torch.device("cpu"), _input(arch, plan, config, index),
                          _output(arch, plan, config, index == count - 1), group=meshes.dense["pp"].get_group())
        )  # fmt: skip
    return parts, stages


def _activation(arch: Architecture, plan: Plan, config: TorchtitanPlan) -> torch.Tensor:
    from tokenwire.measure.dryrun.torch_parallel import TORCH_DTYPES

    t = plan.training
    sharded = plan.group_size("fsdp") > 1
    dtype = TORCH_DTYPES[config.param_dtype(t)] if sharded else torch.float32
    shape = (t.micro_batch, t.sequence_length // plan.cp // plan.tp, arch.hidden_size)
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


def _input(arch: Architecture, plan: Plan, config: TorchtitanPlan, index: int) -> torch.Tensor:
    t = plan.training
    if index == 0:
        return torch.zeros(t.micro_batch, t.sequence_length // plan.cp, dtype=torch.int64)
    return _activation(arch, plan, config)


def _output(arch: Architecture, plan: Plan, config: TorchtitanPlan, last: bool) -> torch.Tensor:
    activation = _activation(arch, plan, config)
    if not last:
        return activation
    t = plan.training
    # Logits are sent to nobody; only their shape is looked at.
    return torch.zeros(t.micro_batch, t.sequence_length // plan.cp, arch.vocabulary_size, dtype=activation.dtype, requires_grad=True)


@contextlib.contextmanager
def _told(stages: list[PipelineStage], recorder: Recorder) -> Iterator[None]:
    kinds = (("get_fwd_recv_ops", "forward"), ("get_fwd_send_ops", "forward"), ("get_bwd_recv_ops", "backward"),
             ("get_bwd_send_ops", "backward"))  # fmt: skip

    def telling(function: Any, phase: str) -> Any:
        def call(*args: Any) -> Any:
            ops = function(*args)
            for op in ops:
                recorder.phase.belongs(op.tensor, phase)
            return ops

        return call

    with contextlib.ExitStack() as stack:
        for stage in stages:
            for name, phase in kinds:
                stack.enter_context(mock.patch.object(stage, name, telling(getattr(stage, name), phase)))
        yield


@contextlib.contextmanager
def _static(kind: Any) -> Iterator[None]:
    def warmup(self: Any, stages: list[Any], *_: Any) -> None:
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC

    with mock.patch.object(kind, "_warmup_p2p", warmup):
        yield
