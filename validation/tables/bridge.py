"""Runs of Megatron-Bridge: NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and its archive.

What a row does not tell comes from the recipes (src/megatron/bridge/perf_recipes): distributed optimizer, overlapped gradients and
parameters, tensor-parallel overlap where there is tensor parallelism, layouts of DeepSeek-V3 and Kimi K2; of experts: ``bridge_recipes``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.formats.megatron_arguments import Sections
from tokenwire.model import flops_per_token
from tokenwire.model import preset as find
from validation.run import Run
from validation.tables.bridge_hybrids import FULLY_SHARDED, hybrid_options
from validation.tables.bridge_hybrids import PRESETS as HYBRIDS
from validation.tables.bridge_recipes import options, recipe
from validation.tables.table import number, rows_of, whole

COLUMNS = ("release", "model", "system", "gpus", "precision", "global_batch", "micro_batch", "seq", "fsdp", "tp", "pp", "cp", "vp", "ep",
           "tokens_per_s_per_gpu", "model_tflops_per_gpu")  # fmt: skip
PRESETS = {
    "LLAMA3_8B": "llama-3-8b", "LLAMA3_70B": "llama-3-70b", "LLAMA3.1_405B": "llama-3.1-405b", "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b", "Qwen3_30B_a3B": "qwen3-30b-a3b", "Qwen3_235B_a22B": "qwen3-235b-a22b", "Kimi_K2": "kimi-k2", **HYBRIDS,
}  # fmt: skip
EXPERTS = ("DeepSeekV3", "GPT OSS 120B", "Qwen3_30B_a3B", "Qwen3_235B_a22B", "Kimi_K2")
SYSTEMS = {
    "DGX-H100": ("dgx-h100-superpod", 8, "H100"), "DGX-B200": ("dgx-b200-superpod", 8, "B200"), "DGX-B300": ("dgx-b200-superpod", 8, "B300"),
    "DGX-GB200": ("gb200-nvl72", 64, "GB200"), "DGX-GB300": ("gb200-nvl72", 64, "GB300"),
}  # fmt: skip
"""Preset of the cluster, GPUs of an NVLink domain that a job uses, GPU."""
PRECISIONS = {"BF16": "bf16", "FP8": "fp8", "MXFP8": "mxfp8", "FP8-CS": "fp8", "FP8-MX": "mxfp8", "FP8-CS (FP8-MX)": "fp8", "": "fp8",
              "NVFP4": "nvfp4"}  # fmt: skip
"""Precisions of the products; where the column is empty (release 25.09) the tables are of FP8 with its current scaling."""
RECIPES = {"mxfp8": "mxfp8", "fp8": "tensorwise", "nvfp4": "mxfp8"}
DEEPSEEK = {
    (2, 8): "Et*4|(t*4|)*14tmL", (4, 4): "Et*4|(t*4|)*14tmL", (8, 2): "Et*4|(t*4|)*14tmL", (16, 1): "Et*4|(t*4|)*14tmL",
    (8, 4): "Et|(tt|)*30mL",
}  # fmt: skip
GROUPS = {"DeepSeekV3": {"moe_router_num_groups": 8, "moe_router_group_topk": 4}}
"""Groups of experts of which a token may use some (src/megatron/bridge/models/deepseek/deepseek_provider.py)."""
SLOWED = "[^gpt-oss-note]"
"""The publisher's note on runs that a kernel slowed, of which a release was ten times too slow (NVIDIA/cudnn-frontend, issue 256)."""
KIMI = {(4, 4): "Et*4|(t*4|)*14tL"}


UNSAID = "attention over compressed tokens that an indexer chooses, and four streams of residuals, which no layer here says"
"""Why DeepSeek V4 is no journey (huggingface/transformers, models/deepseek_v4: compressors, indexer, hyper-connections)."""
ADAPTED = 0.75
"""Share of a model's FLOPs a token below which a run trains adapters: without gradients of weights two thirds are left."""


