"""Draw plans of a framework at random and run each: ``python -m tests.agreement megatron --seed 1 --count 100``.

Prints how many were equal, refused (by reason), different and failed, and the smallest plan found for each fault. Exit status
1 where any differs or fails. ``--save`` writes every plan with its outcome, ``--save-summary`` the counts by seed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.agreement.document import toml
from tests.agreement.running import KINDS, SECONDS, Job, Outcome, drawn, run
from tests.agreement.shrinking import shrunk


def main() -> int:
    """Run as the module says; return the exit status."""
    given = _arguments()
    counts, reasons, faults = Counter[str](), Counter[str](), list[tuple[Job, Outcome]]()
    calls, worlds = 0, [0]
    saved = given.save.open("w", encoding="utf-8") if given.save else None
    for job, outcome in run(
        given.framework, drawn(given.framework, given.seed, given.count), given.processes, given.seconds
    ):
        counts[outcome.kind] += 1
        calls += outcome.calls
        worlds.append(outcome.world)
        if outcome.kind == "refused":
            reasons[re.sub(r"[0-9][0-9,]*", "#", outcome.message)] += 1
        elif outcome.kind != "equal":
            faults.append((job, outcome))
        if saved:
            saved.write(json.dumps({"name": job.name, "document": job.document, **outcome.facts()}) + "\n")
            saved.flush()
        _progress(counts, given.count)
    print(file=sys.stderr)
    _report(counts, reasons, calls, max(worlds))
    for job, outcome in _one_of_each(faults):
        _show(
            job, *(shrunk(given.framework, job, outcome, given.processes) if given.shrink else (job, outcome))
        )
    if given.save_summary:
        _summarize(
            given, {**{kind: counts[kind] for kind in KINDS}, "calls": calls, "largest_world": max(worlds)}
        )
    return 1 if faults else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.agreement", description=__doc__)
    parser.add_argument("framework", help="a module of tests/agreement: megatron, torchtitan, ddp, deepspeed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="plans to draw, refused ones among them")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the longest that a plan may take")
    parser.add_argument("--save", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--save-summary", type=Path, metavar="FILE.json")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return parser.parse_args()


def _progress(counts: Counter[str], count: int) -> None:
    said = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
    print(f"\r{counts.total()} of {count}: {said}", end="", file=sys.stderr, flush=True)


def _report(counts: Counter[str], reasons: Counter[str], calls: int, world: int) -> None:
    said = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
    print(f"{counts.total()} plans: {said}; {calls:,} calls compared, worlds to {world:,} ranks")
    for reason, count in reasons.most_common():
        print(f"  refused {count}: {reason}")


def _one_of_each(faults: list[tuple[Job, Outcome]]) -> list[tuple[Job, Outcome]]:
    """Return a plan for every fault: the first that has it."""
    first = dict[Any, tuple[Job, Outcome]]()
    for job, outcome in faults:
        first.setdefault((outcome.kind, outcome.fault), (job, outcome))
    return list(first.values())


def _show(drawn_job: Job, job: Job, outcome: Outcome) -> None:
    print(
        f"\n# {drawn_job.name}: {outcome.kind}, ranks {', '.join(map(str, outcome.ranks))} {outcome.message}".rstrip()
    )
    print(toml(job.document))
    for row in outcome.rows:
        print(f"# rank {row['rank']}: {row['op']} {row['group']} ({row['group_size']}) {row['phase']}, {row['elements']:,} {row['dtype']}: "
              f"predicted {row['predicted']}, recorded {row['recorded']} {row['what']}".rstrip())  # fmt: skip


def _summarize(given: argparse.Namespace, counts: dict[str, int]) -> None:
    """Put a seed's counts into the file of all frameworks: ``{framework: {seed: counts}}``."""
    path: Path = given.save_summary
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    versions = {name: importlib.metadata.version(name) for name in _packages(given.framework)}
    entry = known.setdefault(given.framework, {})
    entry[str(given.seed)] = {"drawn": given.count, **counts, "versions": versions}
    known[given.framework] = dict(sorted(entry.items(), key=lambda item: int(item[0])))
    path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", "utf-8")


def _packages(framework: str) -> tuple[str, ...]:
    return {"megatron": ("megatron-core", "torch"), "deepspeed": ("deepspeed", "torch")}.get(
        framework, ("torch",)
    )


if __name__ == "__main__":
    sys.exit(main())
