"""What Megatron refuses of options that do not shape the grid: optimizer, recomputation, context, experts, fp8.

Rules: megatron-core 0.16.1, transformer/transformer_config.py (TransformerConfig.__post_init__), transformer/moe/router.py,
token_dispatcher.py and shared_experts.py, ssm/mamba_context_parallel.py; Megatron-LM 0.16.1, megatron/training/arguments.py
(validate_args); TransformerEngine 2.18, context_parallel.py (attn_forward_func_with_cp), pytorch/tensor/utils.py
(replace_raw_data), pytorch/utils.py (assert_dim_for_fp8_exec).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tokenwire.model.adapters import MODULES as ADAPTED
from tokenwire.model.architecture import (
    Architecture,
    Attention,
    DeltaNet,
    Experts,
    FeedForward,
    LatentAttention,
    StateSpace,
)
from tokenwire.plan.megatron import MegatronPlan
from tokenwire.plan.megatron_stages import chunk_sizes
from tokenwire.plan.muon import uses_muon
from tokenwire.plan.rules import Broken, Choice

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What ``recompute_modules`` may name."""


def options(choice: Choice, c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    """Yield the rules of these options that the choice breaks."""
    yield from _optimizer(choice, c)
    if uses_muon(choice.training) and c.use_distributed_optimizer:
        # megatron-core 0.16.1, optimizer/layer_wise_optimizer.py: keep all options of the distributed optimizer off.
        yield Broken("plan", "use_distributed_optimizer", "Muon needs whole matrices: dist_muon shares out their optimizer state instead",
                     (("training", "optimizer"),))  # fmt: skip
    if uses_muon(choice.training) and choice.training.precision == "fp16":
        yield Broken("training", "precision", "Megatron's Muon has no loss scaling, which fp16 needs (optimizer/muon.py)")
    yield from _fully_sharded(c)
    yield from _recomputation(choice, c, arch)
    yield from _next_tokens(c, arch)
    yield from _adapters(c, arch)
    yield from _positions(choice, arch)
    if c.cp > 1:
        yield from _context(c, arch)
    if any(isinstance(layer.feed_forward, Experts) for layer in arch.kinds):
        yield from _experts(c, arch)
    yield from _fp8(choice, c, arch)
    if c.tp_comm_overlap and not c.sequence_parallel:
        yield Broken("plan", "tp_comm_overlap", "needs sequence_parallel = true", (("plan", "sequence_parallel"),))


def _optimizer(choice: Choice, c: MegatronPlan) -> Iterator[Broken]:
    if choice.training.optimizer == "sgd" and c.use_distributed_optimizer:
        # distrib_optimizer.py, DistributedOptimizer.__init__.
        yield Broken("training", "optimizer", "the distributed optimizer is of Adam only", (("plan", "use_distributed_optimizer"),), ("adamw",))
    if c.average_in_collective and c.calculate_per_token_loss:
        # distributed_data_parallel.py, DistributedDataParallel.__init__.
        yield Broken("plan", "average_in_collective", "does not go with calculate_per_token_loss, which divides by all tokens")
    yield from _fp32_accumulation(c)
    if c.overlap_param_gather and not c.use_distributed_optimizer:
        yield Broken("plan", "overlap_param_gather", "needs use_distributed_optimizer = true")
    elif c.overlap_param_gather and not c.overlap_grad_reduce:
        yield Broken("plan", "overlap_param_gather", "needs overlap_grad_reduce = true")


def _fp32_accumulation(c: MegatronPlan) -> Iterator[Broken]:
    # param_and_grad_buffer.py, start_grad_sync; reduce_scatter_with_fp32_accumulation.py.
    key = "reduce_scatter_with_fp32_accumulation"
    if not c.reduce_scatter_with_fp32_accumulation:
        return
    if c.num_distributed_optimizer_instances > 1:
        yield Broken("plan", key, "needs num_distributed_optimizer_instances = 1")
    if c.use_distributed_optimizer and c.average_in_collective:
        yield Broken("plan", key, "adds, and does not go with average_in_collective")
    if c.overlap_grad_reduce and not c.use_distributed_optimizer:
        yield Broken("plan", key, "with overlap_grad_reduce needs use_distributed_optimizer = true")


def _fully_sharded(c: MegatronPlan) -> Iterator[Broken]:
    whole = "optim_grads_params"
    if not c.use_megatron_fsdp:
        if c.data_parallel_sharding_strategy != "no_shard":
            yield Broken("plan", "data_parallel_sharding_strategy", "needs use_megatron_fsdp = true", (("plan", "use_megatron_fsdp"),))
        return
    if c.data_parallel_sharding_strategy != whole:
        yield Broken("plan", "data_parallel_sharding_strategy", f"Megatron-FSDP is predicted with {whole} only", values=(whole,))
    if not c.use_distributed_optimizer:
        yield Broken("plan", "use_megatron_fsdp", "needs use_distributed_optimizer = true", (("plan", "use_distributed_optimizer"),))
    if c.pp > 1:
        yield Broken("plan", "use_megatron_fsdp", "is predicted without a pipeline only", (("plan", "pp"),))


def _recomputation(choice: Choice, c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    if c.recompute_granularity == "full" and (c.recompute_method is None or c.recompute_num_layers is None):
        missing = "recompute_method" if c.recompute_method is None else "recompute_num_layers"
        yield Broken("plan", "recompute_granularity", f"full recomputation needs {missing}", (("plan", missing),))
    elif c.recompute_granularity == "full" and c.recompute_method == "uniform" and c.recompute_num_layers:
        for count in dict.fromkeys(size for rank in chunk_sizes(c, len(arch.layers)) for size in rank):
            if count % c.recompute_num_layers:
                yield Broken("plan", "recompute_num_layers", f"uniform recomputation goes by whole groups: it must divide "
                             f"the {count} layers of a stage")  # fmt: skip
                break
    elif c.recompute_granularity == "selective":
        yield from _selective(choice, c, arch)
    if c.distribute_saved_activations and c.sequence_parallel:
        yield Broken("plan", "distribute_saved_activations", "must be false with sequence parallelism")
    elif c.distribute_saved_activations and (c.tp == 1 or c.recompute_granularity != "full"):
        yield Broken("plan", "distribute_saved_activations", "needs tp above 1 and full recomputation")


def _selective(choice: Choice, c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    for key in ("recompute_num_layers", "recompute_method"):
        if getattr(c, key) is not None:
            yield Broken("plan", key, "selective recomputation goes by modules, not by layers", values=(None,))
    unknown = [name for name in c.recompute_modules if name not in MODULES]
    known = tuple(name for name in c.recompute_modules if name in MODULES) or ("core_attn",)
    if unknown:
        yield Broken("plan", "recompute_modules", f"{unknown[0]} is none of {', '.join(MODULES)}", values=(known,))
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in arch.kinds)
    refused: dict[str, str | None] = {
        "moe_act": None if c.moe_grouped_gemm else "needs moe_grouped_gemm = true",
        "mla_up_proj": None if latent else "is of latent attention, which the model has not",
    }
    if any(isinstance(layer.feed_forward, FeedForward) and layer.feed_forward.bias for layer in arch.kinds):
        # tensor_parallel/random.py, CheckpointFunction: the bias, which the function returns as it is, is taken for its result.
        refused["mlp"] = "does not go with a bias: the backward of Megatron 0.16.1 never ends"
    if choice.training.precision == "fp8" and c.fp8_recipe == "delayed":
        refused |= dict.fromkeys(("moe_act", "layernorm"), "does not go with delayed scaling of fp8")
    for name, rule in refused.items():
        if rule and name in c.recompute_modules:
            rest = tuple(other for other in known if other != name) or ("core_attn",)
            yield Broken("plan", "recompute_modules", f"{name} {rule}", values=(rest,))


def _next_tokens(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    if not c.mtp_num_layers:
        for key in ("mtp_use_repeated_layer", "keep_mtp_spec_in_bf16"):
            if getattr(c, key):
                yield Broken("plan", key, "needs mtp_num_layers")
        return
    if c.recompute_granularity == "full" and c.recompute_method == "uniform" and c.recompute_num_layers != 1:
        yield Broken("plan", "recompute_num_layers", "must be 1 with multi-token prediction")
    if arch.positions in ("learned", "sinusoidal"):
        yield Broken("plan", "mtp_num_layers", "multi-token prediction goes with rotary positions or none", values=(None,))


def _adapters(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    if c.lora_dim is None:
        if c.lora_target_modules != MegatronPlan.model_fields["lora_target_modules"].default:
            yield Broken("plan", "lora_target_modules", "needs lora_dim")
        return
    named = c.lora_target_modules
    unknown = next((name for name in named if name not in ADAPTED), "")
    if unknown:
        known = tuple(name for name in named if name in ADAPTED) or ("linear_qkv",)
        yield Broken("plan", "lora_target_modules", f"{unknown} is none of {', '.join(ADAPTED)}", values=(known,))
    elif "linear_qkv" not in named:
        # Else the backward ends within the first layer.
        yield Broken("plan", "lora_target_modules", "adapters are predicted with linear_qkv among them only", values=(("linear_qkv", *named),))
    if c.lora_dim % c.tp:
        yield Broken("plan", "lora_dim", f"must be a multiple of tp = {c.tp}", values=(c.lora_dim // c.tp * c.tp or c.tp,))
    plain = all(isinstance(layer.mixer, Attention) and isinstance(layer.feed_forward, FeedForward) for layer in arch.kinds)
    if not plain:
        yield Broken("plan", "lora_dim", "adapters are predicted in layers of attention and a dense feed-forward part only", values=(None,))
    for key in ("tp_comm_overlap", "mtp_num_layers"):
        if getattr(c, key):
            yield Broken("plan", key, "does not go with adapters here")


def _positions(choice: Choice, arch: Architecture) -> Iterator[Broken]:
    length = choice.training.sequence_length
    if arch.positions == "learned" and arch.max_positions and length > arch.max_positions:
        yield Broken("training", "sequence_length", f"the model has {arch.max_positions:,} learned positions", values=(arch.max_positions,))


def _context(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    sizes, kinds = c.hierarchical_context_parallel_sizes, c.cp_comm_types
    if not isinstance(c.cp_comm_type, str):
        yield from _by_layer(c, len(arch.layers))
    if ("a2a+p2p" in kinds and (sizes is None or len(sizes) != 2)) or (sizes and math.prod(sizes) != c.cp):
        halves = next((n, c.cp // n) for n in range(int(c.cp**0.5), 0, -1) if c.cp % n == 0)
        yield Broken("plan", "hierarchical_context_parallel_sizes", f"a2a+p2p needs two sizes whose product is cp = {c.cp}",
                     values=(halves,))  # fmt: skip
        return
    if not isinstance(c.cp_comm_type, str) and len(c.cp_comm_type) != len(arch.layers):
        return
    for mixer, kind in dict.fromkeys((layer.mixer, c.cp_comm_of(index)) for index, layer in enumerate(arch.layers)):
        among = c.cp if kind == "a2a" else sizes[0] if kind == "a2a+p2p" and sizes else 1
        if isinstance(mixer, Attention):
            yield from _attention(c, mixer, kind, among)
        elif isinstance(mixer, LatentAttention) and mixer.heads // c.tp % among:
            yield Broken("plan", "cp", f"all_to_all needs its {among} ranks to divide the {mixer.heads // c.tp} heads of a tensor-parallel rank")
        elif isinstance(mixer, DeltaNet):
            yield Broken("plan", "cp", "gated delta nets do not go with context parallelism")
        elif isinstance(mixer, StateSpace):
            yield from _state_space(c, mixer)


def _by_layer(c: MegatronPlan, layers: int) -> Iterator[Broken]:
    said = tuple(c.cp_comm_type)
    if len(said) != layers:
        full = (*said[:layers], *said[-1:] * (layers - len(said))) or ("p2p",) * layers
        yield Broken("plan", "cp_comm_type", f"a list has one word a layer: {layers}, not {len(said)}", values=(full,))
    elif c.mtp_num_layers:
        yield Broken("plan", "cp_comm_type", "a list says nothing of the layers of multi-token prediction", values=said[-1:])


def _attention(c: MegatronPlan, mixer: Attention, kind: str, among: int) -> Iterator[Broken]:
    heads, kv_heads = mixer.heads // c.tp, max(mixer.kv_heads // c.tp, 1)
    for what, count in (("heads", heads), ("KV heads", kv_heads)):
        if count % among:
            yield Broken("plan", "cp", f"all_to_all needs its {among} ranks to divide the {count} {what} of a tensor-parallel rank",
                         (("plan", "cp_comm_type"),))  # fmt: skip
    if mixer.window is not None and kind not in ("a2a", "all_gather"):
        yield Broken("plan", "cp_comm_type", "attention to a window goes with a2a and all_gather only", (("plan", "cp"),), ("all_gather", "a2a"))
    if mixer.sinks and kind != "a2a":
        yield Broken("plan", "cp_comm_type", "attention with sinks goes with a2a only", (("plan", "cp"),), ("a2a",))


def _state_space(c: MegatronPlan, mixer: StateSpace) -> Iterator[Broken]:
    heads, groups = mixer.heads // c.tp, mixer.groups // c.tp
    if heads % c.cp:
        yield Broken("plan", "cp", f"must divide the {heads} state-space heads of a tensor-parallel rank")
    elif groups and (c.cp % groups if groups < c.cp else groups % c.cp):
        yield Broken("plan", "cp", f"must divide the {groups} state-space groups of a tensor-parallel rank, or be a multiple of them")


def _experts(c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    dispatcher, balancing = c.moe_token_dispatcher_type, c.moe_router_load_balancing_type
    if dispatcher == "allgather" and c.variable_seq_lengths:
        yield Broken("plan", "variable_seq_lengths", 'needs moe_token_dispatcher_type = "alltoall"')
    if dispatcher == "flex" and c.expert_tp * c.ep == 1:
        yield Broken("plan", "moe_token_dispatcher_type", "flex needs etp·ep above 1", values=("alltoall",))
    if c.moe_pad_expert_input_to_capacity and c.moe_expert_capacity_factor is None:
        yield Broken("plan", "moe_pad_expert_input_to_capacity", "needs moe_expert_capacity_factor")
    elif c.moe_pad_expert_input_to_capacity and dispatcher == "flex" and c.moe_flex_dispatcher_backend == "deepep":
        yield Broken("plan", "moe_pad_expert_input_to_capacity", "does not go with DeepEP")
    if balancing == "sinkhorn" and (c.moe_aux_loss_coeff or c.moe_expert_capacity_factor is not None):
        with_it = "an auxiliary loss" if c.moe_aux_loss_coeff else "a capacity of experts"
        yield Broken("plan", "moe_router_load_balancing_type", f"sinkhorn does not go with {with_it}", values=("none",))
    dense_bias = any(isinstance(x.mixer, (Attention, LatentAttention)) and x.mixer.output_bias for x in arch.kinds)
    if dense_bias and any(isinstance(x.feed_forward, Experts) and x.feed_forward.shared for x in arch.kinds):
        # shared_experts.py: one option is for all biases, and shared experts have none.
        yield Broken("plan", "dialect", "Megatron has no shared experts beside projections with a bias")


def _fp8(choice: Choice, c: MegatronPlan, arch: Architecture) -> Iterator[Broken]:
    in_attention = [key for key in ("fp8_dot_product_attention", "fp8_multi_head_attention") if getattr(c, key)]
    if c.fp4:
        yield Broken("plan", "fp4", "what is gathered in 4 bits is not predicted: its kernels run on Blackwell only", values=(None,))
    if choice.training.precision != "fp8":
        for key in (*in_attention, *(["fp8_param_gather"] if c.fp8_param_gather else [])):
            yield Broken("plan", key, 'needs training.precision = "fp8"')
        return
    if in_attention and c.cp > 1:
        yield Broken("plan", in_attention[0], "what attention in fp8 passes along the sequence is not predicted (without context "
                     "parallelism it sends nothing)", (("plan", "cp"),))  # fmt: skip
    if c.fp8_param_gather and not c.use_distributed_optimizer:
        yield Broken("plan", "fp8_param_gather", "needs use_distributed_optimizer = true")
    if c.reuse_grad_buf_for_mxfp8_param_ag and not (c.fp8_param_gather and c.fp8_recipe == "mxfp8"):
        yield Broken("plan", "reuse_grad_buf_for_mxfp8_param_ag", 'needs fp8_param_gather = true and fp8_recipe = "mxfp8"')
    elif c.fp8_param_gather and c.fp8_recipe == "mxfp8" and not c.reuse_grad_buf_for_mxfp8_param_ag:
        yield Broken("plan", "reuse_grad_buf_for_mxfp8_param_ag", "parameters in mxfp8 are gathered in the buffer of the gradients only")
    if c.first_last_layers_bf16:
        yield from _first_last(c, len(arch.layers))
    parts = c.cp * (c.tp if c.sequence_parallel else 1)
    rows = choice.training.micro_batch * choice.training.sequence_length // parts
    block = 32 if c.fp8_recipe == "mxfp8" else 8
    if rows % block:
        yield Broken("training", "sequence_length", f"fp8 needs the {rows:,} rows of a rank to be a multiple of {block}",
                     values=tuple(parts * block * n for n in range(max(rows // block, 1), 0, -1)))  # fmt: skip
    if arch.hidden_size % 16:
        yield Broken("training", "precision", f"fp8 needs the hidden size of {arch.hidden_size:,} to be a multiple of 16", values=("bf16",))


def _first_last(c: MegatronPlan, layers: int) -> Iterator[Broken]:
    if c.fp8_recipe == "delayed":
        yield Broken("plan", "first_last_layers_bf16", "does not go with delayed scaling", (("plan", "fp8_recipe"),))
    most = layers // c.pp
    for key in ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"):
        if getattr(c, key) > most:
            yield Broken("plan", key, f"must be at most the {most} layers of a stage")
