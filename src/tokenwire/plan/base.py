"""What every ``[plan]`` section has: the sizes of the parallelisms by their short names, and the dialect.

Each framework has a class of its own over this base (``megatron.py``, ``torchtitan.py`` ...); every option there has
the framework's own name and default. ``dp`` is not an option: it follows from the number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tokenwire.config import Positive, Section
from tokenwire.plan.pipelining import PipelineSchedule

if TYPE_CHECKING:
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan.plan import Plan
    from tokenwire.plan.training import TrainingConfig


@dataclass(frozen=True)
class Sharding:
    """Over how many ranks weights, gradients and optimizer state of a tensor are cut beyond tensor parallelism."""

    weights: int = 1
    gradients: int = 1
    optimizer: int = 1
    gradient_bytes: float = 4


@dataclass(frozen=True)
class Offload:
    """What of a rank's model state stands on the host between uses: shares from 0 to 1; ``nvme`` says which goes on to a drive.

    ``adam`` is the implementation of the optimizer that runs on the host.
    """

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    weights_on_nvme: bool = False
    optimizer_on_nvme: bool = False
    adam: Literal["deepspeed", "torch"] = "torch"

    @property
    def any(self) -> bool:
        """Return whether anything stands on the host."""
        return max(self.weights, self.gradients, self.optimizer) > 0


class PlanConfig(Section):
    """Sizes of tensor, pipeline, context, expert, expert-tensor and virtual-pipeline parallelism.

    ``etp`` None means the framework's default (Megatron: the value of ``tp``). ``KEPT`` names the options that a plan of other
    sizes keeps: number formats, buckets, padding, the router of experts; not what cuts or replicates a tensor.
    """

    KEPT: ClassVar[tuple[str, ...]] = ()

    dialect: str = "megatron"
    tp: Positive = 1
    pp: Positive = 1
    cp: Positive = 1
    ep: Positive = 1
    etp: Positive | None = None
    vpp: Positive = 1

    def resolve(self, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
        """Return the checked plan for ``gpus`` ranks. Raises ``InputError`` for a rule that is broken."""
        raise NotImplementedError

    def kept(self) -> dict[str, Any]:
        """Return the options that were given and that a plan of other sizes keeps."""
        return {name: getattr(self, name) for name in self.KEPT if name in self.model_fields_set}

    def gradient_dtype(self, training: TrainingConfig) -> str:
        """Return the dtype in which gradients are reduced: ``fp32``, ``bf16`` or ``fp16``."""
        raise NotImplementedError

    @classmethod
    def reducing_in(cls, dtype: str) -> dict[str, Any]:
        """Return the options with which this framework reduces gradients in ``dtype``."""
        raise NotImplementedError

    def trained(self, arch: Architecture) -> Architecture:
        """Return the model as the plan trains it: with the modules of multi-token prediction and the adapters that it has."""
        return replace(arch, mtp_layers=0) if arch.mtp_layers else arch

    def pipeline_schedule(self, plan: Plan) -> PipelineSchedule:
        """Return the order in which a pipeline rank of ``plan`` runs its micro-batches; default: 1F1B, interleaved with virtual stages."""
        return PipelineSchedule("interleaved-1f1b" if plan.vpp > 1 else "1f1b")

    @property
    def gathers_weights(self) -> bool:
        """Return whether sharded weights are gathered as layers run, and let go again; default: they stand."""
        return False

    def sharding(self, plan: Plan, *, expert: bool) -> Sharding:
        """Return how data parallelism cuts what a rank holds (``expert``: of the experts' tensors); default: not."""
        return Sharding()

    def autocast(self, plan: Plan) -> bool:
        """Return whether products take fp32 weights through torch's autocast, which casts them for each forward."""
        return False

    def offload(self) -> Offload:
        """Return what stands on the host; default: nothing."""
        return Offload()
