"""DeepSpeed's own pipeline engine on one rank: the decoder as a list of layers, divided over stages by its blocks.

The engine, its schedule and its sends are DeepSpeed's (runtime/pipe/engine.py, module.py). Shapes of activations, which a
neighbour tells in the first step of a run, are given instead: nobody is there to tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tokenwire.measure.dryrun.record import Recorder
from tokenwire.measure.dryrun.torch_model import Block, make_norm
from tokenwire.model.architecture import Architecture, Norm
from tokenwire.model.parameters import parameters as count
from tokenwire.plan import Plan
from tokenwire.plan.deepspeed import DeepspeedPlan

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Embedding(nn.Module):
    """Tokens to rows, with learned positions where the model has them; as the head of a tied model, rows to logits."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.tokens = nn.Embedding(arch.vocabulary_size, arch.hidden_size)
        learned = arch.positions == "learned" and not arch.tied_embeddings
        self.positions = nn.Embedding(arch.max_positions + arch.position_offset, arch.hidden_size) if learned else None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of ``ids``, shape (b, s, h)."""
        rows: torch.Tensor = self.tokens(ids)
        return rows if self.positions is None else rows + self.positions(torch.arange(ids.shape[1])[None, :])


class FinalNorm(nn.Module):
    """The norm before the head."""

    def __init__(self, norm: Norm, size: int) -> None:
        super().__init__()
        self.norm = make_norm(norm, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` normalised."""
        out: torch.Tensor = self.norm(x)
        return out


def configuration(plan: Plan, parameters: int) -> dict[str, Any]:
    """Return DeepSpeed's own configuration of a plan for a model of so many parameters, without a scale of the loss: an overflow would skip the step that is kept.

    An optimizer on the host is torch's here: DeepSpeed's own is compiled, and sends nothing either.
    """
    assert isinstance(plan.config, DeepspeedPlan)
    out = plan.config.as_json(plan.training, plan.micro_batches)
    if "fp16" in out:
        out["fp16"] = {**out["fp16"], "loss_scale": 1.0}
    # The buffer of a bucket is allocated whole: 500 million elements where a small model fills a few thousand.
    zero = out["zero_optimization"]
    zero["reduce_bucket_size"] = min(zero["reduce_bucket_size"], parameters)
    if plan.config.offload().any:
        out["zero_force_ds_cpu_optimizer"] = False
    return out


def trained(deepspeed: Any, arch: Architecture, plan: Plan, recorder: Recorder) -> Callable[[], None]:
    """Return what runs one step of the engine, which is built and set up."""
    config, t = plan.config, plan.training
    assert isinstance(config, DeepspeedPlan)
    _told_shapes((t.micro_batch, t.sequence_length, arch.hidden_size), _DTYPES[config.dtype(t)], recorder)
    ids = torch.zeros(t.micro_batch, t.sequence_length, dtype=torch.int64)

    def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    deepspeed.init_distributed(dist_init_required=False)
    total = count(arch).total
    with recorder.recording(), recorder.phase.during("setup"):
        model = import_module("deepspeed.pipe").PipelineModule(
            layers=list(_layers(arch)), num_stages=plan.pp, loss_fn=loss_of, partition_method="type:block", activation_checkpoint_interval=0,
        )  # fmt: skip
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=[p for p in model.parameters() if p.requires_grad],
            config=configuration(plan, total), dist_init_required=False,
        )  # fmt: skip

    def step() -> None:
        engine.train_batch(itertools.repeat((ids, ids)))

    return step


def _layers(arch: Architecture) -> Iterable[Any]:
    pipe = import_module("deepspeed.pipe")

    def logits(layer: Embedding, x: torch.Tensor) -> torch.Tensor:
        return x @ layer.tokens.weight.T

    if arch.tied_embeddings:
        yield pipe.TiedLayerSpec("embedding", Embedding, arch, tied_weight_attr="tokens.weight")
    else:
        yield pipe.LayerSpec(Embedding, arch)
    for layer in arch.layers:
        yield pipe.LayerSpec(Block, arch, layer)
    if arch.final_norm:
        yield pipe.LayerSpec(FinalNorm, arch.norm, arch.hidden_size)
    if arch.tied_embeddings:
        yield pipe.TiedLayerSpec("embedding", Embedding, arch, forward_fn=logits, tied_weight_attr="tokens.weight")
    else:
        yield pipe.LayerSpec(nn.Linear, arch.hidden_size, arch.vocabulary_size, bias=False)


_PHASES = {
    "_exec_send_activations": "forward", "_exec_recv_activations": "forward", "_exec_forward_pass": "forward",
    "_exec_send_grads": "backward", "_exec_recv_grads": "backward", "_exec_backward_pass": "backward",
    "_exec_reduce_tied_grads": "gradients", "_exec_reduce_grads": "gradients", "_exec_optimizer_step": "optimizer",
    "_aggregate_total_loss": "loss",
}  # fmt: skip
"""Functions of the engine and the phase of what they ask for."""


def _told_shapes(shape: tuple[int, ...], dtype: torch.dtype, recorder: Recorder) -> None:
    engine: Any = import_module("deepspeed.runtime.pipe.engine").PipelineEngine

    def told(self: Any, _: int) -> Any:
        return self._allocate_or_extend_buffers(0, list(shape), dtype)

    engine._recv_tensor_meta = told
    for name, phase in _PHASES.items():
        setattr(engine, name, _during(getattr(engine, name), phase, recorder))
    # The engine looks up what carries out an instruction in a table of its own.
    table = engine._INSTRUCTION_MAP
    engine._INSTRUCTION_MAP = {kind: getattr(engine, function.__name__, function) for kind, function in table.items()}


def _during(function: Any, phase: str, recorder: Recorder) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with recorder.phase.during(phase):
            return function(*args, **kwargs)

    call.__name__ = function.__name__
    return call
