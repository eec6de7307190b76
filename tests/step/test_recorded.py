"""Predictions against calls that the frameworks themselves made, recorded once: what was run, and how, stands in each file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.step.models import gpt, latent, llama
from tokenwire.measure.dryrun.compare import compare
from tokenwire.model.architecture import Architecture, Experts, FeedForward
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.step import operations

DATA = Path(__file__).parent / "data"
CASES = [
    (name, case)
    for name in ("torchtitan", "deepspeed")
    for case in json.loads((DATA / f"{name}.json").read_text())["cases"]
]
COLUMNS = {"op": pl.String, "group": pl.String, "phase": pl.String, "count": pl.Int64, "elements": pl.Int64, "dtype": pl.String,
           "peer": pl.Int64}  # fmt: skip


def architecture(model: dict[str, Any]) -> Architecture:
    """Return the model of a recording: the sizes of ``models.llama``, or of the model there that its kind names."""
    sizes = dict(model)
    made = {"llama": llama, "gpt": gpt, "latent": latent}[sizes.pop("kind", "llama")]
    if "experts" in sizes:
        experts = dict(sizes["experts"])
        shared = experts.pop("shared", None)
        sizes["experts"] = Experts(**experts, shared=FeedForward(shared, True) if shared else None)
    return made(**sizes)


def planned(name: str, case: dict[str, Any]) -> tuple[Architecture, Plan]:
    """Return architecture and plan of a recording."""
    arch = architecture(case["model"])
    training = TrainingConfig(sequence_length=case["sequence_length"], global_batch=case["global_batch"], micro_batch=1)
    return arch, resolve(read_plan({"dialect": name, **case["options"]}), training, arch, case["gpus"])


def recorded(case: dict[str, Any]) -> pl.DataFrame:
    """Return the calls of a recording."""
    return pl.DataFrame(case["calls"], schema=COLUMNS, orient="row")


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value['gpus']}-" + ",".join(f"{key}={option}" for key, option in value["options"].items())


@pytest.mark.parametrize(("name", "case"), CASES, ids=_name)
def test_the_prediction_is_what_was_recorded(name: str, case: dict[str, Any]) -> None:
    arch, plan = planned(name, case)
    predicted = operations(arch, plan)
    # Calls that are made once, before any step, are recorded only where the framework's recording says so.
    if not any(call[2] == "setup" for call in case["calls"]):
        predicted = predicted.filter(pl.col("phase") != "setup")
    table = compare(predicted, recorded(case), plan, case["rank"])
    assert table.height
    assert table.filter(~table["equal"]).to_dicts() == []


def test_a_missing_call_is_seen() -> None:
    name, case = CASES[0]
    arch, plan = planned(name, case)
    short = {**case, "calls": case["calls"][1:]}
    assert compare(operations(arch, plan), recorded(short), plan, case["rank"]).filter(~pl.col("equal")).height == 1
