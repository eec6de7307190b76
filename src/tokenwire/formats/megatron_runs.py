"""Importer of measured Megatron runs: golden values with their arguments (JSON lines), and a table of B200 runs (CSV).

Golden values are those of NVIDIA/Megatron-LM, tests/functional_tests: bytes that torch's allocator counts on the last rank
(megatron/training/training.py, training_log; its writer is that of the last rank) and seconds an iteration.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.files import read_limited
from tokenwire.formats.runs.arguments import sections
from tokenwire.formats.runs.run import Run
from tokenwire.formats.runs.unrepresented import reasons

DETERMINISTIC_CUBLAS = ("cp2_pp2_ep2_te_4experts2parallel_nondeterministic", "hybrid_mr_mcore_te", "fine_grained_offloading")
"""Cases whose environment sets CUBLAS_WORKSPACE_CONFIG=:4096:8 without --deterministic-mode (their model_config.yaml, ENV_VARS)."""
OLDER_IMAGE = "dracooci"
"""Part of the names of variants that ran in older images, where deterministic mode leaves unfused attention only."""
WORLDS = {("gpt3_15b_8t_release_sm_gb200", ""): 128, ("gpt3_15b_8t_release", ""): 256,
          ("mixtral_8x7b_tp1pp4ep8vpp8_release", ""): 64, ("mixtral_8x7b_alltoall_tp2pp4ep4_release", ""): 128,
          ("deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release", ""): 32}  # fmt: skip
"""GPUs of release cases, which no recipe says, by case and GPU: those whose share of the optimizer's state is nearest to what is
allocated in the case's first H100 row (GB200 where it is named): that row is no test of what is allocated, the others are."""
COPIES = {("gpt3_15b_8t_release_sm_gb200", "lts_dgx_a100"): "gpt3_15b_8t_release_sm lts_dgx_a100"}
"""Rows whose bytes and seconds are, to the last digit, those of another row with another plan."""
BERT = {"vocab-size": 28_996}
"""Arguments that BERT's runs leave to their tokenizer: the words of BERT's cased vocabulary."""
LIMIT = 2**28
"""Bytes of the largest table of runs that is read."""
GPUS = {"dgx_a100": "A100", "dgx_h100": "H100", "dgx_gb200": "GB200"}
"""GPU of each platform that golden values name."""


def golden_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of a file of golden values, one a line. Raises ``InputError`` for a file that is none."""
    where = f"runs {str(path)!r}"
    rows = []
    for number, line in enumerate(read_limited(path, limit=LIMIT, what="table of runs").decode("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number}", where=where, rule=f"is not JSON ({error})") from None
        if not isinstance(row, dict) or not isinstance(row.get("args"), dict):
            raise InputError(f"line {number}", where=where, rule="must be an object with the arguments of a run (args)")
        rows.append(golden_run(row))
    return tuple(rows)


def golden_run(row: Mapping[str, Any]) -> Run:
    """Return one run: its journey, or the reasons why there is none.

    >>> golden_run({"case": "x", "family": "t5", "args": {"encoder-num-layers": 12}}).reasons
    ('encoder-num-layers: an encoder and a decoder (T5)',)
    """
    args, family = row["args"], str(row.get("family", ""))
    named: dict[str, Any] = {"case": str(row.get("case", "")), "kind": kind(args, family), "platform": str(row.get("platform", "")),
             "variant": str(row.get("variant", "")), "measured": _measured(row)}  # fmt: skip
    why = reasons(args)
    if copy := COPIES.get((named["case"], named["variant"])):
        why = (*why, f"its bytes and seconds are those of {copy}, which has another plan")
    if why:
        return Run(**named, reasons=why)
    gpus, assumed = _gpus(row)
    try:
        found, software = sections({**BERT, **args} if family == "bert" else args, gpus)
    except (InputError, KeyError, ValueError) as error:
        missing = f"{error.args[0]} is not given" if isinstance(error, KeyError) else str(error)
        return Run(**named, reasons=(missing,))
    software["gpu"] = _gpu(row)
    if family == "bert":
        software["heads"] = "bert-no-binary-head" if "bert-no-binary-head" in args else "bert"
        assumed += ("the journey says a decoder of BERT's shape, its heads are counted beside it; cased vocabulary",)
    if _older(named["case"], named["variant"]):
        software["transformer_engine"] = "2.2"
    if OLDER_IMAGE in named["variant"] and software.get("deterministic_mode") and "attention_backend" not in software:
        software["attention_backend"] = "unfused"
        assumed += ("unfused attention: the variant's older image has no deterministic FlashAttention",)
    if any(part in named["case"] for part in DETERMINISTIC_CUBLAS):
        software["cublas_workspace"] = "deterministic"
    return Run(**named, sections=found, software=software, assumed=assumed)


def kind(args: Mapping[str, Any], family: str) -> str:
    """Return the kind of model: GPT, MoE, MLA, BERT, T5 ...

    >>> kind({"num-experts": 8, "multi-latent-attention": True}, "moe"), kind({}, "gpt")
    ('MoE, MLA', 'GPT')
    """
    if family in ("gpt", "moe", "mixtral"):
        parts = [name for key, name in (("num-experts", "MoE"), ("multi-latent-attention", "MLA")) if key in args]
        return ", ".join(parts) or "GPT"
    return {"bert": "BERT", "t5": "T5", "hybrid": "hybrid", "nemotron": "hybrid"}.get(family, family)


def _older(case: str, variant: str) -> bool:
    # Images whose Transformer Engine is older than the placeholders it keeps: A100 left the tests of new images early, release
    # runs are seldom repeated.
    return OLDER_IMAGE in variant or variant.startswith("dev_dgx_a100") or ("release" in case and variant.startswith("lts"))


def _measured(row: Mapping[str, Any]) -> dict[str, float]:
    names = {"mem_allocated_bytes": "allocated_bytes", "mem_max_allocated_bytes": "peak_bytes",
             "iteration_seconds_median": "step_seconds"}  # fmt: skip
    return {ours: float(row[theirs]) for theirs, ours in names.items() if row.get(theirs)}


def _gpu(row: Mapping[str, Any]) -> str:
    platform = str(row.get("platform") or "")
    variant = str(row.get("variant") or "")
    for name, gpu in GPUS.items():
        if name == platform or name.removeprefix("dgx_") in variant:
            return gpu
    # Variants without a platform in their name are of the machines that ran before there was more than one.
    return "A100"


def _gpus(row: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    args, given = row["args"], row.get("gpus")
    least = 1
    for name in ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"):
        least *= int(args.get(name, 1))
    experts = int(args.get("expert-model-parallel-size", 1)) * int(args.get("pipeline-model-parallel-size", 1))
    experts *= int(args.get("expert-tensor-parallel-size", args.get("tensor-model-parallel-size", 1)))
    least = max(least, experts if "num-experts" in args else 1)
    if isinstance(given, int) and given % least == 0:
        return given, ()
    if isinstance(given, str) and given.isdigit() and int(given) % least == 0:
        return int(given), ()
    for (case, gpu), world in WORLDS.items():
        if str(row.get("case", "")).startswith(case) and gpu in ("", _gpu(row)):
            return world, (f"{world} GPUs: the row does not say; calibrated on the case's first row",)
    guess = least if least > 8 else 8
    if given:
        return guess, (f"{guess} GPUs: its {given} do not hold its plan",)
    return guess, (f"{guess} GPUs: the row does not say",)


# The table of B200 runs ---------------------------------------------------------------------------------------------

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
