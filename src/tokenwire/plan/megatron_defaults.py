"""Where a default of a Megatron option comes from, and what Megatron-LM's training script puts in its place.

The defaults themselves are those of the fields of ``MegatronPlan`` (and, for what shapes memory alone, of ``Software``): they are the
fields of megatron-core 0.16.1's ``TransformerConfig``, ``DistributedDataParallelConfig`` and ``OptimizerConfig``. Megatron-LM 0.16.1,
megatron/training/arguments.py, makes its flags from these, and differs in the options of ``SCRIPT``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tokenwire.plan.base import PlanConfig
    from tokenwire.plan.training import TrainingConfig

VERSION = "megatron-core 0.16.1"


@dataclass(frozen=True)
class Differs:
    """An option with two defaults: ``library`` of the config class, ``script`` of the training script, and which is ``taken`` here."""

    library: object
    script: object
    taken: Literal["library", "script"]
    condition: str = ""


SCRIPT = {
    "grad_reduce_in_fp32": Differs(False, True, "library", "with --bf16 (validate_args)"),
    "align_param_gather": Differs(False, True, "library", "--no-align-param-gather"),
    "check_for_nan_in_loss_and_grad": Differs(None, True, "script", "false with --fp16 and no --loss-scale"),
    "create_attention_mask_in_dataloader": Differs(None, True, "script", "--no-create-attention-mask-in-dataloader"),
    "make_vocab_size_divisible_by": Differs(None, 128, "script"),
    "gradient_accumulation_fusion": Differs(False, True, "script", "--no-gradient-accumulation-fusion"),
    "bias_activation_fusion": Differs(False, True, "script", "--no-bias-gelu-fusion, --no-bias-swiglu-fusion"),
    "masked_softmax_fusion": Differs(False, True, "script", "--no-masked-softmax-fusion"),
}
"""Options of which script and library have different defaults; ``library`` is None where the option is the script's alone."""


def assumed(config: PlanConfig, training: TrainingConfig) -> Iterator[str]:
    """Yield the options that a Megatron plan leaves to a default that script and library do not share, and that change its bytes."""
    if config.dialect == "megatron" and "grad_reduce_in_fp32" not in config.model_fields_set and training.precision == "bf16":
        yield (f"grad_reduce_in_fp32 = false ({VERSION}, DistributedDataParallelConfig); the script of Megatron-LM takes true with --bf16: "
               "give --set plan.grad_reduce_in_fp32=true for such a run")  # fmt: skip
