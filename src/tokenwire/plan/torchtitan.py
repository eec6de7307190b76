"""The ``[plan]`` section of a torchtitan run: FSDP2, HSDP, tensor, pipeline and context parallelism by its own names.

Names and defaults: pytorch/torchtitan v0.2.2, torchtitan/config/job_config.py (Parallelism, Training,
ActivationCheckpoint). The sizes are also read by their long names (``tensor_parallel_degree`` ...). ``[training]
micro_batch`` is torchtitan's ``local_batch_size``, with a pipeline its ``pipeline_parallel_microbatch_size``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tokenwire.config import Positive
from tokenwire.plan.base import Offload, Sharding
from tokenwire.plan.compiled import CompileOptions
from tokenwire.plan.pipelining import PipelineSchedule, ScheduleName

if TYPE_CHECKING:
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan.plan import Plan
    from tokenwire.plan.training import TrainingConfig

LONG_NAMES = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "expert_tensor_parallel_degree": "etp",
    "reshard_after_forward": "fsdp_reshard_after_forward",
}
"""torchtitan's (and FSDP2's) longer names of the same option, and the name that this section keeps."""

SINGLE_STAGE = ("1F1B", "GPipe")
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")
SPLIT_BACKWARD = ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
"""Schedules that compute gradients of inputs and of weights apart (torch distributed/pipelining/_backward.py)."""
Schedule = Literal[
    "1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"
]  # fmt: skip
"""Names of torch.distributed.pipelining.schedules.get_schedule_class."""
SCHEDULES: dict[str, ScheduleName] = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved-1f1b",
    "LoopedBFS": "looped-bfs",
    "InterleavedZeroBubble": "zb-h1",
    "ZBVZeroBubble": "zbv",
    "DualPipeV": "dualpipev",
}
"""torch's name of each schedule, and that of ``step.schedules``."""
IN_ROUNDS = ("Interleaved1F1B", "InterleavedZeroBubble")
"""Schedules that pass a round of micro-batches through a virtual stage before the next one runs."""


