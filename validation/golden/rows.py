"""Reads golden rows as runs: arguments, corrections, GPUs and image of each."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenwire.config import read_section
from tokenwire.errors import InputError
from tokenwire.files import read_limited
from tokenwire.formats.megatron_arguments import Arguments, Sections, reasons, sections
from tokenwire.model import ModelConfig, architecture
from tokenwire.plan import TrainingConfig, read_plan, resolve
from validation.golden.corrections import Corrections, corrections
from validation.golden.images import image
from validation.golden.machines import gpu_of, gpus_of
from validation.run import LIMIT, Run

DETERMINISTIC_CUBLAS = ":4096:8"
"""What CUBLAS_WORKSPACE_CONFIG is for deterministic products."""
BERT = {"vocab-size": 28_996}
"""Arguments that BERT's runs leave to their tokenizer: the words of BERT's cased vocabulary."""


def golden_runs(path: str | Path) -> tuple[Run, ...]:
    """Return the runs of a file of golden values, one a line. Raises ``InputError`` for a file that is none."""
    where = f"runs {str(path)!r}"
    rows = []
    content = read_limited(path, limit=LIMIT, what="table of runs")
    if str(path).endswith(".gz"):
        content = _unpacked(content, where)
    for number, line in enumerate(content.decode("utf-8").splitlines(), 1):
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


def _unpacked(content: bytes, where: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            out = file.read(LIMIT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(where, rule=f"is no gzip file ({error})") from None
    if len(out) > LIMIT:
        raise InputError(where, rule=f"unpacks to more than {LIMIT:,} bytes")
    return out


def golden_run(row: Mapping[str, Any]) -> Run:
    """Return one run: its journey, or the reasons why there is none.

    >>> golden_run({"case": "x", "family": "mimo", "args": {"model-provider": "llava_vlm"}}).reasons
    ('model-provider: a model that a script of its own builds',)
    """
    case, variant, family = (str(row.get(name, "")) for name in ("case", "variant", "family"))
    correct = corrections(case, variant)
    args, then = correct.corrected(row["args"])
    named: dict[str, Any] = {"case": case, "kind": kind(args, family), "platform": str(row.get("platform", "")), "variant": variant,
                             "measured": _measured(row)}  # fmt: skip
    if why := (*reasons(args), *((correct.excluded,) if correct.excluded else ())):
        return Run(**named, reasons=why)
    given = Arguments({**BERT, **args} if family == "bert" else args)
    try:
        gpus, assumed, inferred = gpus_of({**row, "args": args}, correct)
        found, software = sections(given, gpus)
        _resolved(found)
    except (InputError, KeyError, ValueError) as error:
        missing = f"{error.args[0]} is not given" if isinstance(error, KeyError) else str(error)
        return Run(**named, reasons=(missing,))
    if family == "bert":
        software["heads"] = "bert-no-binary-head" if "bert-no-binary-head" in args else "bert"
    where, more = _recorded(row, software, correct)
    unread = tuple(f"{name}: an argument that is not known here, taken to change nothing" for name in given.unknown)
    return Run(**named, sections=found, software={**software, **where}, assumed=(*then, *assumed, *_beside(software, found), *more, *unread), inferred=inferred)


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


def _recorded(
    row: Mapping[str, Any], software: Mapping[str, Any], correct: Corrections
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what GPU and image of a row add to its software, and what is assumed of them."""
    found = image(row)
    out: dict[str, Any] = {"gpu": gpu_of(row), "torch": found.torch, "transformer_engine": found.transformer_engine}
    if (correct.environment or {}).get("CUBLAS_WORKSPACE_CONFIG") == DETERMINISTIC_CUBLAS:
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
