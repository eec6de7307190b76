"""Predict the measured runs of the validation tables, and write docs/time.md: every row, hits and misses.

    python docs/validate_time.py [../shared/data/validation]
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenwire.fabric import ClusterConfig, ClusterFacts
from tokenwire.model import preset
from tokenwire.model.architecture import Architecture, Attention, FeedForward, Layer, Norm
from tokenwire.plan import TrainingConfig, read_plan, resolve
from tokenwire.step import operations
from tokenwire.timeline import StepTime, accelerator, step_time
from tokenwire.timeline.compute import AttentionKind


@dataclass(frozen=True)
class Row:
    """A measured run: what it is called, its setting, the seconds of a step that were measured, those of a peer (or None)."""

    name: str
    arch: Architecture
    training: dict[str, Any]
    plan: dict[str, Any]
    facts: ClusterFacts
    gpus: int
    measured: float
    peer: float | None = None
    attention: AttentionKind = "flash"

    def predicted(self, factors: tuple[float, float] | None = None, *, tables: bool = True) -> StepTime:
        """Return the prediction; ``factors`` replace the machine's own, ``tables`` False leaves its measurements out."""
        plan = resolve(read_plan(self.plan), TrainingConfig(**self.training), self.arch, self.gpus)
        gpu = accelerator(self.facts.gpu, self.facts.peak_flops, measured=tables)
        gpu = gpu if factors is None else replace(gpu, sustained=factors[0], beside=factors[1])
        return step_time(self.arch, plan, operations(self.arch, plan), self.facts, gpu=gpu, attention=self.attention)


