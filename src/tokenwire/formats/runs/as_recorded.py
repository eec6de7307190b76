"""Rows of golden values whose case had other arguments when they were recorded than it has now, by the history of its files.

Source: NVIDIA/Megatron-LM, the history of tests/functional_tests/test_cases: ``model_config.yaml`` at the commit that recorded a
row against the newest one, for arguments that change tensors, messages or memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COPY = "its file is a copy of gpt3_15b_8t_release_sm's, which has another plan"
ANOTHER = {
    ("gpt3_15b_8t_release_sm_gb200", "lts_dgx_a100"): _COPY,
    ("gpt3_15b_8t_release_sm_gb200", "dev_dgx_h100"): _COPY,
    ("hybrid_mr_mcore_te_tp1_pp1_cp1_dgx_a100_1N8G", "lts_dgx_a100"): "recorded before May 2025, when the case had 12 layers of 512",
}  # fmt: skip
"""Rows that were measured with another model or plan: why."""
_FUSED_BIAS = {"no-bias-gelu-fusion": None}
CHANGED: dict[tuple[str, str], dict[str, Any]] = {
    ("deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release", "dev_dgx_gb200"): {"cross-entropy-fusion-impl": "te"},
    ("deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release", "dev_dgx_h100"): {"cross-entropy-fusion-impl": "te",
                                                                          "moe-flex-dispatcher-backend": "deepep"},
    ("gpt3_mcore_te_tp2_pp1_te_8experts2parallel_top2router", "dev_dgx_a100"): _FUSED_BIAS,
    ("gpt3_mcore_te_tp2_pp1_resume_torch_dist_te_8experts2parallel_top2router", "dev_dgx_a100"): _FUSED_BIAS,
    ("gpt3_mcore_te_tp2_pp1_te_8experts2parallel_overlap_grad_reduce_param_gather_groupedGEMM", "lts_dgx_a100"): _FUSED_BIAS,
    ("gpt3_mcore_te_tp2_pp1_te_8experts2parallel_dist_optimizer", "dev_dgx_a100"): _FUSED_BIAS,
    ("gpt3_mcore_tp2_pp2_ep2_resume_torch_dist_te_4experts2parallel", "lts_dgx_a100"): _FUSED_BIAS,
    ("gpt3_mcore_te_tp2_pp1_resume_torch_dist_te_8experts2parallel_multi_dist_optimizer_instances", "lts_dgx_a100"):
        {"num-distributed-optimizer-instances": None},
}  # fmt: skip
"""Arguments that a row's case had then, None for those that it had not yet. Biases of experts, which two had and which newer releases
refuse with tensor parallelism of experts, are left out."""


def as_recorded(args: Mapping[str, Any], case: str, variant: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments that a row was measured with, and in words where they are not those of its case.

    >>> as_recorded({"bf16": True}, "a_case", "a_variant")
    ({'bf16': True}, ())
    """
    changed = CHANGED.get((case, variant), {})
    then = {name: value for name, value in {**args, **changed}.items() if value is not None}
    return then, tuple(f"{name} = {value}, as when it was recorded" if value is not None else f"without {name}, as when it was recorded"
                       for name, value in changed.items())  # fmt: skip
