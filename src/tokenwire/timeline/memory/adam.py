"""Bytes of the optimizer's state of one parameter: a master copy and the moments, in what they are kept and where.

Mixed-precision Adam keeps 4 + 4 + 4 bytes (Rajbhandari et al., ZeRO, 2020, section 3.1). Megatron's precision-aware optimizer keeps
each in a dtype of its own, of a master copy in fp32 beside bf16 weights only the 16 bits that these have not, and may leave a
fraction of the state on the host (megatron-core 0.16.1, optimizer/optimizer_config.py, cpu_offloading/hybrid_optimizer.py).
"""

from __future__ import annotations

from tokenwire.plan import TrainingConfig
from tokenwire.timeline.memory.software import Software

MOMENTS_OF = {"adamw": 2, "adam": 2, "sgd": 1, "muon": 2, "dist_muon": 2}
"""Moments that an optimizer keeps of each parameter; beside Muon, which keeps one of its matrices, AdamW has the rest."""
ITEM = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


def state_bytes(training: TrainingConfig, software: Software) -> int:
    """Return the bytes of master copy and moments of a parameter.

    >>> state_bytes(TrainingConfig(), Software())
    12
    >>> state_bytes(TrainingConfig(), Software(use_precision_aware_optimizer=True, exp_avg_dtype="bf16", exp_avg_sq_dtype="bf16"))
    6
    """
    moments = MOMENTS_OF[training.optimizer]
    if not software.use_precision_aware_optimizer:
        return 4 * moments + (4 if training.precision != "fp32" else 0)
    kept = (software.exp_avg_dtype, software.exp_avg_sq_dtype)[:moments]
    return _master_bytes(training, software) + sum(ITEM[dtype] for dtype in kept)


def _master_bytes(training: TrainingConfig, software: Software) -> int:
    if training.precision == "fp32":
        return 0
    remainders = (
        training.precision in ("bf16", "fp8")
        and software.main_params_dtype == "fp32"
        and software.store_param_remainders
    )
    return 2 if remainders else ITEM[software.main_params_dtype]


def on_device(size: int, software: Software) -> int:
    """Return what of a state of ``size`` bytes stays on the GPU.

    >>> on_device(1000, Software(use_precision_aware_optimizer=True, optimizer_offload_fraction=0.75))
    250
    """
    return round(size * (1 - software.optimizer_offload_fraction))
