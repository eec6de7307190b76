"""In which image a golden run was recorded: its variant and its steps tell, and for GB200 the day of its file.

Images: NVIDIA/Megatron-LM, docker/.ngc_version.lts and .dev, .gitlab-ci.yml and their history. ``lts`` was
nvcr.io/nvidia/pytorch:24.01 until November 2025, since then 25.09; ``dev`` went from 25.03 (April 2025) over 25.05 (July 2025), from
which on Transformer Engine is 2.3, to 26.02 (March 2026) and 26.04 (May 2026), from which on torch is 2.12.
Until October 2025 every fifth step was recorded, so that the number of recorded steps tells older rows of ``lts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIFTH_STEPS = (6, 11, 21, 41)
"""How many steps of a run of 25, 50, 100 and 200 were recorded while every fifth one was."""
OLDER_MACHINE = "dracooci"
"""Part of the names of variants whose last runs were in October 2025."""
BEFORE_TORCH_2_12 = {
    "dev_dgx_gb200": (
        "bert_release", "deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release", "gpt3_15b_8t_release_sm",
        "gpt3_mcore_cp2_pp2_ep2_te_4experts2parallel_nondeterministic_dp_last",
        "gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer_1node",
        "gpt3_mcore_te_tp2_pp1_resume_torch_dist_cp2_nondeterministic_1node",
        "gpt3_mcore_te_tp2_pp2_cp2_calculate_per_token_loss_nondeterministic_1node",
        "gpt3_mcore_te_tp2_pp2_cp2_etp4_calculate_per_token_loss_nondeterministic_dp_last",
        "gpt3_mcore_te_tp2_pp2_cp2_etp4_calculate_per_token_loss_nondeterministic_dp_last_1node",
        "gpt3_mcore_te_tp2_pp2_cp2_etp4_nondeterministic_dp_last", "gpt3_mcore_te_tp2_pp2_cp2_etp4_nondeterministic_dp_last_1node",
        "gpt3_mcore_te_tp2_pp2_cp2_nondeterministic_1node", "gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion_1node",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cp2_nondeterministic",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cp2_nondeterministic_1node",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cross_entropy_loss_fusion",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cross_entropy_loss_fusion_1node",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_reshard_1x4xNone", "gpt3_mcore_te_tp2_pp2_resume_torch_dist_reshard_1x4xNone_1node",
        "gpt3_mcore_te_tp4_pp2_resume_torch_dist_reshard_8x1xNone", "gpt3_mcore_te_tp4_pp2_resume_torch_dist_reshard_8x1xNone_1node",
        "gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading",
        "gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_no_mtp_no_a2a_ovlp_fine_grained_offloading", "t5_release",
    ),
    "dev_dgx_gb200_2nd": (
        "gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cp2_nondeterministic",
        "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cross_entropy_loss_fusion", "gpt3_mcore_te_tp2_pp2_resume_torch_dist_reshard_1x4xNone",
        "gpt3_mcore_te_tp4_pp2_resume_torch_dist_reshard_8x1xNone",
    ),
}  # fmt: skip
"""GB200 rows without deterministic mode whose files were last recorded before 7 May 2026, by the history of their files."""


BEFORE_ENGINE_2_3 = {
    "dev_dgx_h100": ("mixtral_8x7b_alltoall_tp2pp4ep4_release", "mixtral_8x7b_alltoall_tp2pp4ep4_release_sm")
}
"""H100 rows that accumulate gradients in fused products and were last recorded before 5 July 2025 (of other rows it does not matter)."""


@dataclass(frozen=True)
class Image:
    """Versions of torch and Transformer Engine, and whether its FlashAttention has a deterministic backward."""

    torch: str
    transformer_engine: str
    deterministic_flash: bool = True


LTS_24_01 = Image("2.2", "1.2", deterministic_flash=False)
DEV_25_03 = Image("2.7", "2.1")
# Of 25.05 to 26.02, of ``lts`` since 25.09, versions are alike in what memory depends on.
UNTIL_26_02 = Image("2.11", "2.11")
DEV_26_04 = Image("2.12", "2.14")


def image(row: Mapping[str, Any]) -> Image:
    """Return the image of a row of golden values (``case``, ``variant``, ``iterations``).

    >>> image({"variant": "lts_dgx_a100", "iterations": 11}).deterministic_flash
    False
    >>> image({"variant": "lts_dgx_a100", "iterations": 50}).deterministic_flash
    True
    """
    case, variant = str(row.get("case") or ""), str(row.get("variant") or "")
    if variant.startswith("lts"):
        # Release runs are seldom repeated: those of lts are of April 2025.
        older = row.get("iterations") in FIFTH_STEPS or OLDER_MACHINE in variant or "release" in case
        return LTS_24_01 if older else UNTIL_26_02
    if (
        variant.startswith("dev_dgx_a100")
        or OLDER_MACHINE in variant
        or case in BEFORE_ENGINE_2_3.get(variant, ())
    ):
        # A100 left the tests of new images early.
        return DEV_25_03
    return UNTIL_26_02 if case in BEFORE_TORCH_2_12.get(variant, ()) or "gb200" not in variant else DEV_26_04
