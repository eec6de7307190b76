"""One optimizer step of torch's own FSDP2, tensor and pipeline parallelism on a fake process group, put together as torchtitan.

The step is that of torchtitan's trainer (pytorch/torchtitan v0.2.2, torchtitan/train.py, train_step): valid tokens are summed,
each micro-batch goes forward and backward, the gradient norm is clipped, the optimizer steps. Tensors of large models are fake, so a
large model runs in little memory.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError
from tokenwire.measure.dryrun.calls import Call
from tokenwire.measure.dryrun.record import Recorder, fake_world, require_torch, table
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan
from tokenwire.plan.torchtitan import TorchtitanPlan

if TYPE_CHECKING:
    import polars as pl


def record(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return the calls of one step by ``rank`` (``record.COLUMNS``).

    Raises ``InputError`` for a model or plan that this dry run cannot build, ``MissingExtra`` without torch.
    """
    return table(calls(arch, plan, rank), plan, rank)


def calls(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return every call in order."""
    require_torch("a dry run of torch")
    config = plan.config
    if not isinstance(config, TorchtitanPlan):
        raise InputError(f"dialect = {config.dialect}", where="[plan]", rule="this dry run is of torchtitan")
    if plan.group_size("fsdp") == 1 and plan.group_size("dp_replicate") > 1:
        from tokenwire.measure.dryrun.ddp import replicated_calls

        return [*replicated_calls(arch, plan, rank), *_small_ones(plan, config, rank)]
    recorder = Recorder()
    with quiet(), fake_world(rank, plan.world):
        from tokenwire.measure.dryrun.torch_parallel import Meshes
        from tokenwire.measure.dryrun.torch_strategies import alike_once

        # Meshes are real: their ranks are read.
        meshes = Meshes.of(plan)
        with fake_tensors(arch), alike_once():
            _step(arch, plan, config, meshes, rank, recorder)
    return recorder.calls


LARGE = 2**26
"""Parameters from which on tensors are fake: slower by the call, but without memory."""


@contextlib.contextmanager
def fake_tensors(arch: Architecture) -> Iterator[None]:
    """Make tensors fake inside the block where the model is large."""
    from tokenwire.model.parameters import parameters

    if parameters(arch).total < LARGE:
        yield
        return
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), _real_meshes():
        yield


@contextlib.contextmanager
def _real_meshes() -> Iterator[None]:
    # FSDP2 joins meshes while it wraps; a mesh reads the ranks it holds, so its tensors must not be fake.
    from unittest import mock

    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.device_mesh import DeviceMesh

    def real(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with unset_fake_temporarily():
                return function(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for name in ("__init__", "__getitem__", "_flatten", "_unflatten", "_concatenate"):
            raw = DeviceMesh.__dict__[name]
            bound = staticmethod(real(raw.__func__)) if isinstance(raw, staticmethod) else real(raw)
            stack.enter_context(mock.patch.object(DeviceMesh, name, bound))
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep frameworks from logging and warning: a dry run's output is its table."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def _step(arch: Architecture, plan: Plan, config: TorchtitanPlan, meshes: Any, rank: int, recorder: Recorder) -> None:
    import torch

    from tokenwire.measure.dryrun.torch_model import Decoder
    from tokenwire.measure.dryrun.torch_parallel import parallelized
    from tokenwire.measure.dryrun.torch_pipeline import pipeline_step
    from tokenwire.measure.dryrun.torch_switches import set_micro_batch
    from tokenwire.measure.dryrun.torch_trainer import count_tokens, cross_entropy, finish, parallel_loss

    if plan.pp > 1:
        pipeline_step(arch, plan, config, plan.stage_of(rank), meshes, recorder)
        return
    model = parallelized(Decoder(arch), arch, plan, meshes)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    b, s, m = plan.training.micro_batch, plan.training.sequence_length, plan.micro_batches
    with recorder.recording():
        count_tokens(plan, meshes, recorder)
        for index in range(m):
            set_micro_batch(model, config, last=index == m - 1)
            ids = torch.zeros(b, s // plan.cp, dtype=torch.int64)
            with parallel_loss(plan, config):
                logits = model(ids)
                with recorder.phase.during("loss"):
                    loss = cross_entropy(logits, ids)
                loss.backward()
        finish([model], optimizer, plan, config, meshes, recorder, loss)


def _small_ones(plan: Plan, config: TorchtitanPlan, rank: int) -> list[Call]:
    # What the trainer says around a model of DistributedDataParallel, whose own calls come from processes that really send.
    import torch

    recorder = Recorder()
    with quiet(), fake_world(rank, plan.world):
        from tokenwire.measure.dryrun.torch_parallel import Meshes
        from tokenwire.measure.dryrun.torch_trainer import count_tokens, log_loss

        meshes = Meshes.of(plan)
        with recorder.recording():
            count_tokens(plan, meshes, recorder)
            log_loss(plan, config, meshes, recorder, torch.zeros(()))
    return recorder.calls
