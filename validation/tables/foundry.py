"""Runs of MPT models under FSDP: mosaicml/llm-foundry, scripts/train/benchmarking/README.md.

Shapes: scripts/train/yamls/pretrain/mpt-*.yaml (heads as they say). Precision: amp_bf16 with DEFAULT gathers in bf16 and reduces in fp32,
PURE reduces in bf16 (mosaicml/composer, composer/distributed/mosaic_parallelism.py, get_mixed_precision).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.formats.megatron_arguments import Sections
from validation.run import Run
from validation.tables.table import number, rows_of, whole

COLUMNS = ("model", "seq", "gpus", "gpu", "micro_batch", "grad_accum", "global_batch", "tokens_per_s_per_gpu", "precision", "mp_mode",
           "sharding", "activation_checkpointing")  # fmt: skip
SHAPES = {
    "125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24), "3b": (2560, 20, 32), "7b": (4096, 32, 32),
    "13b": (5120, 40, 40), "30b": (7168, 56, 48), "70b": (8192, 64, 80),
}  # fmt: skip
"""Hidden size, heads, layers by the model's name."""
CLUSTERS = {"h100_80gb": ("dgx-h100-superpod", "H100"), "a100_80gb": ("dgx-a100-superpod", "A100"), "a100_40gb": ("dgx-a100-superpod", "A100 40GB")}
NIC = {"dgx-a100-superpod": "200 Gb/s"}
"""A100 nodes: 1,600 Gb/s for 8 GPUs, as the section's head says."""


def foundry_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of the table. Raises ``InputError`` for a file that is not that table."""
    return tuple(foundry_run(row) for row in rows_of(path, COLUMNS))


def foundry_run(row: dict[str, str]) -> Run:
    """Return one row as a run of FSDP: every parameter cut over all GPUs, gradients reduced in every micro-batch."""
    model = row["model"].removeprefix("mpt-")
    again = row["activation_checkpointing"] == "True"
    case = f"{row['model']} {row['seq']} tokens, {row['gpus']} GPUs, micro-batch {row['micro_batch']} x {row['grad_accum']}"
    case += f", {row['precision']} {row['mp_mode']} {row['sharding']}" + (", recomputed" if again else "")
    named: dict[str, Any] = {"case": case, "kind": f"MPT {row['gpu']}", "platform": row["gpu"], "variant": ""}
    if model not in SHAPES or row["gpu"] not in CLUSTERS:
        return Run(**named, reasons=(f"{row['model']} on {row['gpu']}: not known here",))
    try:
        seq, gpus, micro, accum, batch = whole(row, "seq", "gpus", "micro_batch", "grad_accum", "global_batch")
        seconds = batch * seq / (number(row, "tokens_per_s_per_gpu") * gpus)
    except InputError as error:
        return Run(**named, reasons=(str(error),))
    if micro * accum * gpus != batch:
        return Run(**named, reasons=(f"global batch {batch:,}: the last of its micro-batches is smaller",))
    hidden, heads, layers = SHAPES[model]
    preset, gpu = CLUSTERS[row["gpu"]]
    cluster: dict[str, Any] = {"preset": preset, "gpus": gpus}
    if preset in NIC:
        cluster["nic_rate"] = NIC[preset]
    precision = "fp8" if row["precision"] == "amp_fp8" else "bf16"
    sections: Sections = {
        "model": {"name": row["model"], "hidden_size": hidden, "heads": heads, "layers": layers, "vocabulary_size": 50_368,
                  "max_positions": seq, "tied_embeddings": True},
        "training": {"sequence_length": seq, "micro_batch": micro, "global_batch": batch, "precision": precision},
        "plan": {
            "dialect": "torchtitan", "fsdp_wrap": "blocks", "mixed_precision_param": "bfloat16",
            "fsdp_reshard_after_forward": "never" if row["sharding"] == "SHARD_GRAD_OP" else "always",
            "mixed_precision_reduce": "bfloat16" if row["mp_mode"] == "PURE" else "float32",
            # Its checkpoints are torch's, not reentrant, which stop early by default.
            "activation_checkpoint_mode": "full" if again else "none", "early_stop": True,
        },
        "cluster": cluster,
    }  # fmt: skip
    assumed = ("FSDP1 as FSDP2 with the same units; flash attention", "no compiler: norms, GELU and residuals are kernels of their own")
    return Run(**named, sections=sections, software={"gpu": gpu, "framework": "llm-foundry"}, measured={"step_seconds": seconds}, assumed=assumed)
