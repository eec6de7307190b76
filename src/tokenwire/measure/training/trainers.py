"""One training step of each parallelism, real: DistributedDataParallel, torchtitan's, and a pipeline.

A trainer is called with inputs and labels, int64[rows, s], and returns the mean loss over this rank's tokens, or None where
the rank does not see it. What is sent is torch's own doing; the steps are those of the dry runs, with tokens instead of zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tokenwire.measure.dryrun.record import Recorder
from tokenwire.measure.dryrun.torch_model import Decoder
from tokenwire.measure.training.job import Job
from tokenwire.plan.ddp import DdpPlan
from tokenwire.plan.torchtitan import SINGLE_STAGE, TorchtitanPlan

Trainer = Callable[[torch.Tensor, torch.Tensor], float | None]
_STANDARD_DEVIATION = 0.02


def trainer(job: Job, rank: int, recorder: Recorder) -> Trainer:
    """Return the trainer of a job, built in the current world."""
    torch.manual_seed(job.seed)
    config = job.plan.config
    if isinstance(config, DdpPlan):
        return _replicated(job, config)
    assert isinstance(config, TorchtitanPlan)
    return _pipelined(job, config, rank, recorder) if job.plan.pp > 1 else _sharded(job, config, recorder)


def _replicated(job: Job, config: DdpPlan) -> Trainer:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = _begun(Decoder(job.arch)).to(getattr(torch, config.parameter_dtype))
    if config.buffers:
        model.register_buffer("buffers_", torch.zeros(config.buffers))
    parallel = nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=config.bucket_cap_mb, broadcast_buffers=config.broadcast_buffers,
        find_unused_parameters=config.find_unused_parameters, static_graph=config.static_graph,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
    )  # fmt: skip
    if config.comm_hook != "none":
        parallel.register_comm_hook(None, getattr(default_hooks, config.comm_hook))
    optimizer: Any = (
        ZeroRedundancyOptimizer(parallel.parameters(), optimizer_class=torch.optim.AdamW, lr=job.learning_rate)
        if job.zero else torch.optim.AdamW(parallel.parameters(), lr=job.learning_rate)
    )  # fmt: skip
    m = job.plan.micro_batches

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> float:
        total = 0.0
        for index, (ids, wanted) in enumerate(zip(inputs.chunk(m), labels.chunk(m), strict=True)):
            waits = config.no_sync and index < m - 1
            with parallel.no_sync() if waits else contextlib.nullcontext():
                loss = F.cross_entropy(parallel(ids).flatten(0, 1).float(), wanted.flatten()) / m
                loss.backward()
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def _sharded(job: Job, config: TorchtitanPlan, recorder: Recorder) -> Trainer:
    from tokenwire.measure.dryrun.torch_parallel import Meshes, parallelized
    from tokenwire.measure.dryrun.torch_switches import set_micro_batch
    from tokenwire.measure.dryrun.torch_trainer import count_tokens, cross_entropy, finish, parallel_loss
    from tokenwire.measure.training.ring import attend_in_ring, own_part

    plan, meshes = job.plan, Meshes.of(job.plan)
    model: Any = _begun(Decoder(job.arch))
    ring = meshes.data["cp"].get_group() if plan.cp > 1 else None
    if job.sequence_parallel:
        model = parallelized(model, job.arch, plan, meshes)
    else:
        _tensor_parallel(model, meshes.dense["tp"])
    if ring is not None:
        attend_in_ring(model, ring, plan.training.sequence_length)
    if plan.group_size("fsdp") == 1 and plan.group_size("dp_replicate") > 1:
        # torchtitan/distributed and its models' apply_ddp: replicas without sharding, buckets of 100 MiB.
        replicas = meshes.dense["dp_replicate"].get_group()
        model = nn.parallel.DistributedDataParallel(model, process_group=replicas, bucket_cap_mb=100)
    # Without sequence parallelism norms stay plain tensors beside cut ones, which fused optimizers do not take together.
    plain = not job.sequence_parallel
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate, foreach=False, fused=not plain)
    m = plan.micro_batches

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> float:
        count_tokens(plan, meshes, recorder)
        if ring is not None:
            inputs, labels = (own_part(rows, ring.size(), ring.rank()) for rows in (inputs, labels))
        total, loss = 0.0, torch.zeros(())
        for index, (ids, wanted) in enumerate(zip(inputs.chunk(m), labels.chunk(m), strict=True)):
            set_micro_batch(model, config, last=index == m - 1)
            with parallel_loss(plan, config):
                logits = model(ids)
                with recorder.phase.during("loss"):
                    loss = cross_entropy(logits, wanted)
                del logits
                loss.backward()
            total += _local(loss)
        if plain:
            with recorder.phase.during("optimizer"):
                optimizer.step()
        else:
            finish([model], optimizer, plan, config, meshes, recorder, loss)
        optimizer.zero_grad()
        return total / int(labels.numel())

    return step


def _pipelined(job: Job, config: TorchtitanPlan, rank: int, recorder: Recorder) -> Trainer:
    from torch.distributed.pipelining import schedules

    from tokenwire.measure.dryrun import torch_pipeline
    from tokenwire.measure.dryrun.torch_parallel import Meshes
    from tokenwire.measure.dryrun.torch_trainer import count_tokens, cross_entropy, finish, parallel_loss

    plan, meshes = job.plan, Meshes.of(job.plan)
    parts, stages = torch_pipeline._stages(job.arch, plan, config, plan.stage_of(rank), meshes)
    for part in parts:
        _begun(part)
    parameters = [parameter for part in parts for parameter in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=job.learning_rate, fused=True)
    kind = schedules.get_schedule_class(config.pipeline_parallel_schedule)

    def loss_of(logits: Any, labels: Any) -> Any:
        with recorder.phase.during("loss"):
            return cross_entropy(logits, labels)

    single = config.pipeline_parallel_schedule in SINGLE_STAGE
    schedule = kind(stages[0] if single else stages, n_microbatches=plan.micro_batches, loss_fn=loss_of, scale_grads=False)
    first, last = any(x.is_first for x in stages), any(x.is_last for x in stages)

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> float | None:
        losses: list[Any] = []
        with torch_pipeline._told(stages, recorder), torch_pipeline._static(kind):
            count_tokens(plan, meshes, recorder)
            recorder.phase.between = "forward"
            with parallel_loss(plan, config):
                schedule.step(*([inputs] if first else []), target=labels if last else None,
                              losses=losses if last else None, return_outputs=False)  # fmt: skip
            whole = [x.full_tensor() if hasattr(x, "full_tensor") else x for x in losses]
            loss = torch.stack(whole).sum() if last else torch.zeros(1)
            finish(parts, optimizer, plan, config, meshes, recorder, loss)
        optimizer.zero_grad()
        return float(loss.detach()) / int(labels.numel()) if last else None

    return step


def _tensor_parallel(model: Decoder, mesh: Any) -> None:
    # Columns then rows, sums left whole on every rank: no sequence parallelism.
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    parallelize_module(model, mesh, {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "output": ColwiseParallel(input_layouts=Replicate(), output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip
    for block in model.layers.values():
        names = [name for name, _ in block.named_modules()]
        columns = [name for name in names if name.split(".")[-1] in ("qkv", "wq", "wk", "wv", "w1", "w3", "w13")]
        parallelize_module(block, mesh, {
            **{name: ColwiseParallel() for name in columns},
            "attention.wo": RowwiseParallel(), "feed_forward.w2": RowwiseParallel(),
        })  # fmt: skip


def _begun(model: Any) -> Any:
    # Small embeddings, so that the first loss is about ln(V) and the first steps go downhill.
    if model.tok_embeddings is not None:
        with torch.no_grad():
            model.tok_embeddings.weight.mul_(_STANDARD_DEVIATION)
    return model


def _local(loss: Any) -> float:
    value = loss.to_local() if hasattr(loss, "to_local") else loss
    return float(value.detach())
