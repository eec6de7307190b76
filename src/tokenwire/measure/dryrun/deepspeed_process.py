"""The process of ``deepspeed``: DeepSpeed's own engine on a fake process group, a few steps, the last one kept.

DeepSpeed keeps its process groups for the life of a process, so each dry run has a process of its own: a new interpreter, or a
fork of one that has imported DeepSpeed.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenwire.measure.dryrun.calls import Call
    from tokenwire.measure.dryrun.record import Recorder
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan import Plan

STEPS = 4
"""Steps that are run; the last one is kept."""


def run(arch: Architecture, plan: Plan, rank: int) -> list[Call]:
    """Return the calls of set-up and of a step; the process must not have run DeepSpeed before."""
    os.environ.update({
        "DS_ACCELERATOR": "cpu", "RANK": str(rank), "WORLD_SIZE": str(plan.world), "LOCAL_RANK": str(rank % 8), "LOCAL_SIZE": "8",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    })  # fmt: skip
    from tokenwire.measure.dryrun.record import Recorder, fake_world
    from tokenwire.measure.dryrun.torchtitan import quiet
    from tokenwire.plan.deepspeed import DeepspeedPlan

    recorder = Recorder()
    with quiet(), fake_world(rank, plan.world):
        deepspeed = import_module("deepspeed")
        _with_half_precision()
        _without_neighbours()
        _without_rubbish()
        assert isinstance(plan.config, DeepspeedPlan)
        if plan.config.zero_quantized_weights or plan.config.zero_quantized_gradients:
            from tokenwire.measure.dryrun.deepspeed_kernels import stand_in

            stand_in()
        if plan.pp > 1:
            from tokenwire.measure.dryrun.deepspeed_pipeline import trained

            step = trained(deepspeed, arch, plan, recorder)
        else:
            step = _trained(deepspeed, arch, plan, recorder)
        with recorder.recording():
            before = len(recorder.calls)
            # ZeRO-3 learns the order of modules in its first steps; later ones follow it.
            for _ in range(STEPS):
                start = len(recorder.calls)
                step()
    return recorder.calls[:before] + recorder.calls[start:]


def _trained(deepspeed: Any, arch: Architecture, plan: Plan, recorder: Recorder) -> Callable[[], None]:
    import torch

    from tokenwire.measure.dryrun.deepspeed_pipeline import configuration
    from tokenwire.measure.dryrun.torch_model import Decoder
    from tokenwire.model.parameters import parameters

    model = Decoder(arch)
    given: dict[str, Any] = {}
    if plan.cp > 1:
        deepspeed.init_distributed(dist_init_required=False)
        groups = import_module("deepspeed.runtime.sequence_parallel.parallel_state_sp")
        groups.initialize_sequence_parallel(plan.cp)
        given["mpu"] = groups
    with recorder.recording(), recorder.phase.during("setup"):
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=configuration(plan, parameters(arch).total),
            dist_init_required=False, **given,
        )  # fmt: skip
    if plan.cp > 1:
        _ulysses(model)

    def step() -> None:
        for _ in range(plan.micro_batches):
            ids = torch.zeros(plan.training.micro_batch, plan.training.sequence_length // plan.cp, dtype=torch.int64)
            loss = engine(ids).float().sum()
            engine.backward(loss)
            with recorder.phase.during("optimizer"):
                engine.step()

    return step


def _with_half_precision() -> None:
    # DeepSpeed asks whether the processor has fast products of fp16; torch has slow ones in any case.
    type(import_module("deepspeed.accelerator").get_accelerator()).is_fp16_supported = lambda _: True


def _without_neighbours() -> None:
    # What waits for an answer of other processes has none here: shared memory of a node, and checks that ranks agree.
    import_module("deepspeed.comm.torch").__dict__["build_shm_op"] = lambda: None
    for name in ("utils", "partition_parameters", "partitioned_param_coordinator"):
        module = import_module(f"deepspeed.runtime.zero.{name}")
        if hasattr(module, "assert_ints_same_as_other_ranks"):
            module.__dict__["assert_ints_same_as_other_ranks"] = lambda *_: None


def _without_rubbish() -> None:
    # Nobody writes what the fake group should have received; numbers left in memory would look like an overflow, and DeepSpeed
    # would skip the step.
    torch: Any = import_module("torch")
    torch.empty = torch.zeros
    torch.empty_like = torch.zeros_like


def _ulysses(model: Any) -> None:
    from tokenwire.measure.dryrun.torch_model import SelfAttention

    attention = import_module("deepspeed.sequence.layer").DistributedAttention
    group = import_module("deepspeed.runtime.sequence_parallel.parallel_state_sp").get_sequence_parallel_group()
    for module in model.modules():
        if isinstance(module, SelfAttention):
            module.inner_attention = _heads(attention(_local(module.inner_attention), group, 2, 1))


def _local(kernel: Any) -> Any:
    import torch

    class Local(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return kernel(q, k, v).transpose(1, 2)

    return Local()


def _heads(distributed: Any) -> Any:
    import torch

    class Heads(torch.nn.Module):
        # DeepSpeed has (b, s, heads, d) where the decoder has (b, heads, s, d).
        def __init__(self) -> None:
            super().__init__()
            self.distributed = distributed

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
            return self.distributed(q, k, v, 0).transpose(1, 2)

    return Heads()


def main(folder: Path) -> None:
    """Read the plan from ``folder``, run it, and leave the calls there."""
    given = pickle.loads((folder / "plan.pickle").read_bytes())
    (folder / "calls.pickle").write_bytes(pickle.dumps([asdict(call) for call in run(*given)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
