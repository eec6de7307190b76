"""The ``[plan]`` section of DistributedDataParallel: every rank holds the whole model, gradients are averaged in buckets.

Names and defaults: torch 2.13, torch/nn/parallel/distributed.py (DistributedDataParallel.__init__).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from tokenwire.config import Positive
from tokenwire.plan.base import Sharding
from tokenwire.plan.compiled import CompileOptions, broken_loss
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenwire.model.architecture import Architecture
    from tokenwire.plan.plan import Plan
    from tokenwire.plan.rules import Broken, Choice
    from tokenwire.plan.training import TrainingConfig

MIB = 2**20
FIRST_BUCKET_BYTES = MIB
"""torch.distributed._DEFAULT_FIRST_BUCKET_BYTES."""
DEFAULT_BUCKET_MIB = 25


class DdpPlan(CompileOptions):
    """Options of DistributedDataParallel that change what is sent.

    ``bucket_cap_mb`` is in MiB, as there; None is 25 with a first bucket of 1 MiB, and a value that is given holds for the
    first bucket too. With ``training.optimizer = "dist_muon"`` nothing is wrapped: the optimizer reduces gradients and gathers
    parameters once a step, as nanochat's does. ``no_sync`` accumulates gradients over the micro-batches of a step and reduces in the last one.
    ``parameter_dtype`` is that of parameters and so of gradients: fp32 with autocast is usual. ``buffers`` counts the
    elements (fp32) of the model's buffers, which rank 0 broadcasts before a forward that follows a reduction.
    """

    KEPT: ClassVar[tuple[str, ...]] = (
        "bucket_cap_mb", "broadcast_buffers", "buffers", "find_unused_parameters", "no_sync", "comm_hook", "parameter_dtype"
    )  # fmt: skip

    dialect: Literal["ddp"] = "ddp"
    bucket_cap_mb: float | None = Field(default=None, gt=0, le=2**20)
    broadcast_buffers: bool = True
    buffers: int = Field(default=0, ge=0)
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    no_sync: bool = False
    comm_hook: Literal["none", "bf16_compress_hook", "fp16_compress_hook"] = "none"
    parameter_dtype: Literal["float32", "bfloat16", "float16"] = "float32"

    @property
    def dtype(self) -> str:
        """Return the dtype of parameters and gradients by our name."""
        return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[self.parameter_dtype]

    @property
    def sent_dtype(self) -> str:
        """Return the dtype in which gradients are sent: a compression hook may narrow it."""
        return {"none": self.dtype, "bf16_compress_hook": "bf16", "fp16_compress_hook": "fp16"}[self.comm_hook]

    def gradient_dtype(self, training: TrainingConfig) -> str:
        """Return ``sent_dtype``."""
        return self.sent_dtype

    @classmethod
    def reducing_in(cls, dtype: str) -> dict[str, Any]:
        """Return the compression hook that narrows gradients, none for fp32."""
        return {"comm_hook": "none" if dtype == "fp32" else f"{dtype}_compress_hook"}

    def bucket_limits(self) -> tuple[int, int]:
        """Return the bytes at which the first bucket and every later one is closed."""
        if self.bucket_cap_mb is None:
            return FIRST_BUCKET_BYTES, DEFAULT_BUCKET_MIB * MIB
        return int(self.bucket_cap_mb * MIB), int(self.bucket_cap_mb * MIB)

    def sharding(self, plan: Plan, *, expert: bool) -> Sharding:
        """Return that nothing is cut but the optimizer state of ``dist_muon``; gradients have the dtype of parameters."""
        shared = plan.training.optimizer == "dist_muon"
        return Sharding(optimizer=plan.dp if shared else 1, gradient_bytes=ITEM_BYTES[self.dtype])

    def autocast(self, plan: Plan) -> bool:
        """Return whether fp32 parameters are trained in 16 bits."""
        return self.dtype == "fp32" and plan.training.precision != "fp32"

    def resolve(self, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
        """Return the checked plan. Raises ``InputError`` for any other parallelism, or batches that do not divide."""
        from tokenwire.plan.grid import Grid
        from tokenwire.plan.plan import Plan, Stage
        from tokenwire.plan.rules import Choice, hold

        hold(Choice(self, training, gpus), _broken)
        grid = Grid((("dp", gpus),))
        return Plan(
            config=self, training=training, world=gpus, tp=1, pp=1, cp=1, dp=gpus, ep=1, etp=1, edp=gpus, vpp=1,
            micro_batches=training.global_batch // (training.micro_batch * gpus), grid=grid,
            expert_grid=Grid((("edp", gpus),)), stages=(Stage(0, (tuple(range(len(arch.layers))),), True, True),),
            vocabulary_size=arch.vocabulary_size,
        )  # fmt: skip


def _broken(choice: Choice) -> Iterator[Broken]:
    from tokenwire.plan.rules import Broken

    config, t = choice.config, choice.training
    assert isinstance(config, DdpPlan)
    for key in ("tp", "pp", "cp", "ep", "vpp"):
        value: Positive = getattr(config, key)
        if value > 1:
            yield Broken("plan", key, "DistributedDataParallel only replicates: every other parallelism is 1")
    if t.global_batch % (t.micro_batch * choice.gpus):
        yield Broken("training", "global_batch", f"micro_batch·dp = {t.micro_batch}·{choice.gpus} = "
                     f"{t.micro_batch * choice.gpus:,} must divide the global batch",
                     (("training", "micro_batch"), ("cluster", "gpus")))  # fmt: skip
    if t.optimizer == "dist_muon" and (config.parameter_dtype != "float32" or config.comm_hook != "none"):
        key = "comm_hook" if config.parameter_dtype == "float32" else "parameter_dtype"
        yield Broken("plan", key, "dist_muon reduces fp32 gradients itself", (("training", "optimizer"),))
    yield from broken_loss(config, t)
