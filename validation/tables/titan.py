"""Runs of torchtitan: pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md (Grand Teton, H100 with 96 GB at 500 W).

Shapes: torchtitan/models/llama3 (Llama 3.1 8B, 70B, 405B). Float8 is of the linear layers (torchao), the rest in bf16.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.formats.megatron_arguments import Sections
from validation.run import Run
from validation.tables.table import number, rows_of, whole

COLUMNS = ("model", "gpus", "fsdp", "tp", "pp", "cp", "local_batch", "seq", "activation_checkpointing", "compile", "float8", "async_tp",
           "schedule", "tps_per_gpu")  # fmt: skip
PRESETS = {"llama3.1-8b": "llama-3.1-8b", "llama3.1-70b": "llama-3.1-70b", "llama3.1-405b": "llama-3.1-405b"}
SCHEDULES = {"1F1B": "1F1B", "Interleaved 1F1B": "Interleaved1F1B", "Interleaved1F1B": "Interleaved1F1B", "": "1F1B"}


def titan_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of the table. Raises ``InputError`` for a file that is not that table."""
    return tuple(titan_run(row) for row in rows_of(path, COLUMNS))


def titan_run(row: dict[str, str]) -> Run:
    """Return one row as a run of torchtitan; a pipeline has as many micro-batches as ranks (pipeline_parallel_microbatches of that time)."""
    on = [name for name in ("compile", "float8", "async_tp") if row[name] == "1"]
    case = f"{row['model']} {row['seq']} tokens, {row['gpus']} GPUs, fsdp {row['fsdp']} tp {row['tp']} pp {row['pp']} cp {row['cp']}, "
    case += ", ".join([row["activation_checkpointing"] + " recompute", *on, *([row["schedule"]] if row["schedule"] else [])])
    named: dict[str, Any] = {"case": case, "kind": "torchtitan", "platform": "h100_96gb_500w", "variant": ""}
    if row["model"] not in PRESETS or row["schedule"] not in SCHEDULES:
        return Run(**named, reasons=(f"{row['model']} {row['schedule']}: not known here",))
    try:
        gpus, fsdp, tp, pp, cp, local, seq = whole(row, "gpus", "fsdp", "tp", "pp", "cp", "local_batch", "seq")
        rate = number(row, "tps_per_gpu")
    except InputError as error:
        return Run(**named, reasons=(str(error),))
    # Tokens a second are of a GPU: those of a replica of tp·pp·cp GPUs, over them all.
    micro = max(local // pp, 1) if local % pp == 0 else 1
    seconds = local * seq / (rate * tp * pp * cp)
    mode = row["activation_checkpointing"]
    # Of that time its checkpoints had torch's default, to stop early (its own option, off, came with v0.2.0).
    plan: dict[str, Any] = {
        "dialect": "torchtitan", "early_stop": True, "tp": tp, "pp": pp, "cp": cp, "data_parallel_shard_degree": fsdp, "mixed_precision_param": "bfloat16",
        "activation_checkpoint_mode": mode, "selective_ac_option": "op", "enable_async_tensor_parallel": "async_tp" in on,
    }  # fmt: skip
    if pp > 1:
        plan["pipeline_parallel_schedule"] = SCHEDULES[row["schedule"]]
    sections: Sections = {
        "model": {"preset": PRESETS[row["model"]]},
        "training": {"sequence_length": seq, "micro_batch": micro, "global_batch": local * fsdp,
                     "precision": "fp8" if "float8" in on else "bf16"},
        "plan": plan,
        "cluster": {"preset": "meta-24k-roce", "gpus": gpus},
    }  # fmt: skip
    assumed = ("selective recompute is that by operator; a pipeline has as many micro-batches as ranks",)
    software = {"gpu": "H100 500W", "framework": "torchtitan", "compile": "compile" in on}
    return Run(**named, sections=sections, software=software, measured={"step_seconds": seconds}, assumed=assumed)
