"""Runs of Megatron-LM on A100 that two papers tell: Narayanan et al. 2021, table 1; Korthikanti et al. 2022, tables 3 to 5.

Both ran on Selene (nodes of 8 A100 80GB, 8 NICs of 200 Gb/s) in 16 bits, with scores of attention written to memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.formats.megatron_arguments import Sections
from validation.run import Run
from validation.tables.table import number, rows_of, whole

FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
MICRO = {"1.7B": 16, "3.6B": 16, "7.5B": 4, "18.4B": 4, "39.1B": 4, "76.1B": 4, "145.6B": 4, "310.1B": 1, "529.6B": 1, "1008.0B": 1}
"""Micro-batches that table 1 does not tell: assumed, with halves where they do not divide the batch."""


def _model(row: dict[str, str], heads: int, hidden: int, layers: int, vocabulary: int) -> dict[str, Any]:
    return {"name": row["model"], "hidden_size": hidden, "heads": heads, "layers": layers, "vocabulary_size": vocabulary,
            "max_positions": 2048, "tied_embeddings": True}  # fmt: skip


def narayanan_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of table 1, whose seconds follow from FLOP/s: 96·B·s·L·h²·(1 + s/6h + V/16Lh), recomputation counted (eq. 3)."""
    columns = ("model", "heads", "hidden", "layers", "tp", "pp", "gpus", "global_batch", "seq", "vocab", "measured_tflops_per_gpu")
    return tuple(_narayanan(row) for row in rows_of(path, columns))


def _narayanan(row: dict[str, str]) -> Run:
    named: dict[str, Any] = {"case": f"SC21 {row['model']}, {row['gpus']} GPUs", "kind": "SC21", "platform": "a100_80gb", "variant": ""}
    try:
        a, h, L, t, p, g, B, s, V = whole(row, "heads", "hidden", "layers", "tp", "pp", "gpus", "global_batch", "seq", "vocab")
        flops = 96 * B * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h))
        seconds = flops / (g * number(row, "measured_tflops_per_gpu") * 1e12)
    except InputError as error:
        return Run(**named, reasons=(str(error),))
    b = MICRO.get(row["model"], 4)
    while b > 1 and B % (b * (g // (t * p))):
        b //= 2
    sections: Sections = {
        "model": _model(row, a, h, L, V),
        "training": {"sequence_length": s, "global_batch": B, "micro_batch": b, "precision": "fp16"},
        "plan": {"dialect": "megatron", "tp": t, "pp": p, "grad_reduce_in_fp32": True, **FULL},
        "cluster": {"preset": "dgx-a100-superpod", "gpus": g},
    }  # fmt: skip
    assumed = (f"micro-batch {b}", "one virtual stage a rank", "scores of attention are written to memory")
    software = {"gpu": "A100", "framework": "Megatron 2021", "attention": "unfused"}
    return Run(**named, sections=sections, software=software, measured={"step_seconds": seconds}, assumed=assumed)


def korthikanti_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of tables 3 to 5, two a row: all recomputed, and selective with sequence parallelism."""
    columns = ("model", "heads", "hidden", "layers", "tp", "pp", "interleave", "gpus", "global_batch", "micro_batch", "seq", "vocab",
               "step_s_full_recompute", "step_s_selective_seqpar")  # fmt: skip
    selective = {"recompute_granularity": "selective", "sequence_parallel": True}
    kinds = (("all recomputed", "step_s_full_recompute", FULL), ("selective, sequence parallel", "step_s_selective_seqpar", selective))
    return tuple(_korthikanti(row, *kind) for row in rows_of(path, columns) for kind in kinds)


def _korthikanti(row: dict[str, str], title: str, column: str, more: dict[str, Any]) -> Run:
    named: dict[str, Any] = {"case": f"{row['model']} {title}", "kind": "sequence parallelism", "platform": "a100_80gb", "variant": ""}
    try:
        a, h, L, t, p, v, g, B, b, s, V = whole(
            row, "heads", "hidden", "layers", "tp", "pp", "interleave", "gpus", "global_batch", "micro_batch", "seq", "vocab"
        )
        seconds = number(row, column)
    except InputError as error:
        return Run(**named, reasons=(str(error),))
    sections: Sections = {
        "model": _model(row, a, h, L, V),
        "training": {"sequence_length": s, "global_batch": B, "micro_batch": b, "precision": "fp16"},
        "plan": {"dialect": "megatron", "tp": t, "pp": p, "vpp": v, **more},
        "cluster": {"preset": "dgx-a100-superpod", "gpus": g},
    }  # fmt: skip
    software = {"gpu": "A100", "framework": "Megatron 2021", "attention": "unfused"}
    assumed = ("scores of attention are written to memory",)
    return Run(**named, sections=sections, software=software, measured={"step_seconds": seconds}, assumed=assumed)
