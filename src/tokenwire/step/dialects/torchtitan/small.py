"""The messages of a few bytes: valid tokens, the gradient norm, loss and tokens for the log.

Source: pytorch/torchtitan v0.2.2, torchtitan/train.py (Trainer.train_step), torchtitan/distributed/utils.py
(clip_grad_norm_, _dist_reduce).
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.architecture import Experts
from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.operation import Operation

_TRAIN = "torchtitan train.py Trainer.train_step"
_CLIP = "torchtitan distributed/utils.py clip_grad_norm_"


def data(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the count of valid tokens, over data-parallel ranks."""
    yield z.row(
        stage, "all_reduce", "dp", "data", 1, 1, "int64", "dp", "valid tokens", formula="1", values="1", source=_TRAIN,
        why="the loss is divided by the tokens of the whole batch, padding left out",
    )  # fmt: skip


def optimizer(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the gradient norm (a norm for each parameter tensor, summed over the ranks that hold parts of it) and what balances experts."""
    if z.sharded or z.plan.tp > 1:
        held = z.stage_tensors(stage)
        routed = sum(x.part == "experts" for x in held) if z.plan.ep > 1 else 0
        yield from _norms(z, stage, (("fsdp", "fsdp"), ("tp", "tp")), len(held) - routed)
        # Routed experts have a mesh of their own, and so a vector of their own.
        yield from _norms(z, stage, _expert_groups(z), routed)
    yield z.row(
        stage, "all_reduce", "pp", "optimizer", 1, 1, "fp32", "pp", "gradient norm", formula="1", values="1", source=_CLIP,
        why="stages hold different parameters, and all are clipped by one norm",
    )  # fmt: skip
    yield from _balance(z, stage)


def _norms(z: Sizes, stage: Stage, groups: tuple[tuple[str, str], ...], count: int) -> Iterator[Operation]:
    for group, by in groups:
        yield z.row(
            stage, "all_reduce", group, "optimizer", 1, count, "fp32", by, "norms of gradients", formula="tensors of the stage",
            values=f"{count}", source=f"{_CLIP}; torch nn/utils/clip_grad.py _get_total_norm",
            why="DTensor sums the vector of the tensors' norms before it takes the norm of that vector",
        )  # fmt: skip


def _expert_groups(z: Sizes) -> tuple[tuple[str, str], ...]:
    # Sums over two axes of a mesh become one where a flattened mesh of just these ranks exists; torchtitan flattens one, that of
    # the loss (torch distributed/tensor/_redistribute.py, _optimize_transform_infos).
    if z.plan.tp == 1 and z.replicas == 1:
        return (("dp_cp", "fsdp"),)
    return ("edp_shard", "fsdp"), ("ep", "ep"), ("etp", "tp")


def _balance(z: Sizes, stage: Stage) -> Iterator[Operation]:
    feeds = [z.arch.layers[i].feed_forward for i in stage.layers]
    counts = [feed.count for feed in feeds if isinstance(feed, Experts)]
    if z.config.load_balance_coeff and counts:
        yield z.row(
            stage, "all_reduce", "dp_cp", "optimizer", 1, sum(counts), "fp32", "ep", "tokens of each expert", formula="L·E",
            values=f"{len(counts)}·{counts[0]}", layers=len(counts),
            source="torchtitan components/optimizer.py build_optimizers_with_moe_load_balancing",
            why="the router's bias is moved towards experts that all ranks together used too little (load_balance_coeff)",
        )  # fmt: skip


def loss(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the loss for the log, where it is written every step."""
    if z.config.log_freq > 1:
        return
    for what, count, dtype in (("mean and largest loss", 2, "fp32"), ("tokens seen", 1, "int64")):
        yield z.row(
            stage, "all_reduce", "dp_cp", "loss", count, 1, dtype, "dp", what, formula="1", values="1", source=_TRAIN,
            why="the log shows figures of all ranks",
        )  # fmt: skip
