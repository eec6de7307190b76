"""The ``[plan]`` section of a DeepSpeed run: ZeRO, ZeRO++, Ulysses and its pipeline, by the names of its JSON.

Names and defaults: DeepSpeed 0.19, deepspeed/runtime/zero/config.py (DeepSpeedZeroConfig; ``stage`` is ``zero_stage`` here) and
deepspeed/runtime/config.py. ``sequence_parallel_size`` (Ulysses) is ``cp``, ``pipeline_stages`` is ``pp``. Tensor parallelism is
brought by the model (Megatron-DeepSpeed) and is not said here. ``offload_optimizer`` and ``offload_param`` are the ``device`` of those
sections, ``offload_optimizer_ratio`` the ``ratio`` of the first (deepspeed/runtime/zero/offload_config.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tokenwire.config import Positive
from tokenwire.plan.base import Offload, Sharding
from tokenwire.plan.compiled import CompileOptions, broken_loss
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan.plan import Plan
    from tokenwire.plan.rules import Broken, Choice
    from tokenwire.plan.training import TrainingConfig

LONG_NAMES = {"sequence_parallel_size": "cp", "pipeline_stages": "pp", "stage": "zero_stage", "num_stages": "pp"}
"""DeepSpeed's names of sizes, and the name that this section keeps."""

_ZERO_KEYS = (
    "reduce_bucket_size", "allgather_bucket_size", "reduce_scatter", "overlap_comm", "contiguous_gradients", "round_robin_gradients",
    "use_multi_rank_bucket_allreduce", "stage3_param_persistence_threshold",
    "stage3_prefetch_bucket_size", "stage3_max_live_parameters", "stage3_max_reuse_distance", "zero_hpz_partition_size",
    "zero_quantized_weights", "zero_quantized_gradients",
)  # fmt: skip
GPUS_A_NODE = 8
"""What qgZ takes for a node: the devices that a process sees."""


