"""The small messages that tables forget: input data, the norm of the gradients, overflow, loss, agreement.

Those of the training script are from Megatron-LM: megatron/training/utils.py (get_batch_on_this_tp_rank,
logical_and_across_model_parallel_group, reduce_max_stat_across_model_parallel_group), megatron/training/training.py
(train_step).
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.gradients import has_optimizer_of_experts
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Operation, Role

_BATCH = "Megatron-LM megatron/training/utils.py get_batch_on_this_tp_rank"


def data(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the broadcasts of a micro-batch from the first rank of the tensor-parallel group, which read it."""
    if sizes.plan.tp == 1 or not (stage.has_embedding or stage.has_head or stage.has_next_tokens):
        return
    # A stage with multi-token prediction gets all of it: it embeds tokens too.
    last = stage.has_head or stage.has_next_tokens
    first = stage.has_embedding or stage.has_next_tokens
    b, s = sizes.plan.training.micro_batch, sizes.plan.training.sequence_length
    items: tuple[tuple[str, str, int, str, Role, bool], ...] = (
        ("tokens", "int64", b * s, "b·s", "embedding", first),
        ("labels", "int64", b * s, "b·s", "loss", last),
        ("loss mask", "fp32", b * s, "b·s", "loss", last),
        ("attention mask", "bool", b * s * s, "b·1·s·s", "layers", sizes.config.create_attention_mask_in_dataloader),
        ("position ids", "int64", b * s, "b·s", "embedding", first),
        ("number of packed sequences", "int64", 1, "1", "embedding", first),
    )
    for what, dtype, elements, formula, role, wanted in items:
        if wanted:
            yield sizes.row(
                stage.index, "broadcast", "tp", "data", sizes.plan.micro_batches, elements, what, formula=formula,
                dtype=dtype, parallelism="tp", source=_BATCH, role=role,
                why="one rank of the tensor-parallel group reads the data; the others get it from there",
            )  # fmt: skip


def optimizer(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the norm of the gradients, the check for overflow, and the count of tokens."""
    config, i = sizes.config, stage.index
    fp16 = sizes.plan.training.precision == "fp16"
    experts = has_optimizer_of_experts(sizes, stage)
    groups = _statistics_groups(sizes, experts)
    source = "megatron-core optimizer/"
    if fp16:
        # Each optimizer of the chain checks for itself, also where their groups are the same.
        chain = groups if len(groups) == 2 or not experts else groups * 2
        for group in dict.fromkeys(chain):
            yield sizes.row(
                i, "all_reduce", group, "optimizer", chain.count(group), 1, "found infinity", formula="1", dtype="fp32",
                parallelism="dp", source=f"{source}optimizer.py _unscale_main_grads_and_check_for_nan",
                why="if any rank overflowed, all of them skip the step",
            )  # fmt: skip
    for group in groups:
        yield sizes.row(
            i, "all_reduce", group, "optimizer", 1, 1, "gradient norm", formula="1", dtype="fp32", parallelism="dp",
            source=f"{source}clip_grads.py get_grad_norm_fp32",
            why="clipping needs the norm over every parameter, and each rank has a part of them",
        )  # fmt: skip
        if config.log_num_zeros_in_grad:
            yield sizes.row(
                i, "all_reduce", group, "optimizer", 1, 1, "zeros among the gradients", formula="1", dtype="fp32",
                parallelism="dp", source=f"{source}clip_grads.py count_zeros_fp32", why="for the log",
            )  # fmt: skip
    if config.calculate_per_token_loss:
        finalize = "megatron-core distributed/finalize_model_grads.py finalize_model_grads"
        yield sizes.row(i, "broadcast", "pp", "gradients", 1, 1, "number of tokens", formula="1", dtype="int32",
                        parallelism="pp", source=finalize, why="only the last stage counted them")  # fmt: skip
        yield sizes.row(i, "all_reduce", sizes.data_group, "gradients", 1, 1, "number of tokens", formula="1",
                        dtype="int32", parallelism="dp", source=finalize,
                        why="gradients are divided by the tokens of the whole batch")  # fmt: skip


def _statistics_groups(sizes: Sizes, experts: bool) -> list[str]:
    if sizes.config.use_distributed_optimizer:
        return ["world" if sizes.config.num_distributed_optimizer_instances == 1 else "optimizer_instance"]
    if sizes.plan.training.optimizer == "dist_muon":
        return ["world"]  # optimizer/layer_wise_optimizer.py, get_grad_norm
    # Two optimizers, for dense parameters and experts, each with its model-parallel group.
    return ["mp", "tp_ep_pp"] if experts else ["mp"]


def loss(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield what the training script says for its log: the mean loss, and agreement that the step was taken."""
    i, train_step = stage.index, "Megatron-LM megatron/training/training.py train_step"
    if stage.has_head:
        yield sizes.row(
            i, "all_reduce", sizes.data_group, "loss", 1, 2, "loss and number of tokens", formula="2", dtype="fp32",
            parallelism="dp", source=train_step, why="the loss that is printed is the mean over all replicas",
        )  # fmt: skip
    yield sizes.row(i, "all_reduce", "mp", "loss", 1, 1, "step was taken", formula="1", dtype="int32", parallelism="tp",
                    source=f"{train_step}, logical_and_across_model_parallel_group",
                    why="the step counts only if it succeeded on every rank of the model")  # fmt: skip
    logged = 1 + sizes.config.log_num_zeros_in_grad
    yield sizes.row(i, "all_reduce", "mp", "loss", logged, 1, "gradient norm for the log", formula="1", dtype="fp32",
                    parallelism="tp", source=f"{train_step}, reduce_max_stat_across_model_parallel_group",
                    why="the rank that writes the log may have no optimizer of its own")  # fmt: skip
