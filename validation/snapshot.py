"""Write every prediction to a file, to the last digit, and compare two such files: what a rebuilding moved.

    python -m validation.snapshot write FILE [--only journey]
    python -m validation.snapshot compare BEFORE AFTER

A line is a JSON object: ``key`` names a prediction, ``value`` is it. ``step``: operations of the agreement plans. ``seconds``: the step
of each timed run, with the default setting and with none. ``memory``: each part of each stage of the golden runs. ``journey``: what
``time``, ``memory``, ``needs``, ``traffic``, ``step`` print with ``--json``. Exit status 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

Record = tuple[str, Any]
TEXTS = ("formula", "values", "source", "why")
"""Fields of an operation that only explain it."""
VERBS = ("step", "traffic", "time", "memory", "needs")
H100 = "training.sequence_length=4096 training.global_batch=64 training.micro_batch=1 cluster.preset=dgx-h100-superpod"
JOURNEYS = (
    "",
    "plan.pp=1 plan.tp=4 plan.sequence_parallel=true",
    "plan.dialect=ddp plan.tp=1 plan.pp=1",
    "plan.dialect=deepspeed plan.tp=1 plan.pp=1 plan.zero_stage=3",
    "plan.dialect=torchtitan plan.tp=1 plan.pp=2",
    f"{H100} model.preset=llama-3.1-8b plan.tp=2 plan.pp=2 plan.use_distributed_optimizer=true cluster.nodes=4",
    f"{H100} model.preset=llama-3.1-8b plan.dialect=torchtitan plan.tp=1 plan.pp=1 cluster.nodes=4",
    f"{H100} model.preset=llama-3.1-8b plan.dialect=deepspeed plan.tp=1 plan.pp=1 plan.zero_stage=3 cluster.nodes=2",
    f"{H100} model.preset=llama-3.1-70b plan.tp=8 plan.pp=4 plan.vpp=5 plan.sequence_parallel=true cluster.nodes=8",
    f"{H100} model.preset=llama-3.1-70b plan.tp=8 plan.pp=4 plan.cp=2 training.precision=fp8 cluster.nodes=16",
    f"{H100} model.preset=mixtral-8x7b plan.tp=1 plan.ep=8 plan.pp=4 cluster.nodes=8",
    f"{H100} model.preset=deepseek-v2-lite plan.tp=1 plan.pp=1 plan.ep=8 cluster.preset=dgx-b200-superpod cluster.nodes=2",
    f"{H100} model.preset=nemotron-h-8b plan.tp=2 plan.pp=1 cluster.nodes=1",
)
"""What is set in the built-in journey."""
SHOWN = 12
"""Differences of one prediction that are printed."""


def steps() -> Iterator[Record]:
    """Yield the operations of every plan of the agreement tests."""
    from agreement import cases
    from tokenwire.step import calls_of

    for case in cases():
        rows = [{**row._asdict(), "bytes": row.bytes} for row in calls_of(case.arch, case.plan)]
        value = [{name: cell for name, cell in row.items() if name not in TEXTS} for row in rows]
        yield (
            f"step {case.dialect} {case.arch.name} {len(case.arch.layers)} {case.plan.world} {case.said}",
            value,
        )


def seconds() -> Iterator[Record]:
    """Yield the seconds of every timed run, with the default setting of its plan and with none, or why it has no journey."""
    from tokenwire.timeline.calibration import calibrated, usual
    from validation.cases import cases

    said, unsaid = cases()
    for case in said:
        for name, setting in (("default", usual(case.gpu, case.arch, case.plan)), ("none", None)):
            found = case.predicted(calibrated(case.gpu, setting, case.precision))
            parts = {
                "step": found.step_seconds,
                "pipeline": found.pipeline_seconds,
                "gradients": found.gradients_seconds,
                "optimizer": found.optimizer_seconds,
                "mfu": found.mfu,
                "measured": case.seconds,
            }
            yield (
                f"seconds {case.table} {case.run.name} {name}",
                {**parts, "setting": setting.name if setting else None},
            )
    for table, run, why in unsaid:
        yield f"seconds {table} {run.name}", why


def memories() -> Iterator[Record]:
    """Yield the memory of every golden run and run on B200, or why it has no journey."""
    from validation.golden import golden_runs
    from validation.memory import GOLDEN, predicted
    from validation.run import DATA
    from validation.tables import b200_runs

    for run in (
        *golden_runs(GOLDEN),
        *b200_runs(DATA / "b200_megatron_runs.csv"),
    ):
        if not run.represented:
            yield f"memory {run.name}", {"reasons": run.reasons}
            continue
        stages = [
            {
                "between": s.between,
                "peak": s.peak,
                "moment": s.moment,
                "parts": [[p.kind, p.what, p.size, list(p.moments)] for p in s.parts],
            }
            for s in predicted(run).stages
        ]
        yield f"memory {run.name}", {"measured": dict(run.measured), "stages": stages}


def journeys() -> Iterator[Record]:
    """Yield what the verbs print of the journeys as JSON, or their error."""
    from typer.testing import CliRunner

    from tokenwire.cli import app

    runner = CliRunner()
    for journey in JOURNEYS:
        for verb in VERBS:
            arguments = [verb, *(f"--set={change}" for change in journey.split()), "--json"]
            sys.argv[1:] = arguments  # the command line loads the module of the verb that stands there
            ended = runner.invoke(app, arguments)
            value = (
                json.loads(ended.stdout) if ended.exit_code == 0 else repr(ended.exception or ended.output)
            )
            yield f"journey {verb} {journey}".strip(), value


KINDS: dict[str, Callable[[], Iterator[Record]]] = {
    "step": steps,
    "seconds": seconds,
    "memory": memories,
    "journey": journeys,
}


def write(path: Path, only: str | None) -> None:
    """Write the predictions, one a line."""
    count: Counter[str] = Counter()
    with path.open("w", encoding="utf-8") as file:
        for kind, records in KINDS.items():
            if only in (None, kind):
                for key, value in records():
                    count[key] += 1
                    name = key if count[key] == 1 else f"{key} #{count[key]}"
                    file.write(json.dumps({"key": name, "value": value}, default=str) + "\n")
                print(
                    f"{kind}: {sum(n for key, n in count.items() if key.startswith(kind))}",
                    file=sys.stderr,
                    flush=True,
                )


def read(path: Path) -> dict[str, Any]:
    """Return the predictions of a file by key."""
    with path.open(encoding="utf-8") as file:
        return {row["key"]: row["value"] for row in map(json.loads, file)}


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number and text of a value with its place in it.

    >>> dict(leaves({"a": [1, {"b": 2}]}))
    {'a[0]': 1, 'a[1].b': 2}
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{place}[{i}]")
    else:
        yield place, value


def differences(before: Any, after: Any) -> list[str]:
    """Return in words what differs between two values.

    >>> differences({"a": 1.0, "b": 2}, {"a": 1.5, "c": 3})
    ['a: 1.0 -> 1.5 (+50.0000 %)', 'b: 2 -> nothing', 'c: nothing -> 3']
    """
    old, new = dict(leaves(before)), dict(leaves(after))
    out = []
    for place in dict.fromkeys((*old, *new)):
        if place not in old or place not in new:
            out.append(f"{place}: {old.get(place, 'nothing')} -> {new.get(place, 'nothing')}")
        elif old[place] != new[place]:
            both = all(isinstance(value, int | float) for value in (old[place], new[place]))
            by = f" ({new[place] / old[place] - 1:+.4%})".replace("%", " %") if both and old[place] else ""
            out.append(f"{place}: {old[place]} -> {new[place]}{by}")
    return out


def compare(before: Path, after: Path) -> Iterator[str]:
    """Yield in words every prediction that differs between two files."""
    old, new = read(before), read(after)
    for key in dict.fromkeys((*old, *new)):
        if key not in old or key not in new:
            yield f"{key}: only {'before' if key in old else 'after'}"
        elif found := differences(old[key], new[key]):
            yield f"{key}: {len(found)} differ"
            yield from (f"    {line}" for line in found[:SHOWN])


def main() -> int:
    """Write a file, or compare two."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.snapshot", description=__doc__.splitlines()[0]
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("write", help="write every prediction")
    one.add_argument("file", type=Path)
    one.add_argument("--only", choices=KINDS)
    two = verbs.add_parser("compare", help="name what differs")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.verb == "write":
        warnings.simplefilter("ignore")
        write(given.file, given.only)
        return 0
    moved = 0
    for line in compare(given.before, given.after):
        moved += not line.startswith(" ")
        print(line)
    print(f"{moved} predictions differ" if moved else "every prediction is equal")
    return int(moved > 0)


if __name__ == "__main__":
    sys.exit(main())
