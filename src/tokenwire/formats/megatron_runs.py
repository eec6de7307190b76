"""Importer of measured Megatron runs: golden values with their arguments (JSON lines); those of a table of B200 runs are ``runs.b200``.

Golden values are those of NVIDIA/Megatron-LM, tests/functional_tests: bytes that torch's allocator counts on the last rank
(megatron/training/training.py, training_log; its writer is that of the last rank) and seconds an iteration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.files import read_limited
from tokenwire.formats.runs.arguments import sections
from tokenwire.formats.runs.as_recorded import ANOTHER, as_recorded
from tokenwire.formats.runs.b200 import b200_run, b200_runs
from tokenwire.formats.runs.command_line import Arguments
from tokenwire.formats.runs.images import image
from tokenwire.formats.runs.run import LIMIT, Run, Sections
from tokenwire.formats.runs.unrepresented import reasons
from tokenwire.formats.runs.worlds import WORLDS, gpu_of, gpus_of
from tokenwire.model import ModelConfig, architecture
from tokenwire.plan import TrainingConfig, read_plan, resolve

__all__ = ["WORLDS", "b200_run", "b200_runs", "golden_run", "golden_runs", "kind"]
DETERMINISTIC_CUBLAS = ("cp2_pp2_ep2_te_4experts2parallel_nondeterministic", "hybrid_mr_mcore_te", "fine_grained_offloading")
"""Cases whose environment sets CUBLAS_WORKSPACE_CONFIG=:4096:8 without --deterministic-mode (their model_config.yaml, ENV_VARS)."""
BERT = {"vocab-size": 28_996}
"""Arguments that BERT's runs leave to their tokenizer: the words of BERT's cased vocabulary."""
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

    >>> golden_run({"case": "x", "family": "mimo", "args": {"model-provider": "llava_vlm"}}).reasons
    ('model-provider: a model that a script of its own builds',)
    """
    case, variant, family = (str(row.get(name, "")) for name in ("case", "variant", "family"))
    args, then = as_recorded(row["args"], case, variant)
    named: dict[str, Any] = {"case": case, "kind": kind(args, family), "platform": str(row.get("platform", "")), "variant": variant,
                             "measured": _measured(row)}  # fmt: skip
    another = ANOTHER.get((case, variant))
    if why := (*reasons(args), *((another,) if another else ())):
        return Run(**named, reasons=why)
    given = Arguments({**BERT, **args} if family == "bert" else args)
    try:
        gpus, assumed = gpus_of({**row, "args": args})
        found, software = sections(given, gpus)
        _resolved(found)
    except (InputError, KeyError, ValueError) as error:
        missing = f"{error.args[0]} is not given" if isinstance(error, KeyError) else str(error)
        return Run(**named, reasons=(missing,))
    if family == "bert":
        software["heads"] = "bert-no-binary-head" if "bert-no-binary-head" in args else "bert"
    where, more = _recorded(row, software)
    unread = tuple(f"{name}: an argument that is not known here, taken to change nothing" for name in given.unknown)
    return Run(**named, sections=found, software={**software, **where}, assumed=(*then, *assumed, *_beside(software, found), *more, *unread))


def _beside(software: Mapping[str, Any], found: Sections) -> tuple[str, ...]:
    """Return in words what memory counts that the journey does not say."""
    words = []
    if software.get("fp8") and found["training"]["precision"] == "fp32":
        words.append("the journey says fp32, its products in fp8 are counted beside it")
    if str(software.get("heads")).startswith("bert"):
        words.append("the journey says a decoder of BERT's shape, its heads are counted beside it; cased vocabulary")
    if software.get("encoder_layers"):
        words.append("the journey says T5's decoder, its encoder is counted beside it")
    if software.get("layer_wise_optimizer"):
        words.append("the journey says no distributed optimizer, how Muon's state is shared out is counted beside it")
    if software.get("data_parallel_sharding_strategy"):
        words.append("the journey says the distributed optimizer, what Megatron-FSDP shards besides is counted beside it")
    return tuple(words)


def _resolved(sections_: Sections) -> None:
    """Resolve the plan of a journey's sections, so that one that is refused is told with the run. Raises ``InputError``."""
    arch = architecture(read_section(ModelConfig, sections_["model"], where="[model]"))
    training = read_section(TrainingConfig, sections_["training"], where="[training]")
    resolve(read_plan(sections_["plan"]), training, arch, sections_["cluster"]["gpus"])


def _recorded(row: Mapping[str, Any], software: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what GPU and image of a row add to its software, and what is assumed of them."""
    found = image(row)
    out: dict[str, Any] = {"gpu": gpu_of(row), "torch": found.torch, "transformer_engine": found.transformer_engine}
    if any(part in str(row.get("case")) for part in DETERMINISTIC_CUBLAS):
        out["cublas_workspace"] = "deterministic"
    if software.get("deterministic_mode") and "attention_backend" not in software and not found.deterministic_flash:
        return {**out, "attention_backend": "unfused"}, ("unfused attention: the row's image has no deterministic FlashAttention",)
    return out, ()


def kind(args: Mapping[str, Any], family: str) -> str:
    """Return the kind of model: GPT, MoE, MLA, BERT, T5 ...

    >>> kind({"num-experts": 8, "multi-latent-attention": True}, "moe"), kind({}, "gpt")
    ('MoE, MLA', 'GPT')
    """
    if family in ("gpt", "moe", "mixtral"):
        parts = [name for key, name in (("num-experts", "MoE"), ("multi-latent-attention", "MLA")) if key in args]
        return ", ".join(parts) or "GPT"
    return {"bert": "BERT", "t5": "T5", "hybrid": "hybrid", "nemotron": "hybrid"}.get(family, family)


def _measured(row: Mapping[str, Any]) -> dict[str, float]:
    names = {"mem_allocated_bytes": "allocated_bytes", "mem_max_allocated_bytes": "peak_bytes",
             "iteration_seconds_median": "step_seconds"}  # fmt: skip
    numbers = {ours: row.get(theirs) for theirs, ours in names.items()}
    return {name: float(value) for name, value in numbers.items() if isinstance(value, (int, float)) and 0 < value < math.inf}
