"""Peaks of real torch steps on fake tensors, as torch's own trackers of memory count them: FSDP2 and plain data parallelism.

The model has learned positions and LayerNorm: on CPUs the RMSNorm of 16-bit numbers keeps fp32 copies that GPUs' kernel does not,
and rotary positions of the dry runs' decoder make attention's output lie in another order, which costs a copy.
"""

from __future__ import annotations

from typing import Any

import pytest

from tokenwire.model import architecture
from tokenwire.model.config import ModelConfig
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.memory import Moment, StageMemory, memory

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

MODEL: dict[str, Any] = {
    "hidden_size": 512, "heads": 8, "kv_heads": 8, "feed_forward": 1408, "gated": True, "norm": "layer", "activation": "silu", "positions": "learned",
    "tied_embeddings": False, "max_positions": 1024, "bias": False, "layers": 3, "vocabulary_size": 1024,
}  # fmt: skip
TRAINING: dict[str, Any] = {"sequence_length": 1024, "global_batch": 16, "micro_batch": 2}
NAMES: tuple[Moment, ...] = ("forward", "loss", "head", "backward")


def tracked(model: dict[str, Any], options: dict[str, Any], training: dict[str, Any]) -> tuple[int, StageMemory]:
    """Return the highest count of one forward and backward, in bytes, and the prediction."""
    import contextlib

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker

    from tokenwire.measure.dryrun.record import fake_world
    from tokenwire.measure.dryrun.torch_model import Decoder
    from tokenwire.measure.dryrun.torch_parallel import Meshes, parallelized
    from tokenwire.measure.dryrun.torch_trainer import cross_entropy
    from tokenwire.measure.dryrun.torchtitan import _real_meshes, quiet

    arch = architecture(ModelConfig.model_validate(model))
    plan: Plan = resolve(read_plan(options), TrainingConfig.model_validate(training), arch, 8)
    sharded = options["dialect"] == "torchtitan"
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(fake_world(0, plan.world))
        meshes = Meshes.of(plan) if sharded else None
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_real_meshes())
        net = parallelized(Decoder(arch), arch, plan, meshes) if meshes else Decoder(arch)
        tracker: Any
        if sharded:
            tracker = FSDPMemTracker(net, torch.optim.SGD(net.parameters(), lr=1.0))
            tracker.track_inputs(())
        else:
            tracker = MemTracker()
            tracker.track_external(net)
        with tracker:
            ids = torch.zeros(plan.training.micro_batch, plan.training.sequence_length, dtype=torch.int64)
            logits = net(ids)
            loss = cross_entropy(logits, ids)
            del logits
            loss.backward()
        counted = sum(size for kinds in tracker.get_tracker_snapshot("peak").values() for name, size in kinds.items() if name == "Total")
    return counted, memory(arch, plan).stages[0]


def predicted(stage: StageMemory) -> int:
    """Return the peak without the optimizer's state and workspaces, which the trackers' step has not."""
    return max(sum(p.size for p in stage.parts if moment in p.moments and p.kind not in ("optimizer", "workspaces")) for moment in NAMES)


@pytest.mark.parametrize(
    ("model", "options", "training", "within"),
    [
        ({"vocabulary_size": 16_000}, {"dialect": "torchtitan"}, {}, 0.001),
        ({}, {"dialect": "torchtitan"}, {}, 0.005),
        ({"vocabulary_size": 8_000}, {"dialect": "torchtitan", "fsdp_reshard_after_forward": "never"}, {}, 0.001),
        ({"vocabulary_size": 8_000, "kv_heads": 2, "gated": False, "activation": "gelu"}, {"dialect": "torchtitan"}, {}, 0.002),
        ({"vocabulary_size": 8_000}, {"dialect": "torchtitan"}, {"precision": "fp32"}, 0.001),
        ({"vocabulary_size": 8_000}, {"dialect": "ddp", "gradient_as_bucket_view": True}, {"precision": "fp32"}, 0.001),
        ({"layers": 6}, {"dialect": "torchtitan", "activation_checkpoint_mode": "full"}, {}, 0.1),
    ],
    ids=["large head", "small head", "never resharded", "grouped heads, gelu", "fp32", "ddp", "all recomputed"],
)  # fmt: skip
def test_peak_of_a_step(model: dict[str, Any], options: dict[str, Any], training: dict[str, Any], within: float) -> None:
    counted, stage = tracked({**MODEL, **model}, options, {**TRAINING, **training})
    assert predicted(stage) == pytest.approx(counted, rel=within)