class DeepspeedPlan(CompileOptions):
    """Options of DeepSpeed that change what is sent. Bucket sizes and thresholds count elements, as there."""

    KEPT: ClassVar[tuple[str, ...]] = (
        "reduce_bucket_size", "allgather_bucket_size", "reduce_scatter", "communication_data_type", "gradient_clipping"
    )  # fmt: skip

    dialect: Literal["deepspeed"] = "deepspeed"
    zero_stage: Literal[0, 1, 2, 3] = 0
    reduce_bucket_size: Positive = 500_000_000
    allgather_bucket_size: Positive = 500_000_000
    reduce_scatter: bool = True
    overlap_comm: bool | None = None
    contiguous_gradients: bool = True
    round_robin_gradients: bool = False
    use_multi_rank_bucket_allreduce: bool = True
    communication_data_type: Literal["fp32", "fp16", "bf16"] | None = None
    gradient_clipping: float = Field(default=0.0, ge=0)
    stage3_param_persistence_threshold: int = Field(default=100_000, ge=0)
    stage3_prefetch_bucket_size: int = Field(default=50_000_000, ge=0)
    stage3_max_live_parameters: int = Field(default=1_000_000_000, ge=0)
    stage3_max_reuse_distance: int = Field(default=1_000_000_000, ge=0)
    zero_hpz_partition_size: Positive = 1
    zero_quantized_weights: bool = False
    zero_quantized_gradients: bool = False
    offload_optimizer: Literal["none", "cpu", "nvme"] = "none"
    offload_optimizer_ratio: float = Field(default=1.0, ge=0, le=1)
    offload_param: Literal["none", "cpu", "nvme"] = "none"
    activation_checkpointing: bool = False

    @model_validator(mode="before")
    @classmethod
    def _long_names(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {LONG_NAMES.get(str(key), key): value for key, value in values.items()}

    @property
    def one_graph(self) -> bool:
        """Return whether the model is one graph: the hooks of ZeRO-3 break it at every module."""
        return self.zero_stage < 3

    def dtype(self, training: TrainingConfig) -> str:
        """Return the dtype of parameters and activations."""
        return "bf16" if training.precision == "fp8" else training.precision

    def sent_dtype(self, training: TrainingConfig) -> str:
        """Return the dtype in which gradients are sent (``communication_data_type``, else that of parameters)."""
        return self.communication_data_type or self.dtype(training)

    def gradient_dtype(self, training: TrainingConfig) -> str:
        """Return ``sent_dtype``."""
        return self.sent_dtype(training)

    @classmethod
    def reducing_in(cls, dtype: str) -> dict[str, Any]:
        """Return ``communication_data_type``."""
        return {"communication_data_type": dtype}

    @property
    def cuts_buckets(self) -> bool:
        """Return whether stages 1 and 2 cut a bucket of gradients by the ranks that own its parts."""
        # With the optimizer on the host gradients are contiguous in any case (runtime/zero/stage_1_and_2.py).
        return self.reduce_scatter and (self.contiguous_gradients or self.offload_optimizer != "none")

    @property
    def reduces_to_owners(self) -> bool:
        """Return whether stages 1 and 2 sum each part of a bucket on the rank that owns it alone."""
        return self.cuts_buckets and not self.use_multi_rank_bucket_allreduce

    def as_json(self, training: TrainingConfig, micro_batches: int) -> dict[str, Any]:
        """Return DeepSpeed's own configuration of this section."""
        out: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": training.micro_batch, "gradient_accumulation_steps": micro_batches,
            "gradient_clipping": self.gradient_clipping, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
            "zero_optimization": {"stage": self.zero_stage, **{key: getattr(self, key) for key in _ZERO_KEYS}},
        }  # fmt: skip
        if self.dtype(training) != "fp32":
            out[self.dtype(training)] = {"enabled": True}
        if self.communication_data_type:
            out["communication_data_type"] = self.communication_data_type
        if self.cp > 1:
            out["sequence_parallel_size"] = self.cp
        zero = out["zero_optimization"]
        if self.offload_optimizer != "none":
            zero["offload_optimizer"] = {"device": self.offload_optimizer, "ratio": self.offload_optimizer_ratio}
        if self.offload_param != "none":
            zero["offload_param"] = {"device": self.offload_param}
        return out

    @property
    def gathers_weights(self) -> bool:
        """Return whether parameters are sharded, which ZeRO does from stage 3 on."""
        return self.zero_stage == 3

    def offload(self) -> Offload:
        """Return what stands on the host: the optimizer with the gradients it reads, and parameters (ZeRO-3).

        Stage 1 keeps gradients until they are reduced at the end of a step; from stage 2 on they leave as they are reduced.
        """
        share = self.offload_optimizer_ratio if self.offload_optimizer != "none" else 0.0
        return Offload(weights=float(self.offload_param != "none"), gradients=share if self.zero_stage >= 2 else 0.0, optimizer=share,
                       weights_on_nvme=self.offload_param == "nvme", optimizer_on_nvme=self.offload_optimizer == "nvme",
                       adam="deepspeed")  # fmt: skip

    def sharding(self, plan: Plan, *, expert: bool) -> Sharding:
        """Return ZeRO's cuts: optimizer state from stage 1, gradients from 2, parameters from 3."""
        n, size = plan.group_size("dp_cp"), ITEM_BYTES[self.dtype(plan.training)]
        return Sharding(weights=n if self.zero_stage == 3 else 1, gradients=n if self.zero_stage >= 2 else 1,
                        optimizer=n if self.zero_stage >= 1 else 1, gradient_bytes=size)  # fmt: skip

    def resolve(self, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
        """Return the checked plan: ranks are (pipe, data, sequence), the last fastest (deepspeed/runtime/pipe/topology.py).

        Raises ``InputError`` for the first rule that is broken.
        """
        from functools import partial

        from tokenwire.plan.grid import Grid
        from tokenwire.plan.plan import Plan
        from tokenwire.plan.rules import Choice, hold

        hold(Choice(self, training, gpus), partial(_broken, arch=arch))
        dp = gpus // (self.pp * self.cp)
        secondary = self.zero_hpz_partition_size
        grid = Grid((("cp", self.cp), ("dp", dp), ("pp", self.pp)))
        groups = {"hpz": (Grid((("hpz", secondary), ("rest", gpus // secondary))), ("hpz",))} if secondary > 1 else {}
        if self.zero_quantized_gradients and gpus % GPUS_A_NODE == 0:
            nodes = Grid((("inside", GPUS_A_NODE), ("nodes", gpus // GPUS_A_NODE)))
            groups |= {"qgz_node": (nodes, ("inside",)), "qgz_across": (nodes, ("nodes",))}
        return Plan(
            config=self, training=training, world=gpus, tp=1, pp=self.pp, cp=self.cp, dp=dp, ep=1, etp=1, edp=dp * self.cp,
            vpp=1, micro_batches=training.global_batch // (training.micro_batch * dp), grid=grid,
            expert_grid=Grid((("edp", dp * self.cp), ("pp", self.pp))), stages=_stages(self.pp, len(arch.layers)),
            vocabulary_size=arch.vocabulary_size,
            extra_groups=groups,
        )  # fmt: skip


def _stages(p: int, layers: int) -> tuple[Any, ...]:
    from tokenwire.plan.plan import Stage

    # partition_method "uniform": as equal as can be, the first stages one more (deepspeed/runtime/utils.py, partition_uniform).
    each, extra = divmod(layers, p)
    out, at = [], 0
    for stage in range(p):
        take = each + (stage < extra)
        out.append(Stage(stage, (tuple(range(at, at + take)),), stage == 0, stage == p - 1))
        at += take
    return tuple(out)


def _broken(choice: Choice, arch: Architecture) -> Iterator[Broken]:
    from tokenwire.model.architecture import Attention
    from tokenwire.plan.described import uncut
    from tokenwire.plan.muon import uses_muon
    from tokenwire.plan.rules import Broken

    c, t = choice.config, choice.training
    assert isinstance(c, DeepspeedPlan)
    for key in ("tp", "ep", "vpp"):
        if getattr(c, key) > 1:
            yield Broken("plan", key, "is not part of this dialect: DeepSpeed takes it from the model")
    if choice.gpus % (c.pp * c.cp):
        yield Broken("plan", "pp" if c.pp > c.cp else "cp", f"pp·cp = {c.pp * c.cp:,} must divide the {choice.gpus:,} GPUs",
                     (("cluster", "gpus"),))  # fmt: skip
        return
    yield from uncut(choice, arch)
    dp = choice.gpus // (c.pp * c.cp)
    if c.pp > len(arch.layers):
        yield Broken("plan", "pp", f"the model has only {len(arch.layers)} layers, so a stage would be without a layer")
    if c.pp > 1 and c.zero_stage > 1:
        yield Broken("plan", "zero_stage", "a pipeline goes with ZeRO 0 and 1 only (deepspeed/runtime/pipe/engine.py)")
    if c.pp > 1 and c.cp > 1:
        yield Broken("plan", "cp", "Ulysses goes with no pipeline here")
    heads = {layer.mixer.heads for layer in arch.layers if isinstance(layer.mixer, Attention)}
    for count in sorted(heads):
        if count % c.cp:
            yield Broken("plan", "cp", f"Ulysses cuts by heads: sequence_parallel_size must divide the {count} heads")
    fewest = min((layer.mixer.kv_heads for layer in arch.layers if isinstance(layer.mixer, Attention)), default=c.cp)
    if fewest < c.cp:
        yield Broken("plan", "cp", f"Ulysses needs a KV head for every rank of sequence_parallel_size, and there are {fewest}")
    if t.sequence_length % c.cp:
        yield Broken("training", "sequence_length", f"sequence_parallel_size = {c.cp} must divide the sequence length")
    if t.global_batch % (t.micro_batch * dp):
        yield Broken("training", "global_batch", f"micro_batch·dp = {t.micro_batch}·{dp} = {t.micro_batch * dp:,} must divide "
                     "the global batch", (("training", "micro_batch"), ("cluster", "gpus")))  # fmt: skip
    n = dp * c.cp
    if n % c.zero_hpz_partition_size or choice.gpus % c.zero_hpz_partition_size:
        yield Broken("plan", "zero_hpz_partition_size", f"must divide the {n:,} ranks that ZeRO cuts over")
    yield from _broken_offload(c)
    if c.zero_quantized_gradients and not c.reduce_scatter:
        yield Broken("plan", "reduce_scatter", "zero_quantized_gradients needs it (deepspeed/runtime/zero/stage3.py)")
    if c.zero_stage < 3:
        for key in ("zero_quantized_weights", "zero_quantized_gradients"):
            if getattr(c, key):
                yield Broken("plan", key, "ZeRO++ belongs to zero_stage = 3")
        if c.zero_hpz_partition_size > 1:
            yield Broken("plan", "zero_hpz_partition_size", "ZeRO++ belongs to zero_stage = 3")
    yield from broken_loss(c, t)
    if uses_muon(t):
        yield Broken("training", "optimizer", "how ZeRO shares out Muon's matrices is not predicted here")


def _broken_offload(c: DeepspeedPlan) -> Iterator[Broken]:
    from tokenwire.plan.rules import Broken

    # deepspeed/runtime/zero/offload_config.py and engine.py, _configure_zero_optimizer.
    if c.offload_optimizer != "none" and c.zero_stage == 0:
        yield Broken("plan", "offload_optimizer", "needs zero_stage = 1, 2 or 3")
    if c.offload_optimizer == "nvme" and c.zero_stage < 3:
        yield Broken("plan", "offload_optimizer", "nvme belongs to zero_stage = 3")
    if c.offload_optimizer_ratio < 1 and c.zero_stage < 3:
        yield Broken("plan", "offload_optimizer_ratio", "belongs to zero_stage = 3")
    if c.offload_param != "none" and c.zero_stage < 3:
        yield Broken("plan", "offload_param", "belongs to zero_stage = 3")
