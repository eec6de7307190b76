"""What recipes of Megatron-Bridge for Nemotron 3 say that its tables of runs do not.

Read in NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/nemotronh (v0.4.0 for 26.04, v0.5.0 for 26.06; 26.02 is taken as 26.04),
src/megatron/bridge/perf_recipes/nemotronh (v0.6.0 for 26.08), recipes/nemotronh and models/nemotronh/nemotron_h_bridge.py. All have
HybridEP and CUDA graphs of parts of layers; Super's recipe names no overlap of tensor parallelism. Nemotron 3 Super and Ultra predict two further tokens by one module, run twice, in 16 bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from validation.run import DATA
from validation.tables.table import rows_of

PRESETS = {
    "Nemotron_3_Nano": "nemotron-3-nano",
    "Nemotron_3_Super": "nemotron-3-super",
    "Nemotron_3_Ultra": "nemotron-3-ultra",
}
FILE = "megatron_bridge_hybrid_recompute.csv"
COLUMNS = ("model", "system", "precision", "since", "recompute")
FULLY_SHARDED = {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}
NVLINK_GPUS = 64
"""GPUs over which Ultra's recipe shards; between them gradients are added (perf_recipes/nemotronh/common.py, _GB300_NVLINK_DOMAIN_GPUS)."""
FURTHER = {"mtp_num_layers": 2, "mtp_use_repeated_layer": True, "keep_mtp_spec_in_bf16": True}
LAST_IN_16_BITS = {
    "first_last_layers_bf16": True,
    "num_layers_at_start_in_bf16": 0,
    "num_layers_at_end_in_bf16": 14,
}
"""Super's recipe in 4 bits (training/mixed_precision.py, nemotron_3_super_bf16_with_nvfp4_mixed)."""
ROUTER = {
    "moe_router_enable_expert_bias": True,
    "moe_router_load_balancing_type": "seq_aux_loss",
    "moe_aux_loss_coeff": 1e-4,
    "moe_router_dtype": "fp32",
}


@cache
def _recomputed() -> tuple[dict[str, str], ...]:
    return tuple(rows_of(DATA / FILE, COLUMNS))


def recomputed(model: str, system: str, precision: str, release: str) -> tuple[str, ...]:
    """Return the modules that are recomputed: of the latest recipe that is not later than the release.

    >>> recomputed("Nemotron_3_Nano", "DGX-H100", "bf16", "26.06"), recomputed("Nemotron_3_Nano", "DGX-H100", "bf16", "26.08")
    (('moe', 'layernorm'), ('layernorm',))
    """
    key = (model, system, precision)
    found = [row for row in _recomputed() if (row["model"], row["system"], row["precision"]) == key and row["since"] <= release]
    return tuple(found[-1]["recompute"].split()) if found else ()


def hybrid_options(
    model: str, system: str, precision: str, release: str, ep: int, gpus: int
) -> dict[str, Any]:
    """Return the options of a recipe for one of ``PRESETS``.

    >>> hybrid_options("Nemotron_3_Super", "DGX-B200", "mxfp8", "26.04", 64, 64)["recompute_modules"]
    ('moe_act', 'layernorm')
    """
    out: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True, **ROUTER}
    if ep > 1:
        out |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}
    if again := recomputed(model, system, precision, release):
        out |= {"recompute_granularity": "selective", "recompute_modules": again}
    if model != "Nemotron_3_Nano":
        out |= {**FURTHER, "tp_comm_overlap": False}
    if model == "Nemotron_3_Ultra":
        out |= {**FULLY_SHARDED, "num_distributed_optimizer_instances": max(gpus // NVLINK_GPUS, 1), "cross_entropy_fusion_impl": "native",
                "recompute_granularity": "selective", "recompute_modules": ("moe_act",)}  # fmt: skip
    if model == "Nemotron_3_Super" and precision == "nvfp4":
        out |= LAST_IN_16_BITS
    if precision == "mxfp8" and release >= "26.08" and "GB" in system:
        out |= {
            "use_transformer_engine_op_fuser": True,
            "fp8_dot_product_attention": model != "Nemotron_3_Ultra",
        }
    return out
