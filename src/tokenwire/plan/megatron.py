"""The ``[plan]`` section of a Megatron run: every option by Megatron-Core's own name and default.

Names and defaults: megatron-core 0.16.1, model_parallel_config.py (ModelParallelConfig), transformer/
transformer_config.py (TransformerConfig), distributed/distributed_data_parallel_config.py
(DistributedDataParallelConfig); those of the training script from Megatron-LM, megatron/training/arguments.py. The sizes
are also read by their long names (``tensor_model_parallel_size`` ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tokenwire.config import Positive
from tokenwire.model.architecture import Adapters
from tokenwire.plan.base import PlanConfig, Sharding
from tokenwire.plan.pipelining import PipelineSchedule
from tokenwire.units import ITEM_BYTES

if TYPE_CHECKING:
    from tokenwire.model.architecture import Architecture
    from tokenwire.plan.plan import Plan
    from tokenwire.plan.training import TrainingConfig

LONG_NAMES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "bucket_size": "ddp_bucket_size",
    "accumulate_allreduce_grads_in_fp32": "grad_reduce_in_fp32",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "ddp_pad_buckets_for_high_nccl_busbw": "pad_buckets_for_high_nccl_busbw",
    "ddp_average_in_collective": "average_in_collective",
    "fp8_param": "fp8_param_gather",
}
"""Megatron's longer or other names of the same option, and the name that this section keeps."""

CpCommType = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]


