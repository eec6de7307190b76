"""Importer of a table of runs of Megatron on eight B200 (CSV): MooreThreads/SimuMax, docs/b200."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.files import read_limited
from validation.run import LIMIT, Run

_LLAMA = {"gated": True, "norm": "rms", "activation": "silu", "bias": False, "positions": "rotary", "tied_embeddings": False,
          "vocabulary_size": 128_257}  # fmt: skip
_DEEPSEEK = {"gated": True, "norm": "rms", "activation": "silu", "bias": False, "positions": "rotary", "tied_embeddings": False,
             "heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
             "v_head_dim": 128, "dense_layers": 1, "shared_experts": 1}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama3_70b": {**_LLAMA, "hidden_size": 8192, "heads": 64, "kv_heads": 8, "feed_forward": 28_672},
    "llama3_405b": {**_LLAMA, "hidden_size": 16_384, "heads": 128, "kv_heads": 16, "feed_forward": 53_248},
    "deepseekv2": {**_DEEPSEEK, "hidden_size": 5120, "feed_forward": 12_288, "expert_feed_forward": 1536, "shared_experts": 2,
                   "experts": 160, "active_experts": 6, "vocabulary_size": 102_401},
    "deepseekv3": {**_DEEPSEEK, "hidden_size": 7168, "feed_forward": 18_432, "expert_feed_forward": 2048, "experts": 256,
                   "active_experts": 8, "vocabulary_size": 129_281},
}  # fmt: skip
"""The models of the table: shapes as its publisher states them (MooreThreads/SimuMax, docs/b200)."""
GIB = 2**30


def b200_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of the table of B200 runs. Raises ``InputError`` for a file that is not that table."""
    where = f"runs {str(path)!r}"
    text = read_limited(path, limit=LIMIT, what="table of runs").decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows or "measured_peak_alloc_gib" not in rows[0]:
        raise InputError(where, rule="must be a table with the columns case, model, layers ... measured_peak_alloc_gib")
    return tuple(b200_run(row) for row in rows)


def b200_run(row: Mapping[str, str]) -> Run:
    """Return one run of the table."""
    name = row["model"]
    experts = name.startswith("deepseek")
    measured = {"peak_bytes": float(row["measured_peak_alloc_gib"]) * GIB, "step_seconds": float(row["measured_step_ms"]) / 1e3,
                "peer_peak_bytes": float(row["simumax_peak_gib"]) * GIB}  # fmt: skip
    named: dict[str, Any] = {"case": row["case"], "kind": "MoE, MLA" if experts else "GPT", "platform": "dgx_b200", "variant": "", "measured": measured}
    if name not in MODELS:
        return Run(**named, reasons=(f"model = {name}: its shape is not known here",))
    size = {key: int(row[key]) for key in ("layers", "seq", "micro_batch", "micro_batches", "tp", "pp", "dp", "cp", "ep", "gpus")}
    plan: dict[str, Any] = {
        "dialect": "megatron", **{key: size[key] for key in ("tp", "pp", "cp", "ep")}, "use_distributed_optimizer": True,
        "sequence_parallel": True, "grad_reduce_in_fp32": True, "cross_entropy_loss_fusion": True,
        "cross_entropy_fusion_impl": "te",
        "create_attention_mask_in_dataloader": False,
    }  # fmt: skip
    if size["cp"] > 1:
        plan["cp_comm_type"] = "a2a"
    if experts:
        plan |= {"moe_token_dispatcher_type": "alltoall", "moe_expert_capacity_factor": 1.0, "etp": 1,
                 "moe_pad_expert_input_to_capacity": True, "moe_grouped_gemm": True}  # fmt: skip
    training = {"sequence_length": size["seq"], "micro_batch": size["micro_batch"], "precision": "bf16", "optimizer": "adam",
                "global_batch": size["micro_batch"] * size["micro_batches"] * size["dp"]}  # fmt: skip
    model = {**MODELS[name], "name": name, "layers": size["layers"], "max_positions": size["seq"]}
    software = {"gpu": "B200", "attention_dropout": 0.0, "hidden_dropout": 0.0, "attention_backend": "fused"}
    sections_ = {"model": model, "training": training, "plan": plan, "cluster": {"gpus": size["gpus"]}}
    return Run(**named, sections=sections_, software=software)