def rounds(ranks: int, micro_batches: int) -> int:
    """Return the rounds of micro-batches, which must divide them (torch 2.13, schedules.py, ScheduleInterleaved1F1B.__init__).

    >>> [rounds(4, m) for m in (3, 5, 10, 15)]
    [1, 1, 2, 3]
    """
    return max(1, micro_batches // ranks)


class TorchtitanPlan(CompileOptions):
    """Options of torchtitan and FSDP2 that change what is sent.

    ``enable_cpu_offload`` is FSDP2's CPUOffloadPolicy. ``fsdp_wrap`` says what one all_gather holds: ``torchtitan`` gives embedding, each block, and final norm with head a
    group of their own; ``blocks`` is FSDP2 in its plain form, ``fully_shard`` on each block and on the root, which then
    holds embedding, final norm and head. ``set_requires_gradient_sync`` false is FSDP2's way of accumulating gradients:
    no reduction but in the last micro-batch (torchtitan leaves it true without a pipeline). The other ``set_...`` options are FSDP2's
    methods of that name (torch/distributed/fsdp/_fully_shard/_fully_shard.py): ``set_requires_all_reduce`` false, no all_reduce between
    replicas but in the last micro-batch; ``set_reshard_after_backward`` false, parameters stay gathered from one micro-batch to the
    next; ``set_unshard_in_backward`` false, the embedding is not gathered for backward; ``set_modules_to_forward_prefetch`` and
    ``set_modules_to_backward_prefetch``, how many of the next blocks each block names (0: it names none, and FSDP gathers one ahead);
    ``set_gradient_divide_factor``, what gradients are divided by (None: the ranks that share the data; torchtitan sets 1);
    ``set_all_reduce_hook`` true, FSDP knows of the shard ranks only and a hook on each unit sums its gradients over the replicas. A
    pipeline sets all but the last three by itself (torch/distributed/pipelining/stage.py). ``load_balance_coeff`` is that of
    the model's routers, 0 for none (torchtitan/models/moe/moe.py, MoEArgs). ``enable_symm_mem_for_group`` says that somebody calls
    torch's function of that name for the tensor-parallel group, without which ``enable_async_tensor_parallel`` changes nothing:
    torchtitan v0.2.2 does not call it, later versions do (pytorch/torchtitan #3869, #4045).
    """

    KEPT: ClassVar[tuple[str, ...]] = (
        "mixed_precision_param", "mixed_precision_reduce", "fsdp_reshard_after_forward", "fsdp_wrap", "set_requires_gradient_sync",
        "max_norm", "expert_parallel_comm_backend", "load_balance_coeff", "log_freq",
    )  # fmt: skip

    dialect: Literal["torchtitan"] = "torchtitan"

    # Data parallelism
    data_parallel_replicate_degree: Positive = 1
    data_parallel_shard_degree: int = Field(default=-1, ge=-1)
    fsdp_reshard_after_forward: Literal["default", "always", "never"] = "default"
    fsdp_wrap: Literal["torchtitan", "blocks"] = "torchtitan"
    set_requires_gradient_sync: bool = True
    set_requires_all_reduce: bool = True
    set_reshard_after_backward: bool = True
    set_unshard_in_backward: bool = True
    set_modules_to_forward_prefetch: int = Field(default=0, ge=0, le=1024)
    set_modules_to_backward_prefetch: int = Field(default=0, ge=0, le=1024)
    set_gradient_divide_factor: float | None = Field(default=1.0, gt=0, le=2**40)
    set_all_reduce_hook: bool = False
    mixed_precision_param: Literal["bfloat16", "float16", "float32"] | None = None
    mixed_precision_reduce: Literal["float32", "bfloat16", "float16"] = "float32"
    max_norm: float = Field(default=1.0, ge=0)
    enable_cpu_offload: bool = False

    # Tensor parallelism
    disable_loss_parallel: bool = False
    enable_async_tensor_parallel: bool = False
    enable_symm_mem_for_group: bool = False

    # Pipeline parallelism
    pipeline_parallel_schedule: Schedule = "1F1B"
    pipeline_parallel_layers_per_stage: Positive | None = None
    pipeline_parallel_first_stage_less_layers: int = Field(default=1, ge=0)
    pipeline_parallel_last_stage_less_layers: int = Field(default=1, ge=0)

    # Context parallelism
    context_parallel_rotate_method: Literal["allgather", "alltoall"] = "allgather"

    # Experts, activation checkpoints (``early_stop``: run again only what backward needs), metrics
    expert_parallel_comm_backend: Literal["standard", "deepep"] = "standard"
    load_balance_coeff: float = Field(default=1e-3, ge=0)
    activation_checkpoint_mode: Literal["none", "selective", "full"] = "none"
    selective_ac_option: Literal["op", "1", "2", "3", "4"] = "2"
    early_stop: bool = False
    log_freq: Positive = 10

    @model_validator(mode="before")
    @classmethod
    def _long_names(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        out = {LONG_NAMES.get(str(key), key): value for key, value in values.items()}
        reshard = out.get("fsdp_reshard_after_forward")
        if isinstance(reshard, bool):
            out["fsdp_reshard_after_forward"] = "always" if reshard else "never"
        return out

    @property
    def one_graph(self) -> bool:
        """Return that each block is a graph, and the loss (torchtitan/distributed/compile.py; torchtitan/components/loss.py, BaseLoss)."""
        return False

    @property
    def joins_products(self) -> bool:
        """Return whether the compiler joins products with the collectives of tensor parallelism."""
        return self.tp > 1 and self.enable_async_tensor_parallel and self.enable_symm_mem_for_group

    def shard_degree(self, gpus: int) -> int:
        """Return the number of ranks that share a copy of the parameters; -1 stands for all that are left."""
        if self.data_parallel_shard_degree > 0:
            return self.data_parallel_shard_degree
        return max(gpus // (self.data_parallel_replicate_degree * self.cp * self.tp * self.pp), 1)

    def param_dtype(self, training: TrainingConfig) -> str:
        """Return the dtype in which FSDP gathers parameters: ``mixed_precision_param``, else ``[training] precision``."""
        names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
        if self.mixed_precision_param is not None:
            return names[self.mixed_precision_param]
        return "bf16" if training.precision == "fp8" else training.precision

    def reduce_dtype(self) -> str:
        """Return the dtype in which FSDP reduces gradients."""
        return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[self.mixed_precision_reduce]

    def gradient_dtype(self, training: TrainingConfig) -> str:
        """Return ``reduce_dtype``."""
        return self.reduce_dtype()

    @classmethod
    def reducing_in(cls, dtype: str) -> dict[str, Any]:
        """Return ``mixed_precision_reduce``."""
        return {"mixed_precision_reduce": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[dtype]}

    def reduces_each(self, op: str) -> bool:
        """Return whether gradients are reduced (``reduce_scatter``), or summed over replicas (``all_reduce``), in each micro-batch."""
        if self.pp > 1 or not self.set_requires_gradient_sync:
            return False
        return op != "all_reduce" or self.set_requires_all_reduce or self.set_all_reduce_hook

    @property
    def kept_after_backward(self) -> bool:
        """Return whether a unit that is gathered in a backward stays so for the next micro-batch."""
        return self.pp > 1 or not self.set_reshard_after_backward

    def stages_per_rank(self, layers: int) -> int:
        """Return the virtual stages of a pipeline rank (torchtitan/distributed/pipeline_parallel.py, pipeline_llm)."""
        if self.pp == 1:
            return 1
        if self.pipeline_parallel_layers_per_stage is not None:
            places = layers + self.pipeline_parallel_first_stage_less_layers + self.pipeline_parallel_last_stage_less_layers
            return -(-places // self.pipeline_parallel_layers_per_stage) // self.pp
        if self.vpp > 1:
            return self.vpp
        return 1 if self.pipeline_parallel_schedule in SINGLE_STAGE else 2

    def pipeline_schedule(self, plan: Plan) -> PipelineSchedule:
        """Return torch's schedule; those ``IN_ROUNDS`` take a round of micro-batches at a time."""
        asked = self.pipeline_parallel_schedule
        if plan.pp == 1:
            return PipelineSchedule("1f1b")
        group = plan.micro_batches // rounds(plan.pp, plan.micro_batches) if asked in IN_ROUNDS else None
        return PipelineSchedule(SCHEDULES[asked], group)

    @property
    def gathers_weights(self) -> bool:
        """Return that FSDP2 gathers its units as they run."""
        return True

    def sharding(self, plan: Plan, *, expert: bool) -> Sharding:
        """Return into how many parts FSDP cuts parameters, gradients and optimizer state."""
        parts = plan.group_size("edp_shard" if expert else "fsdp")
        return Sharding(weights=parts, gradients=parts, optimizer=parts, gradient_bytes=4)

    def autocast(self, plan: Plan) -> bool:
        """Return whether nothing is sharded, so that autocast stands for FSDP's casts (torchtitan/distributed/utils.py, maybe_enable_amp)."""
        return plan.group_size("fsdp") * plan.tp * plan.pp == 1 and plan.training.precision != "fp32"

    def offload(self) -> Offload:
        """Return what stands on the host: with CPUOffloadPolicy all of a rank's shards; the optimizer is torch's, on the CPU."""
        return Offload(weights=1.0, gradients=1.0, optimizer=1.0) if self.enable_cpu_offload else Offload()

    def resolve(self, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
        """Return the checked plan; see ``torchtitan_layout`` for what is checked."""
        from tokenwire.plan.torchtitan_layout import resolve

        return resolve(self, training, arch, gpus)