class MegatronPlan(PlanConfig):
    """Options of Megatron-Core that change what is sent, and the sizes of its parallelisms."""

    KEPT: ClassVar[tuple[str, ...]] = (
        "make_vocab_size_divisible_by", "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "overlap_grad_reduce",
        "ddp_bucket_size", "pad_buckets_for_high_nccl_busbw", "grad_reduce_in_fp32", "average_in_collective",
        "reduce_scatter_with_fp32_accumulation", "clip_grad", "log_num_zeros_in_grad", "calculate_per_token_loss", "fp8_recipe",
        "fp8_dot_product_attention", "fp8_multi_head_attention", "fp8_output_proj", "fp4", "moe_token_dispatcher_type",
        "moe_flex_dispatcher_backend", "moe_grouped_gemm", "moe_router_load_balancing_type", "moe_aux_loss_coeff",
        "moe_z_loss_coeff", "moe_router_dtype", "moe_router_enable_expert_bias", "moe_router_num_groups",
        "moe_router_group_topk", "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_token_drop_policy",
        "mtp_num_layers", "mtp_use_repeated_layer", "lora_dim", "lora_target_modules", "create_attention_mask_in_dataloader",
        "check_for_nan_in_loss_and_grad",
    )  # fmt: skip

    dialect: Literal["megatron"] = "megatron"

    # Tensor and sequence parallelism
    sequence_parallel: bool = False
    make_vocab_size_divisible_by: Positive = 128
    cross_entropy_loss_fusion: bool = False
    cross_entropy_fusion_impl: Literal["native", "te"] = "native"

    # Data parallelism and the distributed optimizer
    use_distributed_optimizer: bool = False
    num_distributed_optimizer_instances: Positive = 1
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    align_param_gather: bool = False
    ddp_bucket_size: Positive | None = None
    pad_buckets_for_high_nccl_busbw: bool = False
    grad_reduce_in_fp32: bool = False
    average_in_collective: bool = False
    reduce_scatter_with_fp32_accumulation: bool = False
    clip_grad: float = Field(default=1.0, ge=0)
    log_num_zeros_in_grad: bool = False
    calculate_per_token_loss: bool = False

    # Megatron-FSDP
    use_megatron_fsdp: bool = False
    data_parallel_sharding_strategy: Literal["no_shard", "optim", "optim_grads", "optim_grads_params"] = "no_shard"

    # Pipeline parallelism
    decoder_first_pipeline_num_layers: Positive | None = None
    decoder_last_pipeline_num_layers: Positive | None = None
    account_for_embedding_in_pipeline_split: bool = False
    account_for_loss_in_pipeline_split: bool = False
    pipeline_model_parallel_layout: str | tuple[tuple[str, ...], ...] | None = None
    microbatch_group_size_per_vp_stage: Positive | None = None
    variable_seq_lengths: bool = False

    # Context parallelism
    cp_comm_type: CpCommType | tuple[CpCommType, ...] = "p2p"
    hierarchical_context_parallel_sizes: tuple[Positive, ...] | None = None

    # Activation recomputation
    recompute_granularity: Literal["full", "selective"] | None = None
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_num_layers: Positive | None = None
    recompute_modules: tuple[str, ...] = ("core_attn",)
    distribute_saved_activations: bool = False

    # Dropout of the attention's probabilities, and of what is added to the residual
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.1, ge=0, lt=1)

    # fp8 (with training.precision = "fp8")
    fp8_recipe: Literal["delayed", "tensorwise", "mxfp8", "blockwise"] = "delayed"
    fp8_param_gather: bool = False
    reuse_grad_buf_for_mxfp8_param_ag: bool = False
    fp8_dot_product_attention: bool = False
    fp8_multi_head_attention: bool = False
    fp8_output_proj: bool = False
    fp4: Literal["e2m1"] | None = None
    tp_only_amax_red: bool = False
    first_last_layers_bf16: bool = False
    num_layers_at_start_in_bf16: int = Field(default=1, ge=0)
    num_layers_at_end_in_bf16: int = Field(default=1, ge=0)

    # Mixture of experts
    moe_token_dispatcher_type: Literal["allgather", "alltoall", "flex"] = "allgather"
    moe_flex_dispatcher_backend: Literal["deepep", "hybridep"] = "deepep"
    moe_grouped_gemm: bool = False
    moe_router_load_balancing_type: Literal[
        "aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"
    ] = "aux_loss"  # fmt: skip
    moe_aux_loss_coeff: float = 0.0
    moe_z_loss_coeff: float | None = None
    moe_router_dtype: Literal["fp32", "fp64"] | None = None
    moe_router_enable_expert_bias: bool = False
    moe_router_num_groups: Positive | None = None
    moe_router_group_topk: Positive | None = None
    moe_expert_capacity_factor: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    moe_pad_expert_input_to_capacity: bool = False
    moe_token_drop_policy: Literal["probs", "position"] = "probs"
    overlap_moe_expert_parallel_comm: bool = False
    use_transformer_engine_op_fuser: bool = False
    moe_paged_stash: bool = False

    # Multi-token prediction
    mtp_num_layers: Positive | None = None
    mtp_use_repeated_layer: bool = False
    keep_mtp_spec_in_bf16: bool = False

    # Low-rank adapters (Megatron-Bridge, LoRA: dim and target_modules); the model's own weights are frozen
    lora_dim: Positive | None = None
    lora_target_modules: tuple[str, ...] = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")

    # The training script (Megatron-LM)
    create_attention_mask_in_dataloader: bool = True
    tp_comm_overlap: bool = False
    check_for_nan_in_loss_and_grad: bool = True

    @model_validator(mode="before")
    @classmethod
    def _short_names(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {LONG_NAMES.get(str(key), key): value for key, value in values.items()}

    @property
    def expert_tp(self) -> int:
        """Return the size of expert tensor parallelism: ``etp``, or ``tp`` where it is not given."""
        return self.etp if self.etp is not None else self.tp

    def in_16_bits(self, layer: int, layers: int) -> bool:
        """Return whether the products of a layer stay in 16 bits where others have 8: the first and last of all ``layers``.

        megatron-core 0.16.1, fp8_utils.py, is_first_last_bf16_layer.

        >>> [MegatronPlan(first_last_layers_bf16=True).in_16_bits(i, 4) for i in range(4)]
        [True, False, False, True]
        """
        between = self.num_layers_at_start_in_bf16 <= layer < layers - self.num_layers_at_end_in_bf16
        return self.first_last_layers_bf16 and not between

    @property
    def mtp_modules(self) -> int:
        """Return how many modules of multi-token prediction have weights of their own: one that is run again and again, or all.

        >>> MegatronPlan(mtp_num_layers=2, mtp_use_repeated_layer=True).mtp_modules
        1
        """
        return min(self.mtp_num_layers or 0, 1) if self.mtp_use_repeated_layer else self.mtp_num_layers or 0

    @property
    def adapters(self) -> Adapters | None:
        """Return the adapters that are trained, None where the model itself is."""
        return None if self.lora_dim is None else Adapters(self.lora_dim, self.lora_target_modules)

    def gradient_dtype(self, training: TrainingConfig) -> str:
        """Return the dtype of the gradient buffer, which is what is reduced."""
        return "fp32" if self.grad_reduce_in_fp32 or training.precision == "fp32" else "bf16"

    @classmethod
    def reducing_in(cls, dtype: str) -> dict[str, Any]:
        """Return ``grad_reduce_in_fp32``: Megatron knows that, or the type of parameters."""
        return {"grad_reduce_in_fp32": dtype == "fp32"}

    def trained(self, arch: Architecture) -> Architecture:
        """Return the model as the plan trains it."""
        modules, adapters = self.mtp_modules, self.adapters
        same = arch.mtp_layers == modules and arch.adapters == adapters
        return arch if same else replace(arch, mtp_layers=modules, adapters=adapters)

    def cp_comm_of(self, layer: int) -> CpCommType:
        """Return how attention of a layer passes the sequence on: ``cp_comm_type``, which may be a list by layer.

        >>> MegatronPlan(cp_comm_type=("p2p", "a2a")).cp_comm_of(1)
        'a2a'
        """
        return self.cp_comm_type if isinstance(self.cp_comm_type, str) else self.cp_comm_type[layer]

    @property
    def cp_comm_types(self) -> tuple[CpCommType, ...]:
        """Return the kinds of ``cp_comm_type`` that the layers have, each once."""
        return (self.cp_comm_type,) if isinstance(self.cp_comm_type, str) else tuple(dict.fromkeys(self.cp_comm_type))

    def resolve(self, training: TrainingConfig, arch: Architecture, gpus: int) -> Plan:
        """Return the checked plan; see ``megatron_rules`` for what is checked."""
        from tokenwire.plan.megatron_layout import resolve

        return resolve(self, training, arch, gpus)

    def pipeline_schedule(self, plan: Plan) -> PipelineSchedule:
        """Return 1F1B, or with virtual stages its interleaved form (megatron-core 0.16.1, pipeline_parallel/schedules.py)."""
        if plan.vpp == 1:
            return PipelineSchedule("1f1b")
        return PipelineSchedule("interleaved-1f1b", self.microbatch_group_size_per_vp_stage or plan.pp)

    @property
    def gathers_weights(self) -> bool:
        """Return whether Megatron-FSDP shards the parameters."""
        return self.use_megatron_fsdp

    def sharding(self, plan: Plan, *, expert: bool) -> Sharding:
        """Return the distributed optimizer's cut of the optimizer state, over one of its instances; of all of it with Megatron-FSDP."""
        size = ITEM_BYTES[self.gradient_dtype(plan.training)]
        if not self.use_distributed_optimizer:
            return Sharding(gradient_bytes=size)
        ranks = plan.edp if expert else plan.dp * plan.cp
        cut = ranks // self.num_distributed_optimizer_instances
        every = cut if self.use_megatron_fsdp else 1
        return Sharding(weights=every, gradients=every, optimizer=cut, gradient_bytes=size)
