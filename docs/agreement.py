"""Write docs/agreement.md: every plan of the agreement tests, dry-run by its framework, call by call.

    python docs/agreement.py [--only megatron]

Each plan is run by the framework itself without accelerators, as the ranks named, and compared with the prediction: operation,
members of the group, phase, elements, dtype, count. A plan with a difference stays in the table, with how many kinds differ.
Takes some ten minutes; DeepSpeed's plans are left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.step import (  # noqa: E402
    test_deepspeed_agreement,
    test_megatron_agreement,
    test_megatron_latent,
    test_megatron_next_tokens,
    test_torch_ddp,
    test_torchtitan_agreement,
)
from tests.step.models import plan_of  # noqa: E402
from tokenwire.measure.dryrun import check  # noqa: E402
from tokenwire.model.architecture import Architecture  # noqa: E402
from tokenwire.plan import Plan  # noqa: E402

PAGE = ROOT / "docs" / "agreement.md"
RANDOM = ROOT / "docs" / "agreement-random.json"
"""Counts of random plans by framework and seed, written by ``python -m tests.agreement FRAMEWORK --save-summary``."""
DIALECTS = ("megatron", "torchtitan", "ddp", "deepspeed")


class Case(NamedTuple):
    """A plan to run, and as which ranks."""

    dialect: str
    arch: Architecture
    plan: Plan
    said: str
    ranks: tuple[int, ...]


class Result(NamedTuple):
    """What came of it: kinds of calls compared, calls that the framework made, kinds that differ."""

    case: Case
    kinds: int
    calls: int
    different: int


def cases() -> Iterator[Case]:
    """Yield every plan of the agreement tests."""
    for arch, gpus, options, ranks, training in (
        *test_megatron_agreement.CASES,
        *test_megatron_latent.CASES,
        *test_megatron_next_tokens.CASES,
    ):
        yield Case(
            "megatron", arch, plan_of(arch, gpus, options, **training), _said({**options, **training}), ranks
        )
    for arch, gpus, options, batch, ranks in test_torchtitan_agreement.CASES:
        plan = test_torchtitan_agreement._plan(arch, gpus, options, batch)
        yield Case("torchtitan", arch, plan, _said(options), ranks)
    for arch, gpus, options in test_torch_ddp.CASES:
        plan = plan_of(arch, gpus, {"dialect": "ddp", **options}, global_batch=2 * gpus)
        yield Case("ddp", arch, plan, _said(options), (0,))
    if importlib.util.find_spec("deepspeed"):
        for arch, gpus, options, rank in test_deepspeed_agreement.CASES:
            dp = gpus // options.get("cp", 1)
            plan = plan_of(arch, gpus, {"dialect": "deepspeed", **options}, global_batch=2 * dp)
            yield Case("deepspeed", arch, plan, _said(options), (rank,))


def _said(options: dict[str, Any]) -> str:
    short = {True: ""}
    parts = [
        f"{key}{short.get(value, f' {value}') if isinstance(value, bool) else f' {value}'}"
        for key, value in options.items()
    ]
    return ", ".join(parts).replace("|", "\\|") or "no options"


def run(case: Case) -> Result:
    """Run one plan as each of its ranks."""
    kinds = calls = different = 0
    for rank in case.ranks:
        table = check(case.arch, case.plan, rank)
        compared = table.filter(table["equal"].is_not_null())
        kinds += compared.height
        calls += int(compared["recorded"].sum())
        different += compared.filter(~compared["equal"]).height
    return Result(case, kinds, calls, different)


def page(results: list[Result]) -> str:
    """Return the page."""
    present = [name for name in DIALECTS if any(r.case.dialect == name for r in results)]
    lines = [
        "# Predicted and real calls", "",
        "Every plan below was run by its framework itself, on a CPU, in one process that stands for one rank of the world",
        "(`tokenwire dryrun` does the same for a plan of your own), and each call compared with the prediction: operation, members of",
        "the group, phase, elements of the tensor, dtype, and how often. A kind is what these have in common; what a framework's",
        "training script or its kernels for accelerators would say is no part of it. Written by `docs/agreement.py`.", "",
        "| framework | plans | worlds | ranks asked | kinds of calls | calls | plans that differ |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for name in (*present, "all"):
        own = [r for r in results if name in (r.case.dialect, "all")]
        worlds = [r.case.plan.world for r in own]
        lines.append(
            f"| {name} | {len(own)} | {min(worlds):,} to {max(worlds):,} | {sum(len(r.case.ranks) for r in own)} | "
            f"{sum(r.kinds for r in own):,} | {sum(r.calls for r in own):,} | {sum(r.different > 0 for r in own)} |"
        )
    for name in present:
        lines += [
            "",
            f"## {name}",
            "",
            "| model | GPUs | plan | ranks | kinds | calls | equal |",
            "|---|--:|---|---|--:|--:|---|",
        ]
        for result in (r for r in results if r.case.dialect == name):
            case = result.case
            tied = ", tied" if case.arch.tied_embeddings else ""
            verdict = "yes" if not result.different else f"**{result.different} kinds differ**"
            lines.append(
                f"| {case.arch.name}, {len(case.arch.layers)} layers, {case.arch.vocabulary_size:,} rows{tied} | {case.plan.world:,} | {case.said} | "
                f"{', '.join(map(str, case.ranks))} | {result.kinds} | {result.calls:,} | {verdict} |"
            )
    return "\n".join([*lines, *random_plans()]) + "\n"


def random_plans() -> list[str]:
    """Return the section of plans that nobody chose, as they were counted when they were run."""
    if not RANDOM.exists():
        return []
    counted = json.loads(RANDOM.read_text("utf-8"))
    lines = [
        "", "## Plans drawn at random", "",
        "Plans that nobody chose, drawn over the options that a dry run can take, each run by its framework as two ranks",
        "(`python -m tests.agreement FRAMEWORK --seed N --count M`, which also reduces what differs to the smallest plan found). A plan that",
        "breaks a rule of its framework is refused, and counts as drawn alone.", "",
        "| framework | seed | drawn | refused | equal | differ | failed | calls compared | largest world |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    for name, by_seed in counted.items():
        for seed, n in by_seed.items():
            numbers = (n["drawn"], n["refused"], n["equal"], n["different"], n["failed"], n["calls"], n["largest_world"])
            lines.append(f"| {name} | {seed} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return lines


def main() -> None:
    """Run all plans and write the page; with ``--only`` print a framework's part of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=DIALECTS)
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    results = []
    for case in cases():
        if only in (None, case.dialect):
            results.append(run(case))
            print(
                f"{case.dialect} {case.plan.world} {case.said}: {results[-1].different} of {results[-1].kinds} differ",
                file=sys.stderr,
            )
    if only:
        print(page(results))
    else:
        PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