def bridge_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of the table. Raises ``InputError`` for a file that is not that table."""
    return tuple(bridge_run(row) for row in rows_of(path, COLUMNS))


def bridge_run(row: dict[str, str]) -> Run:
    """Return one row as a run. Of a cell with two values (``37556 (36108)``) the first is meant."""
    slowed = SLOWED in row["model_tflops_per_gpu"]
    row = {key: _first(cell) for key, cell in row.items()} | {key: row[key] for key in ("release", "model", "precision")}
    model = row["model"].split(" (")[0]
    precision = PRECISIONS.get(row["precision"])
    case = f"{row['release'].split()[0]} {row['model']}, {row['gpus']} {row['system'].removeprefix('DGX-')}, {row['precision'] or 'FP8'}, "
    case += ", ".join(f"{name} {row[name]}" for name in ("tp", "pp", "cp", "vp", "ep") if row[name] not in ("1", "n/a", ""))
    named: dict[str, Any] = {"case": case, "kind": f"Bridge {row['system'].removeprefix('DGX-')}", "platform": row["system"], "variant": ""}
    if model not in PRESETS or row["system"] not in SYSTEMS or precision is None:
        what = UNSAID if model.startswith("DeepSeekV4") else "not known here"
        return Run(**named, reasons=(f"{row['model']} in {row['precision']} on {row['system']}: {what}",))
    try:
        out = _run(row, named, model, precision)
    except InputError as error:
        return Run(**named, reasons=(str(error),))
    return replace(out, software={**out.software, "slowed": slowed})


def _first(cell: str) -> str:
    found = re.match(r"\s*([0-9][0-9.,]*|[^\s(]+)", cell or "")
    return found.group(1).replace(",", "") if found else ""


def _run(row: dict[str, str], named: dict[str, Any], model: str, precision: str) -> Run:
    gpus, batch, micro, seq, tp, pp, cp = whole(row, "gpus", "global_batch", "micro_batch", "seq", "tp", "pp", "cp")
    row = {**row, "model_tflops_per_gpu": row["model_tflops_per_gpu"].split("[")[0]}
    rate, flops = number(row, "tokens_per_s_per_gpu"), number(row, "model_tflops_per_gpu")
    vp, ep = (int(row[name]) if row[name].isdigit() else 1 for name in ("vp", "ep"))
    preset, domain, gpu = SYSTEMS[row["system"]]
    plan: dict[str, Any] = {
        "dialect": "megatron", "tp": tp, "pp": pp, "cp": cp, "vpp": vp if pp > 1 else 1, "sequence_parallel": tp > 1,
        "use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True, "tp_comm_overlap": tp > 1,
        "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te", "create_attention_mask_in_dataloader": False,
    }  # fmt: skip
    if model in EXPERTS:
        found = recipe(model, row["system"], precision, row["release"].split()[0])
        plan |= {"ep": ep, "etp": 1, **options(found, "tokendrop" in row["model"], ep, pp == 1 or vp > 1), **GROUPS.get(model, {})}
    if model in HYBRIDS:
        plan |= {"ep": ep, "etp": 1, **hybrid_options(model, row["system"], precision, row["release"].split()[0], ep, gpus)}
    if model.startswith("LLAMA") and 1e12 * flops / rate < ADAPTED * flops_per_token(find(PRESETS[model]), seq).value:
        plan |= _adapters(row["system"], precision)
    if row["fsdp"] not in ("", "0"):
        plan |= FULLY_SHARDED
    plan |= _pipeline(model, pp, plan["vpp"], "w/o MTP" in row["model"])
    if precision != "bf16":
        plan["fp8_recipe"] = RECIPES[precision]
    sections: Sections = {
        "model": {"preset": PRESETS[model]},
        "training": {"sequence_length": seq, "micro_batch": micro, "global_batch": batch, "precision": "bf16" if precision == "bf16" else "fp8"},
        "plan": plan,
        "cluster": {"preset": preset, "gpus": gpus, "gpus_per_node": min(domain, gpus)},
    }  # fmt: skip
    software = {"gpu": gpu, "framework": "Megatron-Bridge", "precision": precision, "release": row["release"].split()[0],
                "whole_graph": plan.get("use_transformer_engine_op_fuser", False)}  # fmt: skip
    assumed: tuple[str, ...] = ("options of the recipes of its release, experts evenly loaded",)
    if plan.get("use_megatron_fsdp"):
        assumed += ("parameters are gathered in 16 bits",)
    if model == "Nemotron_3_Ultra":
        assumed += ("what its recipe moves to the host costs no time",)
    if precision == "nvfp4":
        assumed += ("in 4 bits as in 8, at the peak of 4",)
    return Run(**named, sections=sections, software=software, measured={"step_seconds": batch * seq / (rate * gpus)}, assumed=assumed)


def _adapters(system: str, precision: str) -> dict[str, Any]:
    """Return the options of recipes that train adapters (perf_recipes/llama, llama3_70b_peft_*; recipes/llama, dim 16)."""
    out: dict[str, Any] = {"lora_dim": 16, "lora_target_modules": ("linear_qkv",), "tp_comm_overlap": False}
    if (system, precision) == ("DGX-H100", "bf16"):
        out |= {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1}
    return out


def _pipeline(model: str, pp: int, vpp: int, without_further: bool) -> dict[str, Any]:
    """Return the options by which layers are laid out on the stages."""
    if model == "DeepSeekV3" and (pp, vpp) in DEEPSEEK:
        layout = DEEPSEEK[pp, vpp]
        if without_further:
            return {"pipeline_model_parallel_layout": layout.replace("m", "")}
        return {"pipeline_model_parallel_layout": layout, "mtp_num_layers": 1}
    if model == "Kimi_K2" and (pp, vpp) in KIMI:
        return {"pipeline_model_parallel_layout": KIMI[pp, vpp]}
    if model in ("LLAMA3.1_405B", "Qwen3_235B_a22B") and pp > 1:
        return {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
    return {}
