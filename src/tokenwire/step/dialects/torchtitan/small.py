"""The messages of a few bytes: valid tokens, the gradient norm, loss and tokens for the log.

Source: pytorch/torchtitan v0.2.2, torchtitan/train.py (Trainer.train_step), torchtitan/distributed/utils.py
(clip_grad_norm_, _dist_reduce).
"""

from __future__ import annotations

from collections.abc import Iterator

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
    """Yield the gradient norm: a norm for each parameter tensor, summed over the ranks that hold parts of it."""
    if z.sharded or z.plan.tp > 1:
        held = z.stage_tensors(stage)
        routed = sum(x.part == "experts" for x in held) if z.plan.ep > 1 else 0
        dense = len(held) - routed
        # Routed experts have a mesh of their own, and so a vector of their own.
        for group, by, count in (
            ("fsdp", "fsdp", dense), ("tp", "tp", dense), ("edp_shard", "fsdp", routed), ("ep", "ep", routed), ("etp", "tp", routed),
        ):  # fmt: skip
            yield z.row(
                stage, "all_reduce", group, "optimizer", 1, count, "fp32", by, "norms of gradients", formula="tensors of the stage",
                values=f"{count}", source=f"{_CLIP}; torch nn/utils/clip_grad.py _get_total_norm",
                why="DTensor sums the vector of the tensors' norms before it takes the norm of that vector",
            )  # fmt: skip
    yield z.row(
        stage, "all_reduce", "pp", "optimizer", 1, 1, "fp32", "pp", "gradient norm", formula="1", values="1", source=_CLIP,
        why="stages hold different parameters, and all are clipped by one norm",
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