def read(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


MODELS = {"llama3_70b": "llama-3.1-70b", "llama3_405b": "llama-3.1-405b", "deepseekv2": "deepseek-v2", "deepseekv3": "deepseek-v3"}


def b200(folder: Path) -> Iterator[Row]:
    """Yield the runs of Megatron on one node of 8 B200."""
    facts = ClusterConfig(preset="dgx-b200-superpod", gpus=8).facts
    for r in read(folder, "b200_megatron_runs.csv"):
        n = {key: int(r[key]) for key in ("layers", "seq", "micro_batch", "micro_batches", "tp", "pp", "dp", "cp", "ep", "gpus")}
        arch = preset(MODELS[r["model"]])
        layers = arch.layers[: n["layers"]]
        if r["model"].startswith("deepseek"):  # the first layer dense, as the note of the table says
            layers = (arch.layers[0], *[arch.layers[-1]] * (n["layers"] - 1))
        arch = replace(arch, layers=layers, mtp_layers=0)
        plan = {
            "dialect": "megatron", "tp": n["tp"], "pp": n["pp"], "cp": n["cp"], "ep": n["ep"], "etp": 1,
            "sequence_parallel": n["tp"] > 1, "use_distributed_optimizer": True, "grad_reduce_in_fp32": True,
            "cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te", "cp_comm_type": "a2a",
        }  # fmt: skip
        if n["ep"] > 1 or "deepseek" in r["model"]:
            plan |= {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True, "moe_expert_capacity_factor": 1.0,
                     "moe_pad_expert_input_to_capacity": True}  # fmt: skip
        training = {"sequence_length": n["seq"], "micro_batch": n["micro_batch"],
                    "global_batch": n["micro_batch"] * n["micro_batches"] * n["dp"]}  # fmt: skip
        yield Row(r["case"], arch, training, plan, facts, n["gpus"], float(r["measured_step_ms"]) / 1e3, float(r["simumax_step_ms"]) / 1e3)


def gpt(name: str, heads: int, hidden: int, layers: int, vocabulary: int) -> Architecture:
    """Return a GPT of Megatron: learned positions, biases, GELU, tied embeddings."""
    layer = Layer(Attention(heads, heads, hidden // heads, qkv_bias=True, output_bias=True), FeedForward(4 * hidden, gated=False, bias=True))
    return Architecture(name, "gpt", vocabulary, hidden, (layer,) * layers, Norm("layer", bias=True), positions="learned",
                        max_positions=2048, tied_embeddings=True)  # fmt: skip


def a100(world: int) -> ClusterFacts:
    """Return the facts of that many A100 in nodes of 8."""
    return ClusterConfig(preset="dgx-a100-superpod", gpus=world).facts


def sc21(folder: Path) -> Iterator[Row]:
    """Yield the runs of Narayanan et al. 2021; seconds follow from their FLOPs: 96·B·s·l·h²·(1 + s/6h + V/16lh), recompute counted."""
    micro = {"1.7B": 16, "7.5B": 4, "39.1B": 4, "145.6B": 4, "529.6B": 1}  # not in the table: assumed
    for r in read(folder, "megatron_sc21.csv"):
        h, L, B, s, V, g = (int(r[key]) for key in ("hidden", "layers", "global_batch", "seq", "vocab", "gpus"))
        flops = 96 * B * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h))
        tp, pp = int(r["tp"]), int(r["pp"])
        dp = g // (tp * pp)
        b = micro[r["model"]]
        while B % (b * dp):
            b //= 2
        plan = {"dialect": "megatron", "tp": tp, "pp": pp, "recompute_granularity": "full", "recompute_method": "uniform",
                "recompute_num_layers": 1, "grad_reduce_in_fp32": True}  # fmt: skip
        yield Row(f"SC21 {r['model']}", gpt(r["model"], int(r["heads"]), h, L, V), {"sequence_length": s, "global_batch": B, "micro_batch": b, "precision": "fp16"},
                  plan, a100(g), g, flops / (g * float(r["measured_tflops_per_gpu"]) * 1e12), None, "unfused")  # fmt: skip


def seqpar(folder: Path) -> Iterator[Row]:
    """Yield the runs of Korthikanti et al. 2022: full recomputation, and sequence parallelism with selective recomputation."""
    for r in read(folder, "megatron_seqpar.csv"):
        h, L, g = int(r["hidden"]), int(r["layers"]), int(r["gpus"])
        base = {"dialect": "megatron", "tp": int(r["tp"]), "pp": int(r["pp"]), "vpp": int(r["interleave"])}
        full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("full recompute", "step_s_full_recompute", full),
            ("selective, SP", "step_s_selective_seqpar", {"recompute_granularity": "selective", "sequence_parallel": True}),
        )
        training = {"sequence_length": int(r["seq"]), "global_batch": int(r["global_batch"]), "micro_batch": int(r["micro_batch"]), "precision": "fp16"}
        for title, column, more in kinds:
            yield Row(f"{r['model']} {title}", gpt(r["model"], int(r["heads"]), h, L, int(r["vocab"])), training, base | more, a100(g), g, float(r[column]), None, "unfused")


def error(row: Row, seconds: float) -> float:
    """Return the relative error of a prediction."""
    return seconds / row.measured - 1


def mean_absolute(errors: list[float]) -> float:
    """Return the mean of absolute errors."""
    return statistics.fmean(abs(e) for e in errors)


def main(folder: Path) -> None:
    """Print the comparison."""
    tables: tuple[tuple[str, Callable[[Path], Iterator[Row]]], ...] = (("B200", b200), ("SC21", sc21), ("seqpar", seqpar))
    for title, rows in tables:
        errors, peers = [], []
        for row in rows(folder):
            found = row.predicted()
            errors.append(error(row, found.step_seconds))
            if row.peer:
                peers.append(error(row, row.peer))
            print(f"{row.name:55s} {row.measured * 1e3:9.1f} {found.step_seconds * 1e3:9.1f} {errors[-1]:+7.1%} {error(row, row.peer) if row.peer else 0:+7.1%}"
                  f" c {found.compute_seconds * 1e3:8.1f} x {found.exposed_communication_seconds * 1e3:7.1f} b {found.bubble_seconds * 1e3:7.1f}")
        print(title, "mean |error|", mean_absolute(errors), "mean", statistics.fmean(errors), "peer", mean_absolute(peers) if peers else None)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent.parent / "shared" / "data" / "validation")
